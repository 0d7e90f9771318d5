"""Facts of the GPU targets: what may be compiled for them, read from one checked table.

``ArchSpecs.load`` reads ``config/arch_specs.json`` or what ``render_json`` made of it. A look-up never answers
with a default: an unknown arch, data type, pipeline or operator is a ``UserError`` that lists the known ones.
Names are looked up in any letter case.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, StringConstraints

from tileseer.core.documents import read_json
from tileseer.core.errors import UserError, shown
from tileseer.core.strict_tables import StrictModel, distinct, expected, validate_table, wrong
from tileseer.facts.names import arch_hint

Value = TypeVar("Value")
DEFAULT_LDS_ROW = "default"
MAX_INTEGER = 2**31 - 1
FROM_LIST = Field(strict=False)
"""For a tuple, which is a list in JSON."""


def _one_accumulator(pairs: tuple[Names, ...]) -> tuple[Names, ...]:
    if len({pair[:2] for pair in pairs}) < len(pairs):
        raise wrong("should be one accumulator for each pair of A and B")
    return pairs


def _has_default(rows: dict[str, Value]) -> dict[str, Value]:
    if DEFAULT_LDS_ROW not in rows:
        raise wrong(f"should be an object with a row {DEFAULT_LDS_ROW!r} for the pipelines without one")
    return rows


_SORTED = AfterValidator(lambda names: tuple(sorted(names)))
_Count = Annotated[int, Field(ge=1, le=MAX_INTEGER), expected(f"a positive integer of at most {MAX_INTEGER}")]
_Share = Annotated[float, Field(gt=0, le=1), expected("a number above 0 and at most 1")]
_Name = Annotated[
    str,
    StringConstraints(pattern="^[a-z][a-z0-9_]*$", max_length=24),
    expected("a name of at most 24 lower-case letters, digits and underscores, a letter first"),
]
_Text = Annotated[
    str,
    # Printable characters: no control, format or separator but the space.
    StringConstraints(pattern=r"^([^\p{C}\p{Z}]| ){1,80}$"),
    expected("one line of 1 to 80 printable characters"),
]
_CppType = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)*$", max_length=80),
    expected("a C++ type name such as ck_tile::half_t"),
]
Triple = Annotated[
    tuple[_Count, _Count, _Count], FROM_LIST, expected(f"three positive integers [m, n, k] of at most {MAX_INTEGER}")
]
"""Sizes along (m, n, k) of the GEMM."""
Names = tuple[str, str, str]
_Triples = Annotated[tuple[Triple, ...], FROM_LIST, Field(min_length=1), AfterValidator(distinct)]
_Tiles = dict[str, _Triples]
_Names = Annotated[tuple[_Name, ...], FROM_LIST, AfterValidator(distinct), _SORTED]


class DtypeInfo(StrictModel):
    """A data type: width of one element in bits, its C++ name, and what it is."""

    bits: _Count
    cpp_type: _CppType
    description: _Text


class FamilyInfo(StrictModel):
    """What the archs of one family share; ``isa_lineage`` decides the matrix instructions."""

    target_family: _Name
    isa_lineage: _Name


class OperatorLimits(StrictModel):
    """Smallest block tile of an operator, and what its sides are multiples of; (m, n, k)."""

    min_tile: Triple
    alignment: Triple


class ArchInfo(StrictModel):
    """One GPU target. Waves and warp tiles keep the order of the source: kernels are enumerated in it.

    ``waves`` are waves a block (m, n, k); the keys of the warp-tile tables read ``{a}_{b}_{accumulator}``.
    """

    family: str
    product: _Text
    wave_size: Annotated[Literal[32, 64], expected("a positive integer, one of 32, 64")]
    lds_kib: _Count
    waves: _Triples
    warp_tiles: _Tiles
    preshuffle_warp_tiles: _Tiles

    @property
    def lds_bytes(self) -> int:
        """Local data share of a compute unit, bytes."""
        return self.lds_kib * 1024


class TraitTable(StrictModel):
    """The names of the traits, and the (pipeline, epilogue, scheduler) that no kernel may combine."""

    pipelines: _Names
    epilogues: _Names
    schedulers: _Names
    preshuffle_pipelines: _Names
    excluded: Annotated[
        tuple[Annotated[Names, FROM_LIST, expected("a list [pipeline, epilogue, scheduler]")], ...],
        FROM_LIST,
        AfterValidator(distinct),
        _SORTED,
    ]


class LdsTable(StrictModel):
    """LDS a block may use, by pipeline: bytes, or the share of the arch's LDS; ``default`` for the others."""

    limit_bytes: Annotated[dict[str, _Count], AfterValidator(_has_default)]
    budget_fraction: Annotated[dict[str, _Share], AfterValidator(_has_default)]


