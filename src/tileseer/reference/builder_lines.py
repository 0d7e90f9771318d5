"""Lines of the builder's instance files, read by the places of ``config/rule_sets/builder.yaml``.

A line is ``CLASS<value,value,...>``; commas inside parentheses do not separate. A line that the table has no class
for, or that is longer or shorter than its class, is a ``UserError`` with file and line: it is never passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tileseer.core.errors import UserError
from tileseer.gpu.arch import Triple
from tileseer.reference.builder_tables import BuilderRules, Kind

Value = TypeVar("Value")

EXPLICIT_SPECIALIZATION = "filter1x1_stride1_pad0"
_INSTANCE = re.compile(r"(\w+)<(.*)>", re.ASCII | re.DOTALL)
_FLAGS = {"0": False, "1": True, "false": False, "true": True}


@dataclass(frozen=True)
class Instance:
    """What a line says of an implicit-GEMM kernel, in our words; ``waves`` and ``warp_tile`` in native lines only.

    ``block`` is threads, ``ak1`` elements of A along k that a matrix instruction takes at least; ``lossy`` names the
    pipeline that the line asks for where the reference builds another one.
    """

    variant: str
    specialization: str
    tile: Triple
    vectors: Triple
    pipeline: str
    scheduler: str
    groups: int = 1
    block: int = 0
    ak1: int = 0
    matrix: tuple[int, int] = (0, 0)
    repeats: tuple[int, int] = (0, 0)
    waves: Triple | None = None
    warp_tile: Triple | None = None
    double_smem_buffer: bool = False
    split_image: bool = False
    explicit_gemm: bool = False
    two_stage: bool = False
    wave_groups: int = 1
    streamk: str = "none"
    streamk_persistent: bool = False
    native: bool = False
    lossy: str = ""


def read_lines(path: Path, rules: BuilderRules) -> Iterator[Line]:
    """Yield the instances of a file in order; a missing file and a foreign line are a ``UserError``."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(
            f"{path}: there is no such instance file; the rule sets profiler and tests are read from a Composable "
            "Kernel checkout: give its top folder as ck.root (--ck-root DIR), of a state that has this file"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as text: {error}") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not any(sign in line for sign in rules.comment_signs):
            yield Line(line.strip(), f"{path}:{number}", rules)


