"""Facts of the GPU targets: what may be compiled for them, read from one checked table.

``ArchSpecs.load`` reads ``config/arch_specs.json`` or what ``render_json`` made of it. A look-up never answers
with a default: an unknown arch, data type, pipeline or operator is a ``UserError`` that lists the known ones.
Names are looked up in any letter case.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self, TypeVar

from tileseer.core.errors import UserError
from tileseer.core.strict_json import Node

Triple = tuple[int, int, int]
"""Sizes along (m, n, k) of the GEMM."""
Names = tuple[str, str, str]
Value = TypeVar("Value")

WAVE_SIZES = (32, 64)
DEFAULT_LDS_ROW = "default"

_CPP_TYPE = re.compile(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*", re.ASCII)


@dataclass(frozen=True)
class DtypeInfo:
    """A data type: width of one element in bits, its C++ name, and what it is."""

    bits: int
    cpp_type: str
    description: str


@dataclass(frozen=True)
class FamilyInfo:
    """What the archs of one family share; ``isa_lineage`` tells the matrix instructions."""

    target_family: str
    isa_lineage: str


@dataclass(frozen=True)
class OperatorLimits:
    """Smallest block tile of an operator, and what its sides are multiples of; (m, n, k)."""

    min_tile: Triple
    alignment: Triple


@dataclass(frozen=True)
class ArchInfo:
    """One GPU target. Waves and warp tiles keep the order of the source: kernels are enumerated in it.

    ``waves`` are waves a block (m, n, k); the keys of the warp-tile tables read ``{a}_{b}_{accumulator}``.
    """

    family: str
    product: str
    wave_size: int
    lds_kib: int
    waves: tuple[Triple, ...]
    warp_tiles: Mapping[str, tuple[Triple, ...]]
    preshuffle_warp_tiles: Mapping[str, tuple[Triple, ...]]


@dataclass(frozen=True)
class TraitTable:
    """The names of the traits, and the (pipeline, epilogue, scheduler) that no kernel may combine."""

    pipelines: tuple[str, ...]
    epilogues: tuple[str, ...]
    schedulers: tuple[str, ...]
    preshuffle_pipelines: tuple[str, ...]
    excluded: tuple[Names, ...]


@dataclass(frozen=True)
class LdsTable:
    """LDS a block may use, by pipeline: bytes, or the share of the arch's LDS; ``default`` for the others."""

    limit_bytes: Mapping[str, int]
    budget_fraction: Mapping[str, float]