class ArchSpecs(StrictModel):
    """The whole table; its mappings are not to be changed. All look-ups raise ``UserError`` on unknown names."""

    dtypes: dict[_Name, DtypeInfo]
    dtype_pairs: Annotated[
        tuple[Annotated[Names, FROM_LIST, expected("a list [A, B, accumulator]")], ...],
        FROM_LIST,
        AfterValidator(_one_accumulator),
        _SORTED,
    ]
    """(A, B, accumulator), sorted."""
    families: dict[_Name, FamilyInfo]
    archs: dict[_Name, ArchInfo]
    traits: TraitTable
    lds: LdsTable
    operators: dict[_Name, OperatorLimits]
    _where: str = ""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read and check a table; a ``UserError`` names file, place, value and what is allowed."""
        where = str(path)
        specs = validate_table(_without_comments(read_json(Path(path))), cls, where)
        for place, name, names in specs._references():
            if name not in names:
                raise UserError(f"{where}: {place}: should be one of {', '.join(names)}, but it is {shown(name)}")
        specs._where = where
        return specs

    def _references(self) -> Iterator[tuple[str, str, Collection[str]]]:
        """Yield each name that another table has to have: its place, the name, and the names of that table."""
        traits, pairs = self.traits, ["_".join(pair) for pair in self.dtype_pairs]
        yield from (("dtype_pairs", dtype, self.dtypes) for pair in self.dtype_pairs for dtype in pair)
        for arch, info in self.archs.items():
            yield f"archs.{arch}.family", info.family, self.families
            yield from ((f"archs.{arch}.warp_tiles", key, pairs) for key in info.warp_tiles)
            yield from ((f"archs.{arch}.preshuffle_warp_tiles", key, pairs) for key in info.preshuffle_warp_tiles)
        yield from (("traits.preshuffle_pipelines", name, traits.pipelines) for name in traits.preshuffle_pipelines)
        for pipeline, epilogue, scheduler in traits.excluded:
            yield "traits.excluded", pipeline, traits.pipelines
            yield "traits.excluded", epilogue, traits.epilogues
            yield "traits.excluded", scheduler, traits.schedulers
        rows = (DEFAULT_LDS_ROW, *traits.pipelines)
        yield from (("lds.limit_bytes", name, rows) for name in self.lds.limit_bytes)
        yield from (("lds.budget_fraction", name, rows) for name in self.lds.budget_fraction)

    def arch(self, arch: str) -> ArchInfo:
        """Return the facts of one target."""
        return self._pick(self.archs, arch, "arch")

    def warp_tiles(self, arch: str, dtype_a: str, dtype_b: str | None = None) -> tuple[Triple, ...]:
        """Return the matrix tiles (m, n, k) for A x B, in the order of enumeration; B is as A by default.

        A legal pair for which the arch has no matrix instruction gives an empty tuple.
        """
        a, b = dtype_a.lower(), (dtype_b or dtype_a).lower()
        return self.arch(arch).warp_tiles.get(f"{a}_{b}_{self.accumulator(a, b)}", ())

    def element_size(self, dtype: str) -> float:
        """Return the bytes of one element; 0.5 for two in a byte."""
        return self._pick(self.dtypes, dtype, "dtype").bits / 8

    def accumulator(self, dtype_a: str, dtype_b: str) -> str:
        """Return the data type that A x B accumulates in."""
        pair = self._known(self.dtypes, dtype_a, "dtype"), self._known(self.dtypes, dtype_b, "dtype")
        for a, b, accumulator in self.dtype_pairs:
            if (a, b) == pair:
                return accumulator
        legal = ", ".join(f"{a} x {b}" for a, b, _ in self.dtype_pairs)
        raise UserError(f"{self._where}: no matrix instruction combines {pair[0]} x {pair[1]}; legal: {legal}")

    def lds_limit(self, pipeline: str) -> int:
        """Return the LDS bytes a block may use (table of June 2026).

        Compare it with one buffer of A and B: where a pipeline holds two, the table is halved already.
        """
        return self._lds_row(self.lds.limit_bytes, pipeline)

    def lds_budget(self, pipeline: str, arch: str) -> int:
        """Return the LDS bytes one buffer of A and B may use: floor(LDS of ``arch`` x share of the pipeline)."""
        return math.floor(self.arch(arch).lds_bytes * self._lds_row(self.lds.budget_fraction, pipeline))

    def is_trait_excluded(self, pipeline: str, epilogue: str, scheduler: str) -> bool:
        """Return whether no kernel may combine pipeline, epilogue and scheduler."""
        traits = (
            self._known(self.traits.pipelines, pipeline, "pipeline"),
            self._known(self.traits.epilogues, epilogue, "epilogue"),
            self._known(self.traits.schedulers, scheduler, "scheduler"),
        )
        return traits in self.traits.excluded

    def operator_limits(self, operator: str) -> OperatorLimits:
        """Return the tile limits of an operator; ``conv_*`` hold for 2D and 3D."""
        return self._pick(self.operators, operator, "operator")

    def _lds_row(self, rows: Mapping[str, Value], pipeline: str) -> Value:
        name = self._known(self.traits.pipelines, pipeline, "pipeline")
        return rows[name] if name in rows else rows[DEFAULT_LDS_ROW]

    def _known(self, table: Collection[str], name: str, kind: str) -> str:
        """Return ``name`` as ``table`` spells it; a ``UserError`` lists the known names."""
        if name.lower() not in table:
            hint = arch_hint(name) if kind == "arch" else ""
            meant = f"; {hint}" if hint.endswith("?") else ""
            raise UserError(f"{self._where}: unknown {kind} {name!r}{meant}; known: {', '.join(table)}")
        return name.lower()

    def _pick(self, table: Mapping[str, Value], name: str, kind: str) -> Value:
        return table[self._known(table, name, kind)]


def _without_comments(value: Any) -> Any:
    """Return JSON with the keys of each object sorted, less those that begin with ``_``."""
    if isinstance(value, dict):
        return {key: _without_comments(value[key]) for key in sorted(value) if not key.startswith("_")}
    return [_without_comments(item) for item in value] if isinstance(value, list) else value


def render_json(specs: ArchSpecs) -> str:
    """Return ``specs`` as the one text that all equal tables have; ``ArchSpecs.load`` reads it back."""
    return json.dumps(specs.model_dump(), indent=2, sort_keys=True) + "\n"