class Line:
    """One instance; what is wrong with it is told with ``where`` (file:line)."""

    def __init__(self, text: str, where: str, rules: BuilderRules) -> None:
        """Split the line and find its class."""
        self.where = where
        self._rules = rules
        match = _INSTANCE.fullmatch(text)
        if not match or match[1] not in rules.kinds:
            known = ", ".join(rules.kinds)
            raise UserError(f"{where}: this is no instance of a known class: {text[:60]!r}; known: {known}")
        self.kind: Kind = rules.kinds[match[1]]
        self._name = match[1]
        self._body = match[2]
        self._values = _split(self._body)
        if self.kind.fields and len(self._values) not in self.kind.fields:
            expected = " or ".join(map(str, self.kind.fields))
            raise self._error(f"{len(self._values)} values, {expected} expected: the format of the file has changed")

    def depthwise(self) -> tuple[int, ...]:
        """The twelve numbers of a depthwise line."""
        return tuple(self._converted(place, _size_or_zero, "a size") for place in range(len(self._values)))

    def instance(self) -> Instance:
        """Content of an implicit-GEMM line."""
        return self._explicit() if self.kind.form == "explicit" else self._listed()

    def _listed(self) -> Instance:
        kind, rules = self.kind, self._rules
        if kind.bk1 is not None and self._at(kind.bk1) != self._at(kind.ak1):
            raise self._error(f"AK1 is {self._at(kind.ak1)} and BK1 {self._at(kind.bk1)}; they have to be equal")
        if kind.form == "native":
            word = self._at(kind.pipeline)
            pipeline, lossy = self._word("pipeline", word, rules.pipelines), rules.lossy.get(word, "")
            double_buffer = self._flag(kind.double_smem_buffer)
        else:
            version = self._at(kind.version) if kind.version is not None else "v1"
            pipeline, lossy = self._version(version, self._flag(kind.direct))
            double_buffer = pipeline == "compv4"
        scheduler = self._at(kind.scheduler) if kind.scheduler is not None else "Intrawave"
        tile = self._numbers(kind.tile)
        streamk, persistent = self._streamk()
        return Instance(
            variant=kind.variant,
            specialization=self._word("specialization", self._at(kind.specialization), rules.specializations),
            tile=(tile[0], tile[1], tile[2] * (tile[3] if len(tile) > 3 else 1)),
            vectors=_triple(self._numbers(kind.vectors)),
            pipeline=pipeline,
            scheduler=self._word("scheduler", scheduler, rules.schedulers),
            groups=self._number(kind.groups) if kind.groups is not None else 1,
            block=self._number(kind.block) if kind.block is not None else 0,
            ak1=self._number(kind.ak1) if kind.ak1 is not None else 0,
            matrix=_pair(self._numbers(kind.matrix) or [0, 0]),
            repeats=_pair(self._numbers(kind.repeats) or [0, 0]),
            waves=_triple(self._numbers(kind.waves)) if kind.waves else None,
            warp_tile=_triple(self._numbers(kind.warp_tile)) if kind.warp_tile else None,
            double_smem_buffer=double_buffer,
            split_image=kind.options.split_image or self._flag(kind.split_image),
            explicit_gemm=self._flag(kind.explicit_gemm),
            two_stage=kind.options.two_stage,
            wave_groups=self._number(kind.wave_groups) if kind.wave_groups is not None else 1,
            streamk=streamk,
            streamk_persistent=persistent,
            native=kind.form == "native",
            lossy=lossy,
        )

    def _streamk(self) -> tuple[str, bool]:
        places = self.kind.streamk
        if places is None or places[-1] >= len(self._values) or not self._flag(places[0]):
            return "none", False
        strategy = self._number(places[1])
        return self._word("stream-K strategy", strategy, self._rules.streamk), self._flag(places[2])

    def _explicit(self) -> Instance:
        """Read the ``Key: value`` list behind the inner ``>``."""
        texts = {}
        for item in _split(self._body.partition(">")[2]):
            key, colon, value = item.partition(":")
            if not colon:
                raise self._error(f"{item!r} is no KEY: VALUE")
            texts[key.strip()] = value.strip()
        vectors = self._sizes(texts, "VmemReadVec", r"(\d+)x(\d+)xSeq\((\d+(?:,\d+)*)\)")
        stores = {int(width) for width in vectors[2].split(",")}
        if len(stores) != 1:
            raise self._error(f"VmemReadVec stores with several widths {sorted(stores)}; one is expected")
        tile = self._sizes(texts, "BlkTile", r"(\d+)x(\d+)x(\d+)")
        matrix = self._sizes(texts, "WaveTile", r"(\d+)x(\d+)")
        repeats = self._sizes(texts, "WaveMap", r"(\d+)x(\d+)")
        pipeline, lossy = self._version(self._sizes(texts, "BlkGemmPipelineVersion", r"(\w+)")[0], direct=False)
        scheduler = self._sizes(texts, "BlkGemmPipelineScheduler", r"(\w+)")[0]
        return Instance(
            variant=self.kind.variant,
            specialization=EXPLICIT_SPECIALIZATION,
            tile=_triple([int(size) for size in tile]),
            vectors=(int(vectors[0]), int(vectors[1]), stores.pop()),
            pipeline=pipeline,
            scheduler=self._word("scheduler", scheduler, self._rules.schedulers),
            block=int(self._sizes(texts, "BlkSize", r"(\d+)")[0]),
            ak1=min(int(size) for size in self._sizes(texts, "K1", r"(\d+)x(\d+)")),
            matrix=_pair([int(size) for size in matrix]),
            repeats=_pair([int(size) for size in repeats]),
            double_smem_buffer=pipeline == "compv4",
            explicit_gemm=True,
            lossy=lossy,
        )

    def _sizes(self, texts: dict[str, str], key: str, form: str) -> tuple[str, ...]:
        match = re.fullmatch(form.replace(r"\d+", r"[1-9]\d*"), texts.get(key, ""), re.ASCII)
        if not match:
            raise self._error(f"{key} is {texts.get(key)!r}; {form} is expected")
        return match.groups()

    def _version(self, version: str, direct: bool) -> tuple[str, str]:
        table = self._rules.direct_versions if direct else self._rules.versions
        what = "direct-load version" if direct else "version"
        lossy = self._rules.lossy.get(f"direct {version}", "") if direct else ""
        return self._word(what, version, table), lossy

    def _word(self, what: str, word: str | int, table: dict[str, Value] | dict[int, Value]) -> Value:
        if word not in table:
            raise self._error(f"{what} {word!r} is unknown; known: {', '.join(map(str, table))}")
        return table[word]  # type: ignore[index]

    def _at(self, place: int | None) -> str:
        assert place is not None, "the table's form says which places there are"
        if place >= len(self._values):
            raise self._error(f"place {place} of the table is behind the last of {len(self._values)} values")
        return self._values[place]

    def _number(self, place: int | None) -> int:
        return self._converted(place, _size, "a number of at least 1")

    def _numbers(self, places: list[int] | None) -> list[int]:
        return [self._number(place) for place in places or []]

    def _flag(self, place: int | None) -> bool:
        return place is not None and self._converted(place, _FLAGS.__getitem__, "one of 0, 1, false, true")

    def _converted(self, place: int | None, convert: Callable[[str], Value], expected: str) -> Value:
        text = self._at(place)
        try:
            return convert(text)
        except (ValueError, KeyError) as error:
            raise self._error(f"value {place} is {text!r}; {expected} is expected") from error

    def _error(self, reason: str) -> UserError:
        return UserError(f"{self.where}: {self._name}: {reason}")


def _split(text: str) -> list[str]:
    """Split on commas outside parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text)]


def _size_or_zero(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(text)
    return int(text)


def _size(text: str) -> int:
    size = _size_or_zero(text)
    if size < 1:
        raise ValueError(text)
    return size


def _triple(values: list[int]) -> Triple:
    return values[0], values[1], values[2]


def _pair(values: list[int]) -> tuple[int, int]:
    return values[0], values[1]
