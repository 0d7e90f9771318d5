"""Filter expressions over the fields of kernels: which of a rule set are kept."""

from collections.abc import Iterable
from typing import Any, TypeVar

from tileseer.core.errors import UserError
from tileseer.core.row_filter import Filter, Vocabulary, parse_filter, vocabulary
from tileseer.kernels.enumeration import Enumeration, Rejected
from tileseer.kernels.gemm_kernel import GemmKernel

RULE = "filter"
"""Name of the rule under which a kernel that the expression leaves out is listed."""
AnyKernel = TypeVar("AnyKernel", bound=GemmKernel)


def parse_kernel_filter(text: str, kinds: Iterable[type[Any]], where: str) -> Filter:
    """Read an expression over the fields that kernels of any of ``kinds`` have."""
    fields: Vocabulary = {}
    for kind in kinds:
        fields |= vocabulary(kind, kind.choices)
    return parse_filter(text, fields, where)


def filter_kernels(listed: Enumeration[AnyKernel], text: str, where: str) -> Enumeration[AnyKernel]:
    """Keep the kernels that the expression ``text`` holds for; list the others as refused."""
    condition = parse_kernel_filter(text, {type(kernel) for kernel in listed.kernels}, where)
    kept = [kernel for kernel in listed.kernels if condition.keeps(vars(kernel))]
    if not kept:
        raise UserError(f"{where}: {text!r} keeps none of {len(listed.kernels)} kernels")
    out = [
        Rejected(kernel.name, RULE, condition.text) for kernel in listed.kernels if not condition.keeps(vars(kernel))
    ]
    return Enumeration(kept, sorted([*listed.rejected, *out], key=lambda row: row.kernel), listed.split_k)