@dataclass(frozen=True)
class ArchSpecs:
    """The whole table; its mappings are not to be changed. All look-ups raise ``UserError`` on unknown names."""

    dtypes: Mapping[str, DtypeInfo]
    dtype_pairs: tuple[Names, ...]
    """(A, B, accumulator), sorted."""
    families: Mapping[str, FamilyInfo]
    archs: Mapping[str, ArchInfo]
    traits: TraitTable
    lds: LdsTable
    operators: Mapping[str, OperatorLimits]

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read and check a table; a ``UserError`` names file, JSON path, value and what is allowed."""
        return cls.from_node(Node.read(path))

    @classmethod
    def from_node(cls, root: Node) -> Self:
        """Check a table that has been read."""
        top = root.fields(*(field.name for field in fields(cls)))
        dtypes = {name: _dtype(node) for name, node in top["dtypes"].named().items()}
        pairs = _dtype_pairs(top["dtype_pairs"], dtypes)
        families = {name: _family(node) for name, node in top["families"].named().items()}
        traits = _traits(top["traits"])
        return cls(
            dtypes=dtypes,
            dtype_pairs=pairs,
            families=families,
            archs={name: _arch(node, families, dtypes, pairs) for name, node in top["archs"].named().items()},
            traits=traits,
            lds=_lds(top["lds"], traits.pipelines),
            operators={name: _operator(node) for name, node in top["operators"].named().items()},
        )

    def supported_archs(self) -> tuple[str, ...]:
        """Return the known archs, sorted."""
        return tuple(self.archs)

    def arch(self, arch: str) -> ArchInfo:
        """Return all that is known of one target."""
        return _pick(self.archs, arch, "arch")

    def family(self, arch: str) -> str:
        """Return the family, for example ``cdna3``."""
        return self.arch(arch).family

    def target_family(self, arch: str) -> str:
        """Return the compiler's family of targets, for example ``gfx9``."""
        return self.families[self.family(arch)].target_family

    def isa_lineage(self, arch: str) -> str:
        """Return ``cdna`` (MFMA) or ``rdna`` (WMMA)."""
        return self.families[self.family(arch)].isa_lineage

    def wave_size(self, arch: str) -> int:
        """Return the lanes of a wave."""
        return self.arch(arch).wave_size

    def lds_bytes(self, arch: str) -> int:
        """Return the local data share of a compute unit, bytes."""
        return self.arch(arch).lds_kib * 1024

    def waves(self, arch: str) -> tuple[Triple, ...]:
        """Return the allowed waves a block (m, n, k), in the order of enumeration."""
        return self.arch(arch).waves

    def warp_tiles(self, arch: str, dtype_a: str, dtype_b: str | None = None) -> tuple[Triple, ...]:
        """Return the matrix tiles (m, n, k) for A x B, in the order of enumeration; B is as A unless given.

        A legal pair for which the arch has no matrix instruction gives an empty tuple.
        """
        return self.arch(arch).warp_tiles.get(self._tile_key(dtype_a, dtype_b), ())

    def preshuffle_warp_tiles(self, arch: str, dtype_a: str, dtype_b: str | None = None) -> tuple[Triple, ...]:
        """Return the same for the GEMM with a preshuffled B; convolutions do not use it."""
        return self.arch(arch).preshuffle_warp_tiles.get(self._tile_key(dtype_a, dtype_b), ())

    def dtype_info(self, dtype: str) -> DtypeInfo:
        """Return width, C++ name and description of a data type."""
        return _pick(self.dtypes, dtype, "dtype")

    def element_size(self, dtype: str) -> float:
        """Return the bytes of one element; 0.5 for two in a byte."""
        return self.dtype_info(dtype).bits / 8

    def valid_dtype_combos(self) -> tuple[tuple[str, str], ...]:
        """Return the (A, B) that a matrix instruction may combine, sorted."""
        return tuple((a, b) for a, b, _ in self.dtype_pairs)

    def accumulator(self, dtype_a: str, dtype_b: str) -> str:
        """Return the data type that A x B accumulates in."""
        wanted = _known(self.dtypes, dtype_a, "dtype"), _known(self.dtypes, dtype_b, "dtype")
        for a, b, accumulator in self.dtype_pairs:
            if (a, b) == wanted:
                return accumulator
        legal = ", ".join(f"{a} x {b}" for a, b in self.valid_dtype_combos())
        raise UserError(f"no matrix instruction combines {wanted[0]} x {wanted[1]}; legal: {legal}")

    def lds_limit(self, pipeline: str, arch: str | None = None) -> int:
        """Return the LDS bytes a block may use (table of June 2026), at most what ``arch`` has if it is given.

        Compare it with one buffer of A and B: where a pipeline holds two, the table is halved already.
        """
        limit = self._lds_row(self.lds.limit_bytes, pipeline)
        return limit if arch is None else min(limit, self.lds_bytes(arch))

    def lds_budget(self, pipeline: str, arch: str) -> int:
        """Return the LDS bytes one buffer of A and B may use: floor(LDS of ``arch`` x share of the pipeline)."""
        return math.floor(self.lds_bytes(arch) * self._lds_row(self.lds.budget_fraction, pipeline))

    def is_trait_excluded(self, pipeline: str, epilogue: str, scheduler: str) -> bool:
        """Tell whether no kernel may combine the three."""
        traits = (
            _known(self.traits.pipelines, pipeline, "pipeline"),
            _known(self.traits.epilogues, epilogue, "epilogue"),
            _known(self.traits.schedulers, scheduler, "scheduler"),
        )
        return traits in self.traits.excluded

    def is_preshuffle(self, pipeline: str) -> bool:
        """Tell whether the pipeline wants a preshuffled B."""
        return _known(self.traits.pipelines, pipeline, "pipeline") in self.traits.preshuffle_pipelines

    def operator_limits(self, operator: str) -> OperatorLimits:
        """Return the tile limits of an operator; ``conv_*`` hold for 2D and 3D."""
        return _pick(self.operators, operator, "operator")

    def _tile_key(self, dtype_a: str, dtype_b: str | None) -> str:
        b = dtype_a if dtype_b is None else dtype_b
        return _tile_key(dtype_a.lower(), b.lower(), self.accumulator(dtype_a, b))

    def _lds_row(self, rows: Mapping[str, Value], pipeline: str) -> Value:
        name = _known(self.traits.pipelines, pipeline, "pipeline")
        return rows[name] if name in rows else rows[DEFAULT_LDS_ROW]


