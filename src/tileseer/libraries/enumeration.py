"""What every library does with the combinations of a rule set: keep the legal ones, list the others with the reason."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast

from pydantic import Field

from tileseer.core.errors import UserError
from tileseer.core.strict_tables import StrictModel, read_yaml_table
from tileseer.facts.arch import ArchSpecs
from tileseer.facts.operations import VARIANTS, Variant
from tileseer.libraries.gemm_kernel import GemmKernel, Kernel
from tileseer.libraries.rules import BrokenRule, Rule, Rules, broken_rules
from tileseer.problems.operation import Operation

Count = Annotated[int, Field(ge=1)]
Triple = Annotated[list[Count], Field(min_length=3, max_length=3)]
NDIMS = (1, 2, 3)
DEPTHWISE = "forward_depthwise"
"""Asks for the depthwise kernels of a set alone; ``forward`` has them too, but not in ``BUILDER_SETS``."""
REQUESTED_VARIANTS = (*VARIANTS, DEPTHWISE)
LISTED_COLUMNS = ("kernel", "arch", "arch_filter", "arch_filter_reason", "flags", "flag_reasons", "built_as")
"""``arch_filter`` is ``pass`` or the rule that refuses; ``flags`` are separated by commas, their reasons by ``; ``.

``built_as`` is the name with the label of the true layout, under which the kernel is emitted.
"""
ALL = "all"
"""Word for every flag."""


class DirectionRows(StrictModel):
    """What the rows of a direction have in every library's sweeps."""

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
class Enumeration:
    """The legal kernels in name order, the refused ones, and the split-K values of each kernel."""

    kernels: list[Any]
    rejected: list[Rejected]
    split_k: list[int]
    unused_tiles: tuple[tuple[str, str], ...] = ()
    """Tiles of a file of which no combination is legal, each with what most of them break."""


class Sweep(StrictModel):
    """A rule-set file of a library: sizes crossed with options."""

    rules: ClassVar[Rules]
    """Of the library."""
    defects: ClassVar[Sequence[Rule]] = ()
    """Rules that kernels with known defects break, which are made where they are asked for."""

    @classmethod
    def read_file(cls, path: str | Path) -> Self:
        """Read a file and check it; a ``UserError`` names file and field."""
        return read_yaml_table(path, cls)

    @property
    def named_archs(self) -> Sequence[str]:
        """Archs that rows of the file are for."""
        return ()

    def rows(self, operation: Operation) -> DirectionRows:
        """Return what an operation is enumerated from; ``UserError`` if the file has nothing for it."""
        return DirectionRows()

    def combinations(self, arch: str, operation: Operation, ndims: Sequence[int]) -> Iterable[Kernel]:
        """Return what the file gives for an operation, legal or not."""
        raise NotImplementedError

    def enumerate(
        self,
        specs: ArchSpecs,
        arch: str,
        operation: Operation,
        ndims: Sequence[int],
        included: Collection[str] = (ALL,),
    ) -> Enumeration:
        """Enumerate the kernels for one arch and operation; none is corrected, illegal ones are refused.

        A kernel with a known defect is refused unless its flag is among ``included``.
        """
        for named in self.named_archs:
            specs.arch(named)
        kernels = list(self.combinations(arch, operation, ndims))
        rules = [*self.rules.legality, *(rule for rule in self.defects if not {rule.name, ALL} & set(included))]
        broken = broken_rules(rules, self.rules.parts(kernels, arch, specs)) if kernels else []
        found = sift(kernels, broken, self.rows(operation).split_k, f"on {arch} for {operation}")
        return replace(found, unused_tiles=_unused_tiles(kernels, broken))


def rejected_text(rejected: Iterable[Rejected]) -> str:
    """Return the refused combinations as tab-separated lines."""
    return "kernel\trule\treason\n" + "".join(f"{r.kernel}\t{r.rule}\t{r.reason}\n" for r in rejected)


def rows_of(variants: Mapping[Variant, Rows], operation: Operation) -> Rows:
    """Return what a direction is enumerated from; ``UserError`` if there is nothing, or no such split-K."""
    rows = variants.get(cast(Variant, operation.variant))
    if rows is None:
        raise NoKernel(f"the rule set has no entry variants.{operation.variant}, which operation {operation} needs")
    if operation.variant != "bwd_weight" and rows.split_k != [1]:
        raise UserError(f"variants.{operation.variant}.split_k is {rows.split_k}; only bwd_weight splits K: write [1]")
    return rows


def sift(
    kernels: Sequence[Kernel], broken: Iterable[Sequence[BrokenRule]], split_k: Iterable[int], where: str
) -> Enumeration:
    """Sort kernels that break no rule from the others; ``broken``: the rules that each breaks."""
    pairs = sorted(zip(kernels, broken, strict=True), key=lambda pair: pair[0].name)
    legal = {kernel.name: kernel for kernel, rules in pairs if not rules}
    rejected = {kernel.name: Rejected(kernel.name, *rules[0]) for kernel, rules in pairs if rules}
    if not legal:
        ((reason, count),) = Counter(one.reason for one in rejected.values()).most_common(1) or [("it has none", 0)]
        raise NoKernel(f"no kernel of the rule set is legal {where}, {count:,} of {len(rejected):,} since {reason}")
    return Enumeration(list(legal.values()), list(rejected.values()), sorted(set(split_k)))


def _unused_tiles(kernels: Sequence[Kernel], broken: Iterable[Sequence[BrokenRule]]) -> tuple[tuple[str, str], ...]:
    reasons: dict[str, Counter[str]] = {}
    for kernel, rules in zip(kernels, broken, strict=True):
        if not isinstance(kernel, GemmKernel):
            continue
        tile = f"{kernel.tile_m}x{kernel.tile_n}x{kernel.tile_k}"
        reasons.setdefault(tile, Counter())[rules[0].reason if rules else ""] += 1
    return tuple((tile, found.most_common(1)[0][0]) for tile, found in reasons.items() if "" not in found)


@dataclass(frozen=True)
class ListedKernel:
    """A kernel of a rule set; ``rule`` is the rule of the architecture filter that refuses it, else empty.

    ``flags`` say why the kernel is not built unless that is asked for.
    """

    kernel: Any
    rule: str = ""
    reason: str = ""
    flags: tuple[BrokenRule, ...] = ()

    @property
    def name(self) -> str:
        """The kernel's name."""
        return str(self.kernel.name)

    def is_built(self, included: Collection[str]) -> bool:
        """Return whether a build has the kernel when the flags ``included`` are asked for."""
        return ALL in included or all(flag.name in included for flag in self.flags)

    def record(self, arch: str) -> dict[str, Any]:
        """Return the columns of a list, ``LISTED_COLUMNS``, then the kind of the kernel and its fields."""
        return {
            "kernel": self.name,
            "arch": arch,
            "arch_filter": self.rule or "pass",
            "arch_filter_reason": self.reason,
            "flags": ",".join(flag.name for flag in self.flags),
            "flag_reasons": "; ".join(flag.reason for flag in self.flags),
            "built_as": self.kernel.built_as.name,
            "family": self.kernel.kind,
            "fields": asdict(self.kernel),
        }
