"""The kernels of each family: from their names, and to and from the columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tileseer import families
from tileseer.families.ck_tile import kernel as ck_tile
from tileseer.families.cutlass import kernel as cutlass
from tileseer.families.gemm_kernel import GemmKernel, field_types


@dataclass(frozen=True)
class Kernels:
    """What a family's kernels are."""

    type: type[GemmKernel]
    parse: Callable[[str], GemmKernel]


OF_FAMILY = {
    families.CK_TILE.name: Kernels(ck_tile.KernelConfig, ck_tile.parse),
    families.CUTLASS.name: Kernels(cutlass.CutlassKernel, cutlass.parse),
}


def parse(names: Sequence[str]) -> list[GemmKernel]:
    """Return the kernels, all of one family, that are called so."""
    family = OF_FAMILY[families.of_kernels(names).name]
    return [family.parse(name) for name in names]


def from_columns(names: Sequence[str], columns: Mapping[str, list[Any]]) -> list[GemmKernel]:
    """Return the kernels of one family from their names and the columns of all their fields, in the given order."""
    kind = OF_FAMILY[families.of_kernels(names).name].type
    return [kind(*values) for values in zip(*(columns[field] for field in field_types(kind)), strict=True)]
