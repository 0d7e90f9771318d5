"""The kernel families: one line each. An arch and a kernel's name both tell the family."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tileseer.core.errors import UserError
from tileseer.families.family import Family

if TYPE_CHECKING:
    from tileseer.families.gemm_kernel import Kernel

FAMILIES = (
    Family(
        "ck_tile",
        "grouped_conv_",
        "gfx*",
        features="tileseer",
        toolchain="hipcc",
        header_suffix=".hpp",
        rule_set="sweep.yaml",
    ),
    Family(
        "cutlass",
        "cutlass_conv_",
        "sm_*",
        features="cutlass",
        toolchain="nvcc",
        header_suffix=".cuh",
        rule_set="cutlass.yaml",
    ),
    Family("miopen", "miopen_conv_", "*_miopen", features="miopen"),
    Family("cudnn", "cudnn_conv_", "*_cudnn", features="cudnn", offered=True),
)


def of_arch(arch: str) -> Family:
    """Family whose kernels run on an arch, the last that claims it; the first one for an arch that none claims."""
    return next((family for family in reversed(FAMILIES) if fnmatchcase(arch, family.archs)), FAMILIES[0])


def of_toolchain(name: str) -> Family:
    """Family whose kernels a toolchain compiles."""
    return next(family for family in FAMILIES if family.toolchain == name)


def of_kernels(names: Sequence[str]) -> Family:
    """Family of kernel names; ``UserError`` where they are of several or none."""
    if not len(names):
        return FAMILIES[0]
    for family in FAMILIES:
        if all(name.startswith(family.prefix) for name in names):
            return family
    prefixes = ", ".join(family.prefix for family in FAMILIES)
    raise UserError(f"kernels of one family at a time, with names that begin with one of {prefixes}; see {names[0]!r}")


def parse(names: Sequence[str]) -> list[Kernel]:
    """Kernels of names, all of one family."""
    of_name = of_kernels(names).part("kernel").parse
    return [of_name(name) for name in names]
