"""The rule sets of the reference generator by name.

``default``, ``full`` and its samples ``full-tests`` and ``tiny`` are tables; ``profiler`` and ``tests`` are read from
a Composable Kernel checkout. A set holds what the reference enumerates; beside each kernel is whether the reference's
architecture filter would refuse it, and why we would not build it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, product, zip_longest
from operator import attrgetter
from pathlib import Path
from typing import Any, Self, cast

from tileseer.core.errors import UserError
from tileseer.core.strict_tables import read_yaml_table
from tileseer.facts.arch import ArchSpecs
from tileseer.facts.operations import BUILDER_SETS, Variant
from tileseer.libraries.ck_tile import depthwise, flags
from tileseer.libraries.ck_tile.depthwise import DepthwiseConfig
from tileseer.libraries.ck_tile.kernel import KernelConfig
from tileseer.libraries.ck_tile.upstream import builder_set, full_set
from tileseer.libraries.ck_tile.upstream.builder_set import BuilderRules
from tileseer.libraries.ck_tile.upstream.full_set import Cell
from tileseer.libraries.ck_tile.upstream.named_tables import DefaultRules, FullRules, SampledSet
from tileseer.libraries.ck_tile.upstream.reference_filter import (
    ARCH_RULES,
    UNTAGGED_CONFIG_RULES,
    filter_parts,
    without_broken,
)
from tileseer.libraries.enumeration import DEPTHWISE, ListedKernel
from tileseer.libraries.rules import BrokenRule, broken_rules

AnyKernel = KernelConfig | DepthwiseConfig


@dataclass(frozen=True)
class RuleTables:
    """The tables of all named rule sets."""

    default: DefaultRules
    full: FullRules
    builder: BuilderRules

    @classmethod
    def read_folder(cls, folder: Path) -> Self:
        """Read the files of ``folder`` (config/rule_sets); a ``UserError`` names file, field and value."""
        default = read_yaml_table(folder / "default.yaml", DefaultRules)
        full = read_yaml_table(folder / "full.yaml", FullRules)
        return cls(default, full, read_yaml_table(folder / "builder.yaml", BuilderRules))


def list_kernels(
    kernels: Sequence[AnyKernel], arch: str, specs: ArchSpecs, lossy: Mapping[KernelConfig, str] | None = None
) -> list[ListedKernel]:
    """List kernels with the verdict of the filter and their flags, in their order.

    ``lossy`` has the pipelines that an instance file asked for in place of a kernel's.
    """
    gemm = [kernel for kernel in kernels if isinstance(kernel, KernelConfig)]
    refused = iter(broken_rules(ARCH_RULES, filter_parts(gemm, arch, specs)) if gemm else [])
    flagged = iter(flags.flags_of(gemm, arch, specs))
    listed = []
    for kernel in kernels:
        # The architecture filter of the reference does not look at depthwise kernels.
        rule, reason, own = "", "", []
        if isinstance(kernel, KernelConfig):
            rule, reason = next(iter(next(refused)), ("", ""))
            own = next(flagged)
            if lossy and lossy[kernel]:
                fault = f"the instance file asks for {lossy[kernel]}; the reference makes {kernel.pipeline} of it"
                own.append(BrokenRule(flags.PIPELINE_REPLACED, fault))
        listed.append(ListedKernel(kernel, rule, reason, tuple(own)))
    return listed


def checkout(name: str, ck_root: str | Path | None) -> Path:
    """Return the Composable Kernel checkout that a set is read from."""
    if not ck_root:
        raise UserError(
            f"the rule set {name} is read from a Composable Kernel checkout: give its top folder as ck.root "
            "(--ck-root DIR)"
        )
    return Path(ck_root).expanduser()


class Enumerator:
    """Enumerates for many requests, each cell of ``full`` once.

    ``ck_root`` is the Composable Kernel checkout that ``profiler`` and ``tests`` are read from.
    """

    def __init__(self, specs: ArchSpecs, tables: RuleTables, ck_root: str | Path | None = None) -> None:
        self._specs = specs
        self._tables = tables
        self._ck_root = ck_root
        self._cells: dict[Cell, list[ListedKernel]] = {}

    def enumerate(
        self, name: str, arch: str, variants: Sequence[str], ndims: Sequence[int], dtypes: Sequence[str]
    ) -> list[ListedKernel]:
        """Return the kernels of a set for one request, in the order of the reference; ``UserError``: an unknown arch.

        Order and, for the samples, content depend on the request as a whole; a word that is given twice counts once.
        """
        self._specs.arch(arch)
        variants, ndims, dtypes = list(dict.fromkeys(variants)), list(dict.fromkeys(ndims)), list(dict.fromkeys(dtypes))
        if sample := self._tables.full.samples.get(cast(SampledSet, name)):
            whole = self.enumerate(sample.of, arch, variants, ndims, dtypes)
            kernels = [item.kernel for item in whole]
            every, least = sample.every, sample.at_least or 0
            ranks = _every_nth(kernels, every) if every else _in_turn(kernels, least)
            return [whole[rank] for rank in ranks]
        parts = {"default": self._default, "full": self._full}.get(name, self._builder)
        # Named twice, by their own name and with ``forward``, the depthwise kernels come once.
        with_depthwise = (DEPTHWISE,) if name in BUILDER_SETS else (depthwise.VARIANT, DEPTHWISE)
        first = next((word for word in variants if word in with_depthwise), None)
        listed: list[ListedKernel] = []
        for variant in variants:
            cells = [Cell(arch, variant, *of) for of in product(ndims, dtypes)] if variant != DEPTHWISE else []
            own = self._depthwise(name, dtypes) if variant == first and depthwise.NDIM in ndims else []
            listed += parts(name, cells) + list_kernels(own, arch, self._specs)
        return listed

    def _full(self, name: str, cells: Sequence[Cell]) -> list[ListedKernel]:
        for cell in cells:
            if cell not in self._cells:
                kernels = full_set.gemm_kernels(cell, self._tables.full, self._specs)
                self._cells[cell] = list_kernels(kernels, cell.arch, self._specs)
        return [item for cell in cells for item in self._cells[cell]]

    def _builder(self, name: str, cells: Sequence[Cell]) -> list[ListedKernel]:
        root, listed = checkout(name, self._ck_root), []
        for cell in cells:
            kernels = builder_set.gemm_kernels(cell, name, root, self._tables.builder, self._specs)
            listed += list_kernels(list(kernels), cell.arch, self._specs, kernels)
        return listed

    def _default(self, name: str, cells: Sequence[Cell]) -> list[ListedKernel]:
        """List every kernel for every data type, suited or not, data types innermost."""
        listed = []
        for _, row in groupby(cells, key=attrgetter("ndim")):
            every = zip(*(_default_kernels(cell, self._tables.default) for cell in row), strict=True)
            kernels = list(chain.from_iterable(every))
            kept = without_broken(UNTAGGED_CONFIG_RULES, kernels, cells[0].arch, self._specs)
            listed += list_kernels(kept, cells[0].arch, self._specs)
        return listed

    def _depthwise(self, name: str, dtypes: Sequence[str]) -> list[DepthwiseConfig]:
        if name == "default":
            return []
        if name == "full":
            return full_set.depthwise_kernels(dtypes, self._tables.full)
        root = checkout(name, self._ck_root)
        return list(builder_set.depthwise_kernels(dtypes, name, root, self._tables.builder))


def _default_kernels(cell: Cell, rules: DefaultRules) -> Iterator[KernelConfig]:
    for row in rules.variants.get(cast(Variant, cell.variant), []):
        for tile, two_stage in product(rules.tiles, row.two_stage):
            if row.pipeline not in tile.not_with:
                words = (cell.variant, cell.dtype, rules.layout, cell.ndim, row.pipeline, row.epilogue, "intrawave")
                m, n, k = tile.tile
                sizes = (m, n, k * row.tile_k_factor, *tile.wave, *tile.warp_tile, *rules.vectors)
                options: dict[str, Any] = {"double_smem_buffer": row.double_smem_buffer, "two_stage": two_stage}
                yield KernelConfig(*words, *sizes, **options)


# Smaller sets are drawn so that every kind of kernel stays. What is drawn depends on all that the large set holds: a
# sample of one direction is no part of the sample of all.


def _category(kernel: Any) -> tuple[str, str]:
    """Return what kind of kernel it is, the first kind that fits, and its data type."""
    if kernel.kind != "implicit_gemm":
        return kernel.kind, kernel.dtype
    kinds = (
        ("stream_k", kernel.streamk != "none"),
        ("split_image", kernel.split_image),
        ("merged_groups", kernel.num_groups_to_merge > 1),
        ("two_stage", kernel.two_stage),
        ("explicit_gemm", kernel.explicit_gemm),
    )
    return next((kind for kind, holds in kinds if holds), "regular"), kernel.dtype


def _every_nth(kernels: Sequence[Any], step: int) -> list[int]:
    """Return the ranks of every ``step``-th kernel of each category, in order; a smaller category gives its first.

    Then the first kernel of each (variant, dtype, pipeline, scheduler) that would be missing is added.
    """
    groups = _grouped(range(len(kernels)), lambda rank: _category(kernels[rank]))
    chosen = {rank for ranks in groups for rank in ranks[step - 1 :: step] or ranks[:1]}
    for ranks in _grouped(range(len(kernels)), lambda rank: _traits(kernels[rank])):
        if chosen.isdisjoint(ranks):
            chosen.add(ranks[0])
    return sorted(chosen)


def _in_turn(kernels: Sequence[Any], at_least: int) -> list[int]:
    """Return the ranks of the first kernel of each category and dimensionality, then of the second, so many."""
    groups = _grouped(range(len(kernels)), lambda rank: (*_category(kernels[rank]), kernels[rank].ndim))
    turns = [rank for rank in chain.from_iterable(zip_longest(*groups)) if rank is not None]
    return turns[: max(at_least, len(groups))]


def _grouped(items: Iterable[int], key: Callable[[int], Hashable]) -> list[list[int]]:
    groups: dict[Hashable, list[int]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def _traits(kernel: Any) -> tuple[str, ...]:
    loop = (kernel.pipeline, kernel.scheduler) if kernel.kind == "implicit_gemm" else (kernel.kind,)
    return kernel.variant, kernel.dtype, *loop
