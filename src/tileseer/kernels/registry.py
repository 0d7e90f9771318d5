"""The kernel families: one row each. An arch and a kernel's name both tell the family.

What a stage needs of a family beside its kernels is in a table of the subject: ``support.SUPPORT``,
``emission.EMITTERS``, ``rule_sets.SWEEPS``, ``costs.cost_models.COST_MODELS`` and
``costs.resources.RESOURCES``. So a stage depends on the subjects that it imports and on no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from tileseer.core.errors import UserError
from tileseer.gpus.hardware import target
from tileseer.kernels.ck_tile.kernel import KernelConfig
from tileseer.kernels.cudnn.kernel import Plan
from tileseer.kernels.cutlass.kernel import CutlassKernel
from tileseer.kernels.gemm_kernel import Kernel
from tileseer.kernels.miopen.kernel import Solver

Entry = TypeVar("Entry")
LACK = ".lack"
"""Suffix of a bundle's file for a kernel that has no header: it says why."""
ONE_SLICE = ".one_slice"
"""Suffix of a bundle's file for a kernel that refuses every split-K above 1: it says why."""


@dataclass(frozen=True)
class Family:
    """What tells the kernels of one library from the others."""

    name: str
    """Its key in the table of each subject."""
    archs: str
    """Pattern of the names of its archs."""
    kernel: type[Any]
    """The subclass of ``Kernel`` that models know."""
    features: str
    """Its own feature set."""
    toolchain: str = ""
    """What compiles its kernels, a word of compile.toolchain; empty for recorded kernels that nobody makes here."""
    header_suffix: str = ""
    """Of the file of an emitted kernel."""
    launcher: str = ""
    """Header of workflow/native that launches a kernel."""
    registration: str = ""
    """C++ line that registers a kernel; ``{name}``, ``{variant}``, ``{ndim}`` and ``{dtype}`` are filled in."""
    layout: str = "NHWC"
    """That its kernels are for (``problem.LAYOUTS``), or the first of several."""
    offered: bool = False
    """Whether the library says for each problem which candidates there are, and which of them it would run itself."""
    library: str = ""
    """Last word of the arch whose models have a candidate for every problem: those of the vendor's library."""
    rule_set: str = ""
    """File of config/rule_sets that the kernels of a quick measurement are drawn from."""

    @property
    def prefix(self) -> str:
        """How its kernels' names begin."""
        return str(self.kernel.parts[0].form)


CK_TILE = Family(
    "ck_tile",
    "gfx*",
    KernelConfig,
    features="tileseer",
    toolchain="hipcc",
    header_suffix=".hpp",
    launcher="ck_tile_kernel.hpp",
    registration="TILESEER_CK_KERNEL({name}, CONV_{variant}, {ndim}, CONV_{dtype})",
    rule_set="sweep.yaml",
)
CUTLASS = Family(
    "cutlass",
    "sm_*",
    CutlassKernel,
    features="cutlass",
    toolchain="nvcc",
    header_suffix=".cuh",
    launcher="cutlass_kernel.hpp",
    registration="TILESEER_CUTLASS_KERNEL({name})",
    library="cudnn",
    rule_set="cutlass.yaml",
)
MIOPEN = Family("miopen", "*_miopen", Solver, features="miopen", layout="NCHW")
CUDNN = Family("cudnn", "*_cudnn", Plan, features="cudnn", offered=True)
FAMILIES: tuple[Family, ...] = (CK_TILE, CUTLASS, MIOPEN, CUDNN)


def family_of_arch(arch: str) -> Family:
    """Family whose kernels run on an arch, the last that claims it."""
    for family in reversed(FAMILIES):
        if fnmatchcase(arch, family.archs):
            return family
    patterns = ", ".join(family.archs for family in FAMILIES)
    raise UserError(f"no kernels for the arch {arch!r}; names of archs are of the forms {patterns}")


def library_arch(arch: str) -> str | None:
    """The arch of the same GPU whose models have a candidate for every problem; None if there is no other."""
    library = family_of_arch(arch).library
    return f"{target(arch)}_{library}" if library else None


def family_of_kernels(names: Sequence[str]) -> Family:
    """Family of kernel names, of which there is at least one; ``UserError`` where they are of several or none."""
    if not len(names):
        raise ValueError("there is no kernel name to tell the family by")
    for family in FAMILIES:
        if all(name.startswith(family.prefix) for name in names):
            return family
    prefixes = ", ".join(family.prefix for family in FAMILIES)
    raise UserError(f"kernels of one family at a time, with names that begin with one of {prefixes}; see {names[0]!r}")


def entry(table: Mapping[str, Entry], family: Family) -> Entry:
    """A family's entry in the table of a subject; ``UserError`` if its kernels are only recorded."""
    if family.name not in table:
        raise UserError(
            f"the kernels of {family.name} are not made or timed here; replay a recording: give its arch and folder "
            "under replays"
        )
    return table[family.name]


def parse_kernels(names: Sequence[str]) -> list[Kernel]:
    """Kernels of names, all of one family."""
    parse = family_of_kernels(names).kernel.parse if len(names) else None
    return [parse(name) for name in names] if parse else []


def header_file(kernel: Kernel) -> str:
    """File name of a kernel's emitted header."""
    return f"{kernel.name}{family_of_kernels([kernel.name]).header_suffix}"


def registration_source(kernels: Sequence[Kernel]) -> str:
    """C++ source that registers kernels of one family, in the order of ``kernels``."""
    family = family_of_kernels([kernel.name for kernel in kernels])
    includes = [*(header_file(kernel) for kernel in kernels), family.launcher]
    lines = (
        family.registration.format(name=k.name, variant=k.variant.upper(), ndim=k.ndim, dtype=k.dtype.upper())
        for k in kernels
    )
    return "".join(f'#include "{path}"\n' for path in includes) + "\n" + "".join(f"{line}\n" for line in lines)
