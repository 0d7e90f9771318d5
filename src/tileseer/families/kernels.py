"""Kernels of any family from their names, and from the columns of a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from tileseer.families.gemm_kernel import GemmKernel, field_types
from tileseer.families.registry import of_kernels


def parse(names: Sequence[str]) -> list[GemmKernel]:
    """Kernels of names, all of one family."""
    of_name = of_kernels(names).part("kernel").parse
    return [of_name(name) for name in names]


def from_columns(names: Sequence[str], columns: Mapping[str, list[Any]]) -> list[GemmKernel]:
    """Kernels of one family from their names and the columns of all their fields, in the given order."""
    kind = of_kernels(names).part("kernel").KERNEL
    return [kind(*values) for values in zip(*(columns[field] for field in field_types(kind)), strict=True)]
