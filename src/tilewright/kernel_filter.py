"""Filter expressions over the fields of kernels: which of a rule set are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from tilewright import depthwise, kernel, row_filter
from tilewright.depthwise import DepthwiseConfig
from tilewright.errors import UserError
from tilewright.families.cutlass import kernel as cutlass_kernel
from tilewright.families.cutlass.kernel import CutlassKernel
from tilewright.gemm_kernel import GemmKernel
from tilewright.kernel import KernelConfig
from tilewright.operation import DTYPES
from tilewright.row_filter import Filter, Kind

if TYPE_CHECKING:
    from tilewright.rules.sweep import Enumeration

RULE = "filter"
"""What a kernel that the expression leaves out is listed under."""
_LABELS = [label for labels in kernel.LAYOUTS.values() for label in labels]
_KINDS: dict[type, tuple[Mapping[str, Kind], Callable[[Any], str]]] = {
    KernelConfig: (row_filter.kinds(KernelConfig, kernel.CHOICES | {"layout": _LABELS}), kernel.name),
    DepthwiseConfig: (row_filter.kinds(DepthwiseConfig, {"dtype": DTYPES}), depthwise.name),
    CutlassKernel: (row_filter.kinds(CutlassKernel, cutlass_kernel.CHOICES), cutlass_kernel.name),
}
"""The fields and the name of each kind of kernel."""
AnyKernel = TypeVar("AnyKernel", bound=GemmKernel)


def parse(text: str, kinds: Iterable[type], where: str) -> Filter:
    """Read an expression over the fields that kernels of any of ``kinds`` have."""
    known: dict[str, Kind] = {}
    for kind in kinds:
        known |= _KINDS[kind][0]
    return row_filter.parse(text, known, where)


def keeps(wanted: Filter, one: Any) -> bool:
    """Tell whether a kernel is kept; one of a kind without a field that is read is not."""
    return wanted.keeps(vars(one))


def narrowed(found: Enumeration[AnyKernel], text: str, where: str) -> Enumeration[AnyKernel]:
    """Return the kernels that the expression ``text`` keeps; the others are listed as refused."""
    from tilewright.rules.sweep import Enumeration, Rejected

    wanted = parse(text, {type(one) for one in found.kernels}, where)
    kept = [one for one in found.kernels if keeps(wanted, one)]
    if not kept:
        raise UserError(f"{where}: {text!r} keeps none of {len(found.kernels)} kernels")
    out = [Rejected(_name(one), RULE, str(wanted)) for one in found.kernels if not keeps(wanted, one)]
    return Enumeration(kept, sorted([*found.rejected, *out], key=lambda row: row.kernel), found.split_k)


def _name(one: object) -> str:
    return _KINDS[type(one)][1](one)
