"""Lines of the builder's instance files, read by the places of ``config/rule_sets/builder.yaml``.

A line is ``CLASS<value,value,...>``; commas inside parentheses do not separate. A line that the table has no class
for, or that is longer or shorter than its class, is a ``UserError`` with file and line: it is never passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from tileseer.conv.operation import Variant
from tileseer.core.errors import UserError
from tileseer.core.tables import Table
from tileseer.families.ck_tile.kernel import SPECIALIZATIONS
from tileseer.gpu.arch import Triple
from tileseer.reference.named_tables import Class, Pipeline

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

Place = Annotated[int, Field(ge=0)]
Places3 = Annotated[list[Place], Field(min_length=3, max_length=3)]
Places2 = Annotated[list[Place], Field(min_length=2, max_length=2)]


class DepthwiseFile(Table):
    """The one file of depthwise instances of a set; all data types share it."""

    direction: str
    name: str


class Files(Table):
    """Where the instance files lie below the checkout."""

    folder: str
    directions: dict[Variant, str]
    layouts: dict[Literal[2, 3], str]
    names: dict[Variant, list[str]]
    depthwise: DepthwiseFile

    @model_validator(mode="after")
    def _names_can_be_filled_in(self) -> Self:
        for name in (name for names in self.names.values() for name in names):
            try:
                name.format(layout="", dtype="")
            except (KeyError, IndexError, ValueError) as error:
                raise ValueError(f"{name!r}: only {{layout}} and {{dtype}} can be filled in") from error
        return self


class Kind(Table):
    """Where the values of one class of instances stand; an absent place means that the class has no such value."""

    form: Literal["tiled", "explicit", "native", "depthwise"]
    variant: Variant
    fields: list[Annotated[int, Field(ge=1)]] = Field(default_factory=list)
    specialization: Place | None = None
    block: Place | None = None
    tile: Annotated[list[Place], Field(min_length=3, max_length=4)] | None = None
    ak1: Place | None = None
    bk1: Place | None = None
    matrix: Places2 | None = None
    repeats: Places2 | None = None
    vectors: Places3 | None = None
    scheduler: Place | None = None
    version: Place | None = None
    direct: Place | None = None
    groups: Place | None = None
    waves: Places3 | None = None
    warp_tile: Places3 | None = None
    pipeline: Place | None = None
    split_image: Place | None = None
    explicit_gemm: Place | None = None
    double_smem_buffer: Place | None = None
    wave_groups: Place | None = None
    streamk: Places3 | None = None
    options: Mapping[Literal["split_image", "two_stage"], bool] = Field(default_factory=dict)
    """What the class implies."""

    @model_validator(mode="after")
    def _form_is_complete(self) -> Self:
        needed = {
            "tiled": ("specialization", "block", "tile", "ak1", "matrix", "repeats", "vectors"),
            "native": ("specialization", "tile", "waves", "warp_tile", "vectors", "pipeline", "scheduler"),
        }
        missing = [field for field in needed.get(self.form, ()) if getattr(self, field) is None]
        if missing:
            raise ValueError(f"the form {self.form} needs {', '.join(missing)}")
        if self.form != "explicit" and not self.fields:
            raise ValueError("fields is required: how long the list between < and > is")
        return self


class BuilderRules(Table):
    """``builder.yaml``."""

    files: Files
    comment_signs: list[str]
    kinds: dict[str, Kind]
    written: dict[Place, str]
    """Text of the places of a native line that say nothing of the kernel."""
    specializations: dict[str, Literal[SPECIALIZATIONS]]  # type: ignore[valid-type]
    schedulers: dict[str, Literal["intrawave", "interwave"]]
    versions: dict[str, Pipeline]
    direct_versions: dict[str, Pipeline]
    pipelines: dict[str, Pipeline]
    lossy: dict[str, str]
    streamk: dict[int, Literal["tree", "linear"]]
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
    matrix: tuple[int, int] = (0, 0)
    repeats: tuple[int, int] = (0, 0)
    waves: Triple | None = None
    warp_tile: Triple | None = None
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
            pipeline, lossy = self._version(self._at(kind.version, "v1"), self._flag(kind.direct))
            double_buffer = pipeline == "compv4"
        m, n, k, *more = self._sizes(kind.tile)
        return Instance(
            (m, n, k * more[0] if more else k),
            self._sizes(kind.vectors),
            pipeline,
            self._word("scheduler", self._at(kind.scheduler, "Intrawave"), rules.schedulers),
            {
                "specialization": self._word("specialization", self._at(kind.specialization), rules.specializations),
                "num_groups_to_merge": self._sizes(kind.groups, 1),
                "num_wave_groups": self._sizes(kind.wave_groups, 1),
                "double_smem_buffer": double_buffer,
                "explicit_gemm": self._flag(kind.explicit_gemm),
                "split_image": self._flag(kind.split_image),
                **{str(name): value for name, value in kind.options.items()},
                **self._streamk(),
            },
            block=self._sizes(kind.block, 0),
            ak1=self._sizes(kind.ak1, 0),
            matrix=self._sizes(kind.matrix, (0, 0)),
            repeats=self._sizes(kind.repeats, (0, 0)),
            waves=self._sizes(kind.waves),
            warp_tile=self._sizes(kind.warp_tile),
            lossy=lossy,
        )

    def _streamk(self) -> dict[str, Any]:
        places = self.kind.streamk
        if places is None or places[-1] >= len(self._values) or not self._flag(places[0]):
            return {}
        strategy = self._word("stream-K strategy", self._sizes(places[1]), self._rules.streamk)
        return {"streamk": strategy, "streamk_persistent": self._flag(places[2])}

    def _explicit(self) -> Instance:
        """Read the ``Key: value`` list behind the inner ``>``."""
        texts = {}
        for item in _split(self._body.partition(">")[2]):
            key, colon, value = item.partition(":")
            if not colon:
                raise self._error(f"{item!r} is no KEY: VALUE")
            texts[key.strip()] = value.strip()
        found = {}
        for key, form in _EXPLICIT.items():
            match = re.fullmatch(form, texts.get(key, ""), re.ASCII)
            if not match:
                raise self._error(f"{key} is {texts.get(key)!r}; {form} is expected")
            found[key] = match.groups()
        vec_a, vec_b, widths = found["VmemReadVec"]
        stores = {int(width) for width in widths.split(",")}
        if len(stores) != 1:
            raise self._error(f"VmemReadVec stores with several widths {sorted(stores)}; one is expected")
        pipeline, lossy = self._version(found["BlkGemmPipelineVersion"][0], direct=False)
        m, n, k = map(int, found["BlkTile"])
        matrix_m, matrix_n, repeats_m, repeats_n = map(int, found["WaveTile"] + found["WaveMap"])
        return Instance(
            (m, n, k),
            (int(vec_a), int(vec_b), stores.pop()),
            pipeline,
            self._word("scheduler", found["BlkGemmPipelineScheduler"][0], self._rules.schedulers),
            {
                "specialization": "filter1x1_stride1_pad0",
                "double_smem_buffer": pipeline == "compv4",
                "explicit_gemm": True,
            },
            block=int(found["BlkSize"][0]),
            ak1=min(map(int, found["K1"])),
            matrix=(matrix_m, matrix_n),
            repeats=(repeats_m, repeats_n),
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

    def _at(self, place: int | None, absent: str = "") -> str:
        if place is None:
            return absent
        if place >= len(self._values):
            raise self._error(f"place {place} of the table is behind the last of {len(self._values)} values")
        return self._values[place]

    def _sizes(self, places: int | list[int] | None, absent: Any = None) -> Any:
        """The number at a place, or those at several."""
        if places is None:
            return absent
        if isinstance(places, list):
            return tuple(self._sizes(place) for place in places)
        return self._converted(places, _size, "a number of at least 1")

    def _flag(self, place: int | None) -> bool:
        return place is not None and self._converted(place, _FLAGS.__getitem__, "one of 0, 1, false, true")

    def _converted(self, place: int, convert: Callable[[str], Value], expected: str) -> Value:
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
