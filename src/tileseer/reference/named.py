"""The rule sets of the reference generator by name.

``default``, ``full`` and its samples ``full-tests`` and ``tiny`` are tables; ``profiler`` and ``tests`` are read from
a Composable Kernel checkout. A set holds what the reference enumerates; beside each kernel stands whether the
reference's architecture filter would refuse it, and why we would not build it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
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
from tileseer.reference.builder_lines import BuilderRules
from tileseer.reference.full_set import Cell
from tileseer.reference.named_tables import DefaultRules, FullRules, SampledSet
from tileseer.reference.request import DEPTHWISE, NDIMS, REQUESTED_VARIANTS
from tileseer.settings.rule_set_names import BUILDER_SETS, RULE_SETS

AnyKernel = KernelConfig | DepthwiseConfig
check_flags = flags.check_names
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
        return flags.ALL in included or all(flag.name in included for flag in self.flags)

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


def judged(kernel: KernelConfig, arch: str, specs: ArchSpecs, lossy: str = "") -> Enumerated:
    """An implicit-GEMM kernel with the verdict of the filter and its flags.

    ``lossy`` is the pipeline that an instance file asked for in place of the kernel's.
    """
    found = flags.of(kernel, arch, specs)
    if lossy:
        reason = f"the instance file asks for {lossy}; the reference makes {kernel.pipeline} of it"
        found = (*found, Flag(flags.PIPELINE_REPLACED, reason))
    return Enumerated(kernel, *reference_filter.arch_fault(kernel, arch, specs), found)


def checkout(name: str, ck_root: str | Path | None) -> Path:
    """The Composable Kernel checkout that a set is read from."""
    if not ck_root:
        raise UserError(
            f"the rule set {name} is read from a Composable Kernel checkout: give its top folder as ck.root "
            "(--ck-root DIR)"
        )
    return Path(ck_root).expanduser()


def single(
    fields: dict[str, Any], variants: Sequence[str], ndims: Sequence[int], dtypes: Sequence[str]
) -> list[KernelConfig]:
    """The kernel of ``fields`` for each direction, dimensionality and data type."""
    return [
        KernelConfig(variant=variant, dtype=dtype, layout=LAYOUTS[ndim][0], ndim=ndim, **fields)
        for variant, ndim, dtype in product(variants, ndims, dtypes)
    ]


class Enumerator:
    """Enumerates for many requests, each cell of ``full`` once.

    ``ck_root`` is the Composable Kernel checkout that ``profiler`` and ``tests`` are read from.
    """

    def __init__(self, specs: ArchSpecs, tables: RuleTables, ck_root: str | Path | None = None) -> None:
        self._specs = specs
        self._tables = tables
        self._ck_root = ck_root
        self._cells: dict[Cell, list[Enumerated]] = {}

    def enumerate(
        self, name: str, arch: str, variants: Sequence[str], ndims: Sequence[int], dtypes: Sequence[str]
    ) -> list[Enumerated]:
        """Kernels of a set for one request, in the order of the reference; ``UserError`` on unknown words.

        Order and, for the samples, content depend on the request as a whole.
        """
        _check("rule set", [name], RULE_SETS)
        _check("variant", variants, REQUESTED_VARIANTS)
        _check("ndim", ndims, NDIMS)
        _check("dtype", dtypes, DTYPES)
        _check("arch", [arch], list(self._specs.archs))
        asked = _Asked(arch, tuple(variants), tuple(ndims), tuple(dtypes))
        if name == "default":
            return list(self._default(asked))
        return list(self._builder(name, asked)) if name in BUILDER_SETS else self._full(name, asked)

    def _full(self, name: str, asked: _Asked) -> list[Enumerated]:
        sample = self._tables.full.samples.get(cast(SampledSet, name))
        if sample is None:
            return list(self._whole(asked))
        items = self._full(sample.of, asked)
        return (
            sampling.every_nth(items, sample.every) if sample.every else sampling.in_turn(items, sample.at_least or 0)
        )

    def _whole(self, asked: _Asked) -> Iterator[Enumerated]:
        # Asked for twice, by their own name and with ``forward``, the depthwise kernels come once.
        with_depthwise = next((word for word in asked.variants if word in (depthwise.VARIANT, DEPTHWISE)), None)
        for variant in asked.variants:
            for cell in asked.cells(variant):
                yield from self._cell(cell)
            if variant == with_depthwise and depthwise.NDIM in asked.ndims:
                yield from self._depthwise(full_set.depthwise_kernels(asked.dtypes, self._tables.full), asked.arch)

    def _builder(self, name: str, asked: _Asked) -> Iterator[Enumerated]:
        root, rules = checkout(name, self._ck_root), self._tables.builder
        for variant in asked.variants:
            if variant == DEPTHWISE and depthwise.NDIM in asked.ndims:
                found = builder_set.depthwise_kernels(asked.dtypes, name, root, rules)
                yield from self._depthwise(found, asked.arch)
            for cell in asked.cells(variant):
                for row in builder_set.gemm_kernels(cell, name, root, rules, self._specs)[0]:
                    yield judged(row.kernel, asked.arch, self._specs, row.lossy)

    def _cell(self, cell: Cell) -> list[Enumerated]:
        if cell not in self._cells:
            kernels = full_set.gemm_kernels(cell, self._tables.full, self._specs)
            self._cells[cell] = [judged(kernel, cell.arch, self._specs) for kernel in kernels]
        return self._cells[cell]

    def _default(self, asked: _Asked) -> Iterator[Enumerated]:
        """Cross tiles and pipelines; every kernel is made for every data type, suited or not."""
        for variant in (word for word in asked.variants if word != DEPTHWISE):
            for ndim in asked.ndims:
                for kernel in self._default_kernels(variant, ndim, asked.dtypes):
                    if not reference_filter.config_fault(kernel, asked.arch, self._specs, tagged=False)[0]:
                        yield judged(kernel, asked.arch, self._specs)

    def _default_kernels(self, variant: str, ndim: int, dtypes: Sequence[str]) -> Iterator[KernelConfig]:
        rules = self._tables.default
        for row in rules.variants.get(cast(Variant, variant), []):
            for tile in (tile for tile in rules.tiles if row.pipeline not in tile.not_with):
                m, n, k = tile.tile
                for two_stage, dtype in product(row.two_stage, dtypes):
                    yield KernelConfig(
                        variant, dtype, rules.layout, ndim, row.pipeline, row.epilogue, "intrawave",
                        m, n, k * row.tile_k_factor, *tile.wave, *tile.warp_tile, *rules.vectors,
                        double_smem_buffer=row.double_smem_buffer, two_stage=two_stage,
                    )  # fmt: skip

    def _depthwise(self, kernels: Iterable[DepthwiseConfig], arch: str) -> Iterator[Enumerated]:
        # The architecture filter of the reference does not look at depthwise kernels.
        return (Enumerated(kernel, flags=flags.of(kernel, arch, self._specs)) for kernel in kernels)


@dataclass(frozen=True)
class _Asked:
    """What is enumerated at once, and in which order."""

    arch: str
    variants: tuple[str, ...]
    ndims: tuple[int, ...]
    dtypes: tuple[str, ...]

    def cells(self, variant: str) -> Iterator[Cell]:
        """The cells of a direction; the depthwise kernels are in none."""
        shapes = product(self.ndims, self.dtypes) if variant != DEPTHWISE else ()
        return (Cell(self.arch, variant, ndim, dtype) for ndim, dtype in shapes)


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
