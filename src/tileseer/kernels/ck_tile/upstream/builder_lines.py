"""Lines of the builder's instance files, read by the places of ``config/rule_sets/builder.yaml``.

A line is ``CLASS<value,value,...>``; commas inside parentheses do not separate. A line that the table has no class
for, or that is longer or shorter than its class, is a ``UserError`` with file and line: it is never passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field

from tileseer.config.operations import Variant
from tileseer.core.errors import UserError
from tileseer.core.tables import StrictModel
from tileseer.gpus.arch import Triple
from tileseer.kernels.ck_tile.upstream.named_tables import Class, Pipeline

Value = TypeVar("Value")

_INSTANCE = re.compile(r"(\w+)<(.*)>", re.ASCII | re.DOTALL)
_FLAGS = {"0": False, "1": True, "false": False, "true": True}
_SIZE = r"([1-9]\d*)"
_EXPLICIT = {
    "VmemReadVec": rf"{_SIZE}x{_SIZE}xSeq\(([1-9]\d*(?:,[1-9]\d*)*)\)",
    "BlkTile": f"{_SIZE}x{_SIZE}x{_SIZE}",
    "WaveTile": f"{_SIZE}x{_SIZE}",
    "WaveMap": f"{_SIZE}x{_SIZE}",
    "BlkGemmPipelineVersion": r"(\w+)",
    "BlkGemmPipelineScheduler": r"(\w+)",
    "BlkSize": _SIZE,
    "K1": f"{_SIZE}x{_SIZE}",
}
"""Values by their keys in a line of the form ``explicit``."""


class DepthwiseFile(StrictModel):
    """The one file of depthwise instances of a set; all data types share it."""

    direction: str
    name: str


class Files(StrictModel):
    """Where the instance files lie below the checkout."""

    folder: str
    directions: dict[str, str]
    layouts: dict[int, str]
    names: dict[str, list[str]]
    depthwise: DepthwiseFile


class InstanceClass(StrictModel):
    """Where the values of a class of instances are; an absent place means that the class has no such value."""

    form: Literal["tiled", "explicit", "native", "depthwise"]
    variant: Variant
    fields: list[int] = Field(default_factory=list)
    specialization: int | None = None
    block: int | None = None
    tile: list[int] = Field(default_factory=list)
    ak1: int | None = None
    bk1: int | None = None
    matrix: list[int] = Field(default_factory=list)
    repeats: list[int] = Field(default_factory=list)
    vectors: list[int] = Field(default_factory=list)
    scheduler: int | None = None
    version: int | None = None
    direct: int | None = None
    groups: int | None = None
    waves: list[int] = Field(default_factory=list)
    warp_tile: list[int] = Field(default_factory=list)
    pipeline: int | None = None
    split_image: int | None = None
    explicit_gemm: int | None = None
    double_smem_buffer: int | None = None
    wave_groups: int | None = None
    streamk: list[int] = Field(default_factory=list)
    options: dict[str, bool] = Field(default_factory=dict)
    """What the class implies."""


class BuilderRules(StrictModel):
    """``builder.yaml``."""

    files: Files
    comment_signs: list[str]
    kinds: dict[str, InstanceClass]
    written: dict[int, str]
    """Text of the places of a native line that say nothing of the kernel."""
    specializations: dict[str, str]
    schedulers: dict[str, str]
    versions: dict[str, Pipeline]
    direct_versions: dict[str, Pipeline]
    pipelines: dict[str, Pipeline]
    lossy: dict[str, str]
    streamk: dict[int, str]
    matrix_k: dict[Class, dict[int, int]]


@dataclass(frozen=True)
class Instance:
    """What a line says of an implicit-GEMM kernel, in our words; ``waves`` and ``warp_tile`` in native lines only.

    ``options`` are other fields of ``KernelConfig``, ``block`` is threads, ``ak1`` elements of A along k that a matrix
    instruction takes at least; ``lossy`` names the pipeline that the line asks for where the reference builds another.
    """

    tile: Triple
    vectors: Triple
    pipeline: str
    scheduler: str
    options: Mapping[str, Any]
    block: int = 0
    ak1: int = 0
    matrix: tuple[int, ...] = ()
    repeats: tuple[int, ...] = ()
    waves: tuple[int, ...] = ()
    warp_tile: tuple[int, ...] = ()
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
    """One instance; messages about it begin with ``where`` (file:line)."""

    def __init__(self, text: str, where: str, rules: BuilderRules) -> None:
        self.where = where
        self._rules = rules
        match = _INSTANCE.fullmatch(text)
        if not match or match[1] not in rules.kinds:
            classes = ", ".join(rules.kinds)
            raise UserError(f"{where}: this is no instance of a known class: {text[:60]!r}; known: {classes}")
        self._name, self._body = match[1], match[2]
        self.kind: InstanceClass = rules.kinds[self._name]
        self._values = _split(self._body)
        if self.kind.fields and len(self._values) not in self.kind.fields:
            expected = " or ".join(map(str, self.kind.fields))
            raise self._error(f"{len(self._values)} values, {expected} expected: the format of the file has changed")

    def depthwise(self) -> tuple[int, ...]:
        """The twelve numbers of a depthwise line."""
        return tuple(self._converted(place, int, "a size") for place in range(len(self._values)))

    def instance(self) -> Instance:
        """Content of an implicit-GEMM line."""
        return self._explicit() if self.kind.form == "explicit" else self._listed()

    def _listed(self) -> Instance:
        kind, rules = self.kind, self._rules
        if kind.bk1 is not None and self._text(kind.bk1) != self._text(kind.ak1):
            raise self._error(f"AK1 is {self._text(kind.ak1)} and BK1 {self._text(kind.bk1)}; they have to be equal")
        if kind.form == "native":
            word = self._text(kind.pipeline)
            pipeline, lossy = self._word("pipeline", word, rules.pipelines), rules.lossy.get(word, "")
            double_buffer = self._flag(kind.double_smem_buffer)
        else:
            pipeline, lossy = self._version(self._text(kind.version, "v1"), self._flag(kind.direct))
            double_buffer = pipeline == "compv4"
        m, n, k, *more = self._sizes(kind.tile)
        vec_a, vec_b, vec_c = self._sizes(kind.vectors)
        return Instance(
            (m, n, k * more[0] if more else k),
            (vec_a, vec_b, vec_c),
            pipeline,
            self._word("scheduler", self._text(kind.scheduler, "Intrawave"), rules.schedulers),
            {
                "specialization": self._word("specialization", self._text(kind.specialization), rules.specializations),
                "num_groups_to_merge": self._size(kind.groups, 1),
                "num_wave_groups": self._size(kind.wave_groups, 1),
                "double_smem_buffer": double_buffer,
                "explicit_gemm": self._flag(kind.explicit_gemm),
                "split_image": self._flag(kind.split_image),
                **kind.options,
                **self._streamk(),
            },
            block=self._size(kind.block, 0),
            ak1=self._size(kind.ak1, 0),
            matrix=self._sizes(kind.matrix),
            repeats=self._sizes(kind.repeats),
            waves=self._sizes(kind.waves),
            warp_tile=self._sizes(kind.warp_tile),
            lossy=lossy,
        )

    def _streamk(self) -> dict[str, Any]:
        places = self.kind.streamk
        if not places or places[-1] >= len(self._values) or not self._flag(places[0]):
            return {}
        strategy = self._word("stream-K strategy", self._size(places[1], 0), self._rules.streamk)
        return {"streamk": strategy, "streamk_persistent": self._flag(places[2])}

    def _explicit(self) -> Instance:
        """Read the ``Key: value`` list behind the inner ``>``."""
        items = (item.partition(":") for item in _split(self._body.partition(">")[2]))
        texts = {key.strip(): value.strip() for key, _, value in items}
        values = {}
        for key, form in _EXPLICIT.items():
            match = re.fullmatch(form, texts.get(key, ""), re.ASCII)
            if not match:
                raise self._error(f"{key} is {texts.get(key)!r}; {form} is expected")
            values[key] = match.groups()
        vec_a, vec_b, widths = values["VmemReadVec"]
        stores = {int(width) for width in widths.split(",")}
        if len(stores) != 1:
            raise self._error(f"VmemReadVec stores with several widths {sorted(stores)}; one is expected")
        pipeline, lossy = self._version(values["BlkGemmPipelineVersion"][0], direct=False)
        m, n, k = map(int, values["BlkTile"])
        return Instance(
            (m, n, k),
            (int(vec_a), int(vec_b), stores.pop()),
            pipeline,
            self._word("scheduler", values["BlkGemmPipelineScheduler"][0], self._rules.schedulers),
            {
                "specialization": "filter1x1_stride1_pad0",
                "double_smem_buffer": pipeline == "compv4",
                "explicit_gemm": True,
            },
            block=int(values["BlkSize"][0]),
            ak1=min(map(int, values["K1"])),
            matrix=tuple(map(int, values["WaveTile"])),
            repeats=tuple(map(int, values["WaveMap"])),
            lossy=lossy,
        )

    def _version(self, version: str, direct: bool) -> tuple[str, str]:
        if not direct:
            return self._word("version", version, self._rules.versions), ""
        lossy = self._rules.lossy.get(f"direct {version}", "")
        return self._word("direct-load version", version, self._rules.direct_versions), lossy

    def _word(self, what: str, word: Any, table: Mapping[Any, Value]) -> Value:
        if word not in table:
            raise self._error(f"{what} {word!r} is unknown; known: {', '.join(map(str, table))}")
        return table[word]

    def _text(self, place: int | None, absent: str = "") -> str:
        return absent if place is None else self._values[place]

    def _size(self, place: int | None, absent: int) -> int:
        return absent if place is None else self._converted(place, _positive, "a number of at least 1")

    def _sizes(self, places: list[int]) -> tuple[int, ...]:
        return tuple(self._size(place, 0) for place in places)

    def _flag(self, place: int | None) -> bool:
        return place is not None and self._converted(place, _FLAGS.__getitem__, "one of 0, 1, false, true")

    def _converted(self, place: int, convert: Callable[[str], Value], expected: str) -> Value:
        text = self._values[place]
        try:
            return convert(text)
        except (ValueError, KeyError) as error:
            raise self._error(f"value {place} is {text!r}; {expected} is expected") from error

    def _error(self, reason: str) -> UserError:
        return UserError(f"{self.where}: {self._name}: {reason}")


def _split(text: str) -> list[str]:
    """Split on commas outside parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text)]


def _positive(text: str) -> int:
    if not re.fullmatch(r"0*[1-9]\d*", text, re.ASCII):
        raise ValueError(text)
    return int(text)
