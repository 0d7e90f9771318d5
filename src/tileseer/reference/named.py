"""The rule sets of the reference generator by name.

``default``, ``full`` and its samples ``full-tests`` and ``tiny`` are tables; ``profiler`` and ``tests`` are read from
a Composable Kernel checkout. A set holds what the reference enumerates; beside each kernel stands whether the
reference's architecture filter would refuse it, and why we would not build it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, cast

from tileseer.conv.operation import DTYPES, Variant
from tileseer.core.errors import UserError
from tileseer.core.tables import read
from tileseer.families.ck_tile import depthwise, flags
from tileseer.families.ck_tile.depthwise import DepthwiseConfig
from tileseer.families.ck_tile.flags import Flag
from tileseer.families.ck_tile.kernel import LAYOUTS, KernelConfig
from tileseer.gpu.arch import ArchSpecs
from tileseer.reference import builder_set, full_set, reference_filter, sampling
from tileseer.reference.builder_tables import BuilderRules
from tileseer.reference.full_set import Cell
from tileseer.reference.named_tables import DefaultRules, FullRules, Sample, SampledSet
from tileseer.reference.request import BUILDER_SETS, DEPTHWISE, NDIMS, REQUESTED_VARIANTS, RULE_SETS

AnyKernel = KernelConfig | DepthwiseConfig
KINDS = (KernelConfig, DepthwiseConfig)
"""Of kernels that a rule set may have, for filter expressions."""
COLUMNS = ("kernel", "arch", "arch_filter", "arch_filter_reason", "flags", "flag_reasons", "built_as")
"""``arch_filter`` is ``pass`` or the rule that refuses; ``flags`` are separated by commas, their reasons by ``; ``.

``built_as`` is the name with the label of the true layout, under which the kernel is emitted.
"""


@dataclass(frozen=True)
class RuleTables:
    """The tables of all named rule sets."""

    default: DefaultRules
    full: FullRules
    builder: BuilderRules

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Read the files of ``directory`` (config/rule_sets); a ``UserError`` names file, field and value."""
        folder = Path(directory)
        return cls(
            read(folder / "default.yaml", DefaultRules),
            read(folder / "full.yaml", FullRules),
            read(folder / "builder.yaml", BuilderRules),
        )


@dataclass(frozen=True)
class Enumerated:
    """A kernel of a rule set; ``rule`` is the rule of the architecture filter that refuses it, else empty.

    ``flags`` say why the kernel is not built unless that is asked for.
    """

    kernel: AnyKernel
    rule: str = ""
    reason: str = ""
    flags: tuple[Flag, ...] = ()

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name

    @property
    def passes_arch_filter(self) -> bool:
        """Whether the reference's architecture filter keeps the kernel."""
        return not self.rule

    def is_built(self, included: Collection[str]) -> bool:
        """Whether a build has the kernel when the flags ``included`` are asked for."""
        return flags.is_built(self.flags, included)

    def row(self, arch: str) -> dict[str, str]:
        """The columns of a list, ``COLUMNS``."""
        values = (
            self.name, arch, self.rule or "pass", self.reason, ",".join(flag.name for flag in self.flags),
            "; ".join(flag.reason for flag in self.flags), self.kernel.built_as.name,
        )  # fmt: skip
        return dict(zip(COLUMNS, values, strict=True))

    def record(self, arch: str) -> dict[str, Any]:
        """The same with the kind of the kernel and its fields."""
        return self.row(arch) | {"family": self.kernel.kind, "fields": asdict(self.kernel)}


def enumerate_rule_set(
    name: str,
    arch: str,
    variants: Sequence[str],
    ndims: Sequence[int],
    dtypes: Sequence[str],
    specs: ArchSpecs,
    tables: RuleTables,
    ck_root: Path | None = None,
) -> list[Enumerated]:
    """Kernels of a set for one request, in the order of the reference; ``UserError`` on unknown words.

    Order and, for the samples, content depend on the request as a whole. ``ck_root`` is the Composable Kernel
    checkout that ``profiler`` and ``tests`` are read from.
    """
    return Enumerator(specs, tables, ck_root).enumerate(name, arch, variants, ndims, dtypes)


def check_flags(names: Collection[str]) -> None:
    """Refuse a flag that does not exist."""
    flags.check_names(names)


def judged(kernel: KernelConfig, arch: str, specs: ArchSpecs, lossy: str = "") -> Enumerated:
    """An implicit-GEMM kernel with the verdict of the filter and its flags.

    ``lossy`` is the pipeline that an instance file asked for in place of the kernel's.
    """
    found = flags.of(kernel, arch, specs)
    if lossy:
        found = (*found, flags.replaced_pipeline(kernel, lossy))
    return Enumerated(kernel, *reference_filter.arch_fault(kernel, arch, specs), found)


def single(
    fields: dict[str, Any], variants: Sequence[str], ndims: Sequence[int], dtypes: Sequence[str]
) -> list[KernelConfig]:
    """The kernel of ``fields`` for each direction, dimensionality and data type."""
    return [
        KernelConfig(variant=variant, dtype=dtype, layout=LAYOUTS[ndim][0], ndim=ndim, **fields)
        for variant in variants
        for ndim in ndims
        for dtype in dtypes
    ]


