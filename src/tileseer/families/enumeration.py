"""What every family does with the combinations of a rule set: keep the legal ones, list the others with the reason."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar, cast

from pydantic import Field

from tileseer.conv.operation import Operation, Variant
from tileseer.core.errors import UserError
from tileseer.core.tables import Table
from tileseer.families.gemm_kernel import GemmKernel
from tileseer.gpu.arch import ArchSpecs

Kernel = TypeVar("Kernel", bound=GemmKernel)
Count = Annotated[int, Field(ge=1)]
Triple = Annotated[list[Count], Field(min_length=3, max_length=3)]
MAX_THREADS = 1024
Rule = Callable[[Any, str, ArchSpecs], str]
"""(kernel, arch, specs) to the reason why the kernel is refused, or an empty string."""
Rules = dict[str, Rule]


class DirectionRows(Table):
    """What the rows of a direction have in every family's rule sets."""

    split_k: list[Count] = Field([1], min_length=1)
    """Values of the launch knob split-K that are measured for each kernel."""


Rows = TypeVar("Rows", bound=DirectionRows)


class NoKernel(UserError):
    """A rule set has no kernel for an operation on an arch."""


@dataclass(frozen=True)
class Rejected:
    """A combination of the rule set that is no legal kernel, with the rule that says so."""

    kernel: str
    rule: str
    reason: str


@dataclass(frozen=True)
class Enumeration(Generic[Kernel]):
    """The legal kernels in name order, the refused ones, and the split-K values of each kernel."""

    kernels: list[Kernel]
    rejected: list[Rejected]
    split_k: list[int]


def rejected_text(rejected: Iterable[Rejected]) -> str:
    """The refused combinations as tab-separated lines."""
    return "kernel\trule\treason\n" + "".join(f"{r.kernel}\t{r.rule}\t{r.reason}\n" for r in rejected)


def rows_of(variants: Mapping[Variant, Rows], operation: Operation) -> Rows:
    """What a direction is enumerated from; ``UserError`` if there is nothing, or no such split-K."""
    rows = variants.get(cast(Variant, operation.variant))
    if rows is None:
        raise NoKernel(f"the rule set has no entry variants.{operation.variant}, which operation {operation} needs")
    if operation.variant != "bwd_weight" and rows.split_k != [1]:
        raise UserError(f"variants.{operation.variant}.split_k is {rows.split_k}; only bwd_weight splits K: write [1]")
    return rows


def sifted(
    kernels: Iterable[Kernel], fault: Callable[[Kernel], tuple[str, str]], split_k: Iterable[int], where: str
) -> Enumeration[Kernel]:
    """Sort kernels without a fault (rule and reason, empty if there is none) from the others."""
    legal: dict[str, Kernel] = {}
    rejected: dict[str, Rejected] = {}
    for kernel in kernels:
        rule, reason = fault(kernel)
        if rule:
            rejected[kernel.name] = Rejected(kernel.name, rule, reason)
        else:
            legal[kernel.name] = kernel
    if not legal:
        raise NoKernel(f"no kernel of the rule set is legal {where}")
    return Enumeration(
        [legal[key] for key in sorted(legal)], [rejected[key] for key in sorted(rejected)], sorted(set(split_k))
    )


def named(*rules: Rule) -> Rules:
    """Rules by their names."""
    return {rule.__name__: rule for rule in rules}


def first_of(rules: Rules, kernel: Any, arch: str, specs: ArchSpecs) -> tuple[str, str]:
    """(rule, reason) of the first rule that refuses the kernel, or two empty strings."""
    found = ((name, rule(kernel, arch, specs)) for name, rule in rules.items())
    return next((fault for fault in found if fault[1]), ("", ""))


def tile_divides(kernel: GemmKernel, arch: str, specs: ArchSpecs) -> str:
    """The tile must be a whole multiple of waves times warp tile in m, n and k."""
    for axis, tile, wave, warp in zip("mnk", kernel.tile, kernel.wave, kernel.warp_tile, strict=True):
        if tile % (wave * warp):
            return f"tile_{axis} = {tile} is no multiple of {wave} waves x warp tile {warp}"
    return ""


def threads_fit(kernel: GemmKernel, arch: str, specs: ArchSpecs) -> str:
    """A block has at most 1024 threads."""
    waves = kernel.wave_m * kernel.wave_n * kernel.wave_k
    threads = specs.arch(arch).wave_size * waves
    fits = threads <= MAX_THREADS
    return "" if fits else f"{waves} waves make {threads} threads; a block has at most {MAX_THREADS}"
