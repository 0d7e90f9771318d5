"""The sweep rule set: a table of tiles crossed with the pipeline, scheduler and option combinations of a direction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar, cast

from pydantic import Field

from tileseer.conv.operation import Operation, Variant
from tileseer.core.errors import UserError
from tileseer.core.tables import Table, read
from tileseer.families.ck_tile import flags, validity
from tileseer.families.ck_tile.kernel import LAYOUTS, KernelConfig
from tileseer.families.gemm_kernel import GemmKernel
from tileseer.gpu.arch import ArchSpecs

Kernel = TypeVar("Kernel", bound=GemmKernel, covariant=True)
Count = Annotated[int, Field(ge=1)]
Triple = Annotated[list[Count], Field(min_length=3, max_length=3)]


class TileRow(Table):
    """A block tile with the waves, warp tile and vector widths that belong to it."""

    tile: Triple
    wave: Triple
    warp_tile: Triple
    vectors: Triple
    not_with: list[str] = Field(default_factory=list)
    """Pipelines that this tile is not built for."""


class OptionRow(Table):
    """Pipelines and schedulers, with the options that each is crossed with."""

    pipeline: str
    schedulers: list[Literal["intrawave", "interwave"]] = Field(min_length=1)
    double_smem_buffer: list[bool] = Field([False], min_length=1)
    split_image: list[bool] = Field([False], min_length=1)
    two_stage: list[bool] = Field([False], min_length=1)
    num_groups_to_merge: list[Count] = Field([1], min_length=1)


class VariantRows(Table):
    """What a direction is swept over."""

    options: list[OptionRow] = Field(min_length=1)
    split_k: list[Count] = Field([1], min_length=1)
    """Values of the launch knob split-K that are measured for each kernel."""


class SweepRules(Table):
    """A sweep rule-set file."""

    epilogue: Literal["cshuffle", "default"]
    tiles: list[TileRow] = Field(min_length=1)
    variants: dict[Variant, VariantRows]


class DirectionRows(Protocol):
    """What the rows of a direction have in every family's rule sets."""

    @property
    def split_k(self) -> list[int]:
        """Values of the launch knob split-K that are measured for each kernel."""


Rows = TypeVar("Rows", bound=DirectionRows)


@dataclass(frozen=True)
class Rejected:
    """A combination of the rule set that is no legal kernel, with the rule that says so."""

    kernel: str
    rule: str
    reason: str


def rejected_text(rejected: Iterable[Rejected]) -> str:
    """Return the refused combinations as tab-separated lines."""
    return "kernel\trule\treason\n" + "".join(f"{r.kernel}\t{r.rule}\t{r.reason}\n" for r in rejected)


@dataclass(frozen=True)
class Enumeration(Generic[Kernel]):
    """The legal kernels in name order, the refused ones, and the split-K values of each kernel."""

    kernels: list[Kernel]
    rejected: list[Rejected]
    split_k: list[int]


def load(path: Path) -> SweepRules:
    """Read a rule-set file; a ``UserError`` names file and field."""
    return read(path, SweepRules)


def enumerate_kernels(
    rules: SweepRules,
    specs: ArchSpecs,
    arch: str,
    operation: Operation,
    ndims: list[int],
    included: Collection[str] = (flags.ALL,),
) -> Enumeration[KernelConfig]:
    """Return every kernel of the rule set for one arch and operation; none is corrected, illegal ones are refused.

    A kernel with a known defect is refused unless its flag is among ``included``.
    """
    flags.check_names(included)
    rows = rows_of(rules.variants, operation)

    def fault(kernel: KernelConfig) -> tuple[str, str]:
        found = validity.first_fault(kernel, arch, specs)
        return found if found[0] else flags.first_defect(kernel, included)

    return sifted(_combinations(rules, rows, operation, ndims), fault, rows.split_k, f"on {arch} for {operation}")


def rows_of(variants: Mapping[Variant, Rows], operation: Operation) -> Rows:
    """Return what a direction is enumerated from; ``UserError`` if there is nothing, or no such split-K."""
    rows = variants.get(cast(Variant, operation.variant))
    if rows is None:
        raise UserError(f"the rule set has no entry variants.{operation.variant}, which operation {operation} needs")
    if operation.variant != "bwd_weight" and rows.split_k != [1]:
        raise UserError(f"variants.{operation.variant}.split_k is {rows.split_k}; only bwd_weight splits K: write [1]")
    return rows


def sifted(
    kernels: Iterable[Kernel], fault: Callable[[Kernel], tuple[str, str]], split_k: Iterable[int], where: str
) -> Enumeration[Kernel]:
    """Return the kernels without a fault (rule and reason, empty if there is none), and the others as refused."""
    legal: dict[str, Kernel] = {}
    rejected: dict[str, Rejected] = {}
    for kernel in kernels:
        rule, reason = fault(kernel)
        if rule:
            rejected[kernel.name] = Rejected(kernel.name, rule, reason)
        else:
            legal[kernel.name] = kernel
    if not legal:
        raise UserError(f"no kernel of the rule set is legal {where}")
    return Enumeration(
        [legal[key] for key in sorted(legal)], [rejected[key] for key in sorted(rejected)], sorted(set(split_k))
    )


def _combinations(
    rules: SweepRules, rows: VariantRows, operation: Operation, ndims: list[int]
) -> Iterator[KernelConfig]:
    for ndim in ndims:
        for tile in rules.tiles:
            for options in rows.options:
                if options.pipeline not in tile.not_with:
                    yield from _options(rules, tile, options, operation, ndim)


def _options(
    rules: SweepRules, tile: TileRow, options: OptionRow, operation: Operation, ndim: int
) -> Iterator[KernelConfig]:
    for scheduler in options.schedulers:
        for double_smem_buffer in options.double_smem_buffer:
            for split_image in options.split_image:
                for two_stage in options.two_stage:
                    for merged in options.num_groups_to_merge:
                        leading: list[Any] = [
                            operation.variant, operation.dtype, LAYOUTS[ndim][0], ndim, options.pipeline,
                            rules.epilogue, scheduler,
                        ]  # fmt: skip
                        choices: dict[str, Any] = {
                            "num_groups_to_merge": merged, "double_smem_buffer": double_smem_buffer,
                            "two_stage": two_stage, "split_image": split_image,
                        }  # fmt: skip
                        yield KernelConfig(*leading, *tile.tile, *tile.wave, *tile.warp_tile, *tile.vectors, **choices)