class Enumerator:
    """Enumerates for many requests, each cell of ``full`` once."""

    def __init__(self, specs: ArchSpecs, tables: RuleTables, ck_root: Path | None = None) -> None:
        """Keep the tables; nothing is enumerated yet."""
        self._specs = specs
        self._tables = tables
        self._ck_root = ck_root
        self._cells: dict[Cell, list[Enumerated]] = {}

    def enumerate(
        self, name: str, arch: str, variants: Sequence[str], ndims: Sequence[int], dtypes: Sequence[str]
    ) -> list[Enumerated]:
        """Kernels of a set for one request; see ``enumerate_rule_set``."""
        _check("rule set", [name], RULE_SETS)
        _check("variant", variants, REQUESTED_VARIANTS)
        _check("ndim", ndims, NDIMS)
        _check("dtype", dtypes, DTYPES)
        _check("arch", [arch], self._specs.supported_archs())
        if name == "default":
            return list(self._default(arch, variants, ndims, dtypes))
        if name in BUILDER_SETS:
            return list(self._builder(name, arch, variants, ndims, dtypes))
        return self._full(name, arch, variants, ndims, dtypes)

    def _full(
        self, name: str, arch: str, variants: Sequence[str], ndims: Sequence[int], dtypes: Sequence[str]
    ) -> list[Enumerated]:
        sample = self._tables.full.samples.get(cast(SampledSet, name))
        if sample is None:
            return list(self._whole(arch, variants, ndims, dtypes))
        return _drawn(self._full(sample.of, arch, variants, ndims, dtypes), sample)

    def _whole(
        self, arch: str, variants: Sequence[str], ndims: Sequence[int], dtypes: Sequence[str]
    ) -> Iterator[Enumerated]:
        # Asked for twice, by their own name and with ``forward``, the depthwise kernels come once.
        with_depthwise = next((word for word in variants if word in (depthwise.VARIANT, DEPTHWISE)), None)
        for variant in variants:
            if variant != DEPTHWISE:
                for ndim in ndims:
                    for dtype in dtypes:
                        yield from self._cell(Cell(arch, variant, ndim, dtype))
            if variant == with_depthwise and depthwise.NDIM in ndims:
                for config in full_set.depthwise_kernels(list(dtypes), self._tables.full):
                    yield self._judged_depthwise(config, arch)

    def _builder(
        self, name: str, arch: str, variants: Sequence[str], ndims: Sequence[int], dtypes: Sequence[str]
    ) -> Iterator[Enumerated]:
        if self._ck_root is None:
            raise UserError(
                f"the rule set {name} is read from a Composable Kernel checkout: give its top folder as ck.root "
                "(--ck-root DIR)"
            )
        rules = self._tables.builder
        for variant in variants:
            if variant == DEPTHWISE:
                if depthwise.NDIM in ndims:
                    for config in builder_set.depthwise_kernels(dtypes, name, self._ck_root, rules):
                        yield self._judged_depthwise(config, arch)
                continue
            for ndim in ndims:
                for dtype in dtypes:
                    cell = Cell(arch, variant, ndim, dtype)
                    built, _ = builder_set.gemm_kernels(cell, name, self._ck_root, rules, self._specs)
                    for row in built:
                        yield self._judged(row.kernel, arch, row.lossy)

    def _cell(self, cell: Cell) -> list[Enumerated]:
        if cell not in self._cells:
            kernels = full_set.gemm_kernels(cell, self._tables.full, self._specs)
            self._cells[cell] = [self._judged(config, cell.arch) for config in kernels]
        return self._cells[cell]

    def _default(
        self, arch: str, variants: Sequence[str], ndims: Sequence[int], dtypes: Sequence[str]
    ) -> Iterator[Enumerated]:
        """Cross tiles and pipelines; every kernel is made for every data type, suited or not."""
        for variant in (word for word in variants if word != DEPTHWISE):
            for ndim in ndims:
                for config in self._default_kernels(variant, ndim, dtypes):
                    if not reference_filter.config_fault(config, arch, self._specs, tagged=False)[0]:
                        yield self._judged(config, arch)

    def _default_kernels(self, variant: str, ndim: int, dtypes: Sequence[str]) -> Iterator[KernelConfig]:
        rules = self._tables.default
        for row in rules.variants.get(cast(Variant, variant), []):
            for tile in (tile for tile in rules.tiles if row.pipeline not in tile.not_with):
                m, n, k = tile.tile
                for two_stage in row.two_stage:
                    for dtype in dtypes:
                        yield KernelConfig(
                            variant, dtype, rules.layout, ndim, row.pipeline, row.epilogue, "intrawave",
                            m, n, k * row.tile_k_factor, *tile.wave, *tile.warp_tile, *rules.vectors,
                            double_smem_buffer=row.double_smem_buffer, two_stage=two_stage,
                        )  # fmt: skip

    def _judged(self, config: KernelConfig, arch: str, lossy: str = "") -> Enumerated:
        return judged(config, arch, self._specs, lossy)

    def _judged_depthwise(self, config: DepthwiseConfig, arch: str) -> Enumerated:
        # The architecture filter of the reference does not look at depthwise kernels.
        return Enumerated(config, flags=flags.of(config, arch, self._specs))


def _drawn(items: list[Enumerated], sample: Sample) -> list[Enumerated]:
    if sample.every is not None:
        return sampling.every_nth(items, sample.every)
    return sampling.in_turn(items, sample.at_least or 0)


def _check(what: str, values: Sequence[object], allowed: Sequence[object]) -> None:
    """Refuse an empty request, unknown words and repeated ones, which would enumerate kernels twice."""
    known = ", ".join(str(value) for value in allowed)
    if not values:
        raise UserError(f"no {what} is given; use some of {known}")
    for value in values:
        if value not in allowed:
            raise UserError(f"unknown {what} {value!r}; use one of {known}")
    if len(set(values)) != len(values):
        raise UserError(f"a {what} is given twice in {list(values)}")
