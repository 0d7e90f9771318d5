"""Filter expressions over the fields of kernels: which of a rule set are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from tileseer.conv.operation import DTYPES
from tileseer.core import row_filter
from tileseer.core.errors import UserError
from tileseer.core.row_filter import Filter, Kind
from tileseer.families.ck_tile import depthwise, kernel
from tileseer.families.ck_tile.depthwise import DepthwiseConfig
from tileseer.families.ck_tile.kernel import KernelConfig
from tileseer.families.cutlass import kernel as cutlass_kernel
from tileseer.families.cutlass.kernel import CutlassKernel
from tileseer.families.gemm_kernel import GemmKernel

if TYPE_CHECKING:
    from tileseer.families.ck_tile.sweep import Enumeration

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
    from tileseer.families.ck_tile.sweep import Enumeration, Rejected

    wanted = parse(text, {type(one) for one in found.kernels}, where)
    kept = [one for one in found.kernels if keeps(wanted, one)]
    if not kept:
        raise UserError(f"{where}: {text!r} keeps none of {len(found.kernels)} kernels")
    out = [Rejected(_name(one), RULE, str(wanted)) for one in found.kernels if not keeps(wanted, one)]
    return Enumeration(kept, sorted([*found.rejected, *out], key=lambda row: row.kernel), found.split_k)


def _name(one: object) -> str:
    return _KINDS[type(one)][1](one)
