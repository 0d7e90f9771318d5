"""Filter expressions over the fields of kernels: which of a rule set are kept."""

from collections.abc import Iterable
from typing import Any, TypeVar

from tileseer.core import row_filter
from tileseer.core.errors import UserError
from tileseer.core.row_filter import Filter, Kind
from tileseer.families.enumeration import Enumeration, Rejected
from tileseer.families.gemm_kernel import GemmKernel

RULE = "filter"
"""What a kernel that the expression leaves out is listed under."""
AnyKernel = TypeVar("AnyKernel", bound=GemmKernel)


def parse(text: str, kinds: Iterable[type[Any]], where: str) -> Filter:
    """Read an expression over the fields that kernels of any of ``kinds`` have."""
    known: dict[str, Kind] = {}
    for kind in kinds:
        known |= row_filter.kinds(kind, kind.choices)
    return row_filter.parse(text, known, where)


def narrowed(found: Enumeration[AnyKernel], text: str, where: str) -> Enumeration[AnyKernel]:
    """Keep the kernels that the expression ``text`` holds for; list the others as refused."""
    wanted = parse(text, {type(one) for one in found.kernels}, where)
    kept = [one for one in found.kernels if wanted.keeps(vars(one))]
    if not kept:
        raise UserError(f"{where}: {text!r} keeps none of {len(found.kernels)} kernels")
    out = [Rejected(one.name, RULE, str(wanted)) for one in found.kernels if not wanted.keeps(vars(one))]
    return Enumeration(kept, sorted([*found.rejected, *out], key=lambda row: row.kernel), found.split_k)
