"""Kernel families: what differs between CK Tile kernels for AMD GPUs and CUTLASS kernels for NVIDIA GPUs.

The name of a kernel says its family, and so does the arch. What each stage asks of a family is in a module of its own,
so that a stage depends on no more than that (docs/how-to/add-a-kernel-family.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tileseer.core.errors import UserError


@dataclass(frozen=True)
class Family:
    """What tells a family from the others."""

    name: str
    prefix: str
    """How its kernels' names begin."""
    archs: str
    """How the names of its archs begin."""
    features: str
    """Its feature set."""
    header_suffix: str
    """Of the file that an emitted kernel is in."""


CK_TILE = Family("ck_tile", "grouped_conv_", "gfx", "tileseer", ".hpp")
CUTLASS = Family("cutlass", "cutlass_conv_", "sm_", "cutlass", ".cuh")
FAMILIES = (CK_TILE, CUTLASS)


def of_arch(arch: str) -> Family:
    """Return the family whose kernels run on an arch: that which knows the beginning of its name, else CK Tile."""
    return next((family for family in FAMILIES if arch.startswith(family.archs)), CK_TILE)


def of_kernels(names: Sequence[str]) -> Family:
    """Return the family of kernel names; ``UserError`` where they are of several or none."""
    if not len(names):
        return CK_TILE
    for family in FAMILIES:
        if all(name.startswith(family.prefix) for name in names):
            return family
    prefixes = ", ".join(family.prefix for family in FAMILIES)
    raise UserError(f"kernels of one family at a time, with names that begin with one of {prefixes}; see {names[0]!r}")