def render_json(specs: ArchSpecs) -> str:
    """Return ``specs`` as the one text that all equal tables have; ``ArchSpecs.load`` reads it back."""
    return json.dumps(asdict(specs), indent=2, sort_keys=True) + "\n"


def arch_digest(specs: ArchSpecs, arch: str) -> str:
    """Return the SHA-256 (hex) of what kernels of one arch depend on: its section and the shared tables.

    Other archs and families do not enter, nor do the texts for readers (``product``, ``description``).
    """
    name = _known(specs.archs, arch, "arch")
    content = asdict(specs)
    own = content.pop("archs")[name]
    family = content.pop("families")[own["family"]]
    for info in (own, *content["dtypes"].values()):
        for text in ("product", "description"):
            info.pop(text, None)
    canonical = json.dumps({"arch": name, "own": own, "family": family, **content}, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _known(table: Collection[str], name: str, kind: str) -> str:
    """Return ``name`` as ``table`` spells it."""
    if name.lower() not in table:
        raise UserError(f"unknown {kind} {name!r}; known: {', '.join(table)}")
    return name.lower()


def _pick(table: Mapping[str, Value], name: str, kind: str) -> Value:
    return table[_known(table, name, kind)]


def _tile_key(a: str, b: str, accumulator: str) -> str:
    return f"{a}_{b}_{accumulator}"


def _dtype(node: Node) -> DtypeInfo:
    row = node.fields("bits", "cpp_type", "description")
    cpp_type = row["cpp_type"].text()
    if not _CPP_TYPE.fullmatch(cpp_type):
        raise row["cpp_type"].error("a C++ type name such as ck_tile::half_t")
    return DtypeInfo(row["bits"].integer(), cpp_type, row["description"].text())


def _dtype_pairs(node: Node, dtypes: Collection[str]) -> tuple[Names, ...]:
    pairs = node.distinct(lambda row: _names(row, (dtypes, dtypes, dtypes), "[A, B, accumulator]"))
    operands = [pair[:2] for pair in pairs]
    for row, pair in zip(node.items(), operands, strict=True):
        if operands.count(pair) > 1:
            raise row.error("one accumulator for each pair of A and B")
    return tuple(sorted(pairs))


def _names(node: Node, choices: tuple[Collection[str], ...], form: str) -> Names:
    items = node.items()
    if len(items) != len(choices):
        raise node.error(form)
    first, second, third = (item.choice(allowed) for item, allowed in zip(items, choices, strict=True))
    return first, second, third


def _family(node: Node) -> FamilyInfo:
    row = node.fields("target_family", "isa_lineage")
    return FamilyInfo(row["target_family"].name(), row["isa_lineage"].name())


def _arch(node: Node, families: Collection[str], dtypes: Collection[str], pairs: tuple[Names, ...]) -> ArchInfo:
    row = node.fields(*(field.name for field in fields(ArchInfo)))
    if row["wave_size"].integer() not in WAVE_SIZES:
        raise row["wave_size"].error(f"one of {', '.join(map(str, WAVE_SIZES))}")
    return ArchInfo(
        family=row["family"].choice(families),
        product=row["product"].text(),
        wave_size=row["wave_size"].integer(),
        lds_kib=row["lds_kib"].integer(),
        waves=_triples(row["waves"]),
        warp_tiles=_tile_table(row["warp_tiles"], dtypes, pairs),
        preshuffle_warp_tiles=_tile_table(row["preshuffle_warp_tiles"], dtypes, pairs),
    )


def _triples(node: Node) -> tuple[Triple, ...]:
    triples = node.distinct(Node.triple)
    if not triples:
        raise node.error("at least one [m, n, k]")
    return triples


def _tile_table(node: Node, dtypes: Collection[str], pairs: tuple[Names, ...]) -> dict[str, tuple[Triple, ...]]:
    legal = {_tile_key(*pair) for pair in pairs}
    for key, row in node.members().items():
        if key not in legal:
            raise row.error(_key_advice(key, dtypes, pairs))
    return {key: _triples(row) for key, row in node.members().items()}


def _key_advice(key: str, dtypes: Collection[str], pairs: tuple[Names, ...]) -> str:
    """Say what ``key`` should be: a wrong accumulator, an unknown pair and an unknown dtype differ."""
    for a, b, accumulator in pairs:
        if key in (_tile_key(a, b, other) for other in dtypes):
            return f"the key {_tile_key(a, b, accumulator)}: {a} x {b} accumulates in {accumulator}"
    known = "|".join(map(re.escape, dtypes))
    if re.fullmatch(rf"(?:{known})_(?:{known})_(?:{known})", key):
        return f"the key of a legal pair: {', '.join(_tile_key(*pair) for pair in pairs)}"
    return f"a key {{a}}_{{b}}_{{accumulator}} of known dtypes: {', '.join(dtypes)}"


def _traits(node: Node) -> TraitTable:
    row = node.fields(*(field.name for field in fields(TraitTable)))
    pipelines, epilogues, schedulers = (
        tuple(sorted(row[kind].distinct(Node.name))) for kind in ("pipelines", "epilogues", "schedulers")
    )
    choices = pipelines, epilogues, schedulers
    preshuffle = row["preshuffle_pipelines"].distinct(lambda item: item.choice(pipelines))
    excluded = row["excluded"].distinct(lambda item: _names(item, choices, "[pipeline, epilogue, scheduler]"))
    return TraitTable(pipelines, epilogues, schedulers, tuple(sorted(preshuffle)), tuple(sorted(excluded)))


def _lds(node: Node, pipelines: tuple[str, ...]) -> LdsTable:
    row = node.fields("limit_bytes", "budget_fraction")
    limits, fractions = _lds_rows(row["limit_bytes"], pipelines), _lds_rows(row["budget_fraction"], pipelines)
    return LdsTable(
        limit_bytes={name: entry.integer() for name, entry in limits.items()},
        budget_fraction={name: entry.fraction() for name, entry in fractions.items()},
    )


def _lds_rows(node: Node, pipelines: tuple[str, ...]) -> dict[str, Node]:
    rows = node.members()
    allowed = (DEFAULT_LDS_ROW, *pipelines)
    for name, row in rows.items():
        if name not in allowed:
            raise row.error(f"a key that is one of {', '.join(allowed)}")
    if DEFAULT_LDS_ROW not in rows:
        raise node.error(f"a row {DEFAULT_LDS_ROW!r} for the pipelines without one")
    return rows


def _operator(node: Node) -> OperatorLimits:
    row = node.fields("min_tile", "alignment")
    return OperatorLimits(row["min_tile"].triple(), row["alignment"].triple())
