"""Lines of the builder's instance files, read by the places of ``config/rule_sets/builder.yaml``.

A line is ``CLASS<value,value,...>``; commas inside parentheses do not separate. A line that the table has no class
for, or that is longer or shorter than its class, is a ``UserError`` with file and line: it is never passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field

from tileseer.core.errors import UserError
from tileseer.core.strict_tables import StrictModel
from tileseer.facts.operations import Variant
from tileseer.libraries.ck_tile.upstream.named_tables import Class, Pipeline

Value = TypeVar("Value")
Name = Literal[
    "specialization", "block", "tile", "ak1", "bk1", "matrix", "repeats", "vectors", "scheduler", "version", "direct",
    "groups", "waves", "warp_tile", "pipeline", "split_image", "explicit_gemm", "double_smem_buffer", "wave_groups",
    "streamk", "reduction", "persistent", "depthwise", "padding",
]  # fmt: skip
Places = Annotated[list[int], BeforeValidator(lambda value: [value] if isinstance(value, int) else value)]

_TEMPLATE_INSTANCE = re.compile(r"(\w+)<(.*)>", re.ASCII | re.DOTALL)
_BOOL_OF_WORD = {"0": False, "1": True, "false": False, "true": True}
_SIZE = r"([1-9]\d*)"
_EXPLICIT: dict[str, tuple[str, str]] = {
    "vectors": ("VmemReadVec", rf"{_SIZE}x{_SIZE}xSeq\({_SIZE}(?:,\3)*\)"),
    "tile": ("BlkTile", f"{_SIZE}x{_SIZE}x{_SIZE}"),
    "matrix": ("WaveTile", f"{_SIZE}x{_SIZE}"),
    "repeats": ("WaveMap", f"{_SIZE}x{_SIZE}"),
    "version": ("BlkGemmPipelineVersion", r"(\w+)"),
    "scheduler": ("BlkGemmPipelineScheduler", r"(\w+)"),
    "block": ("BlkSize", _SIZE),
    "ak1": ("K1", f"{_SIZE}x{_SIZE}"),
}
"""Keys of a line of the form ``explicit``, and the form of their values."""


class Files(StrictModel):
    """Where the instance files are: ``paths`` of each direction below a folder of the checkout."""

    folder: str
    layouts: dict[int, str]
    paths: dict[str, list[str]]
    depthwise: str
    """All data types share it."""


class InstanceClass(StrictModel):
    """A class of instances: lengths of its list, and the places of its values there; ``options``: what it implies."""

    form: Literal["tiled", "explicit", "native", "depthwise"]
    variant: Variant
    fields: list[int] = Field(default_factory=list)
    places: dict[Name, Places] = Field(default_factory=dict)
    options: dict[str, bool | str] = Field(default_factory=dict)


class BuilderRules(StrictModel):
    """``builder.yaml``."""

    files: Files
    comment_signs: list[str]
    kinds: dict[str, InstanceClass]
    specializations: dict[str, str]
    schedulers: dict[str, str]
    pipelines: dict[str, Pipeline]
    lossy: dict[str, str]
    reductions: dict[str, str]
    matrix_k: dict[Class, dict[int, int]]


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
    """One instance, whose values are asked for by name; messages about it begin with ``where`` (file:line)."""

    def __init__(self, text: str, where: str, rules: BuilderRules) -> None:
        self.where = where
        match = _TEMPLATE_INSTANCE.fullmatch(text)
        if not match or match[1] not in rules.kinds:
            classes = ", ".join(rules.kinds)
            raise UserError(f"{where}: this is no instance of a known class: {text[:60]!r}; known: {classes}")
        self._name, self.kind = match[1], rules.kinds[match[1]]
        explicit = self.kind.form == "explicit"
        self._texts: dict[str, list[str]] = self._explicit(match[2]) if explicit else self._listed(match[2])

    def __contains__(self, name: str) -> bool:
        return name in self._texts

    def text(self, name: str, absent: str = "") -> str:
        """Return the value as it stands there."""
        return self._texts.get(name, [absent])[0]

    def word(self, name: str, table: Mapping[str, Value], absent: str = "") -> Value:
        """Return what the value stands for in a table."""
        text = self.text(name, absent)
        if text not in table:
            raise self.error(f"{name} {text!r} is unknown; known: {', '.join(table)}")
        return table[text]

    def flag(self, name: str) -> bool:
        """Return a yes or no; absent is no."""
        return self.word(name, _BOOL_OF_WORD, "false")

    def sizes(self, name: str, least: int = 1) -> tuple[int, ...]:
        """Return whole numbers; none if they are absent."""
        texts = self._texts.get(name, ())
        for text in texts:
            if not (text.isascii() and text.isdigit() and int(text) >= least):
                raise self.error(f"{name} is {text!r}; a number of at least {least} is expected")
        return tuple(map(int, texts))

    def size(self, name: str, absent: int = 0) -> int:
        """Return the smallest of some whole numbers."""
        return min(self.sizes(name), default=absent)

    def error(self, reason: str) -> UserError:
        """Return the error that says what is wrong with the line."""
        return UserError(f"{self.where}: {self._name}: {reason}")

    def _listed(self, body: str) -> dict[str, list[str]]:
        values = _split(body)
        if len(values) not in self.kind.fields:
            expected = " or ".join(map(str, self.kind.fields))
            raise self.error(f"{len(values)} values, {expected} expected: the format of the file has changed")
        places = self.kind.places.items()
        return {name: [values[at] for at in row] for name, row in places if max(row) < len(values)}

    def _explicit(self, body: str) -> dict[str, list[str]]:
        """Read the ``Key: value`` list behind the inner ``>``."""
        items = (item.partition(":") for item in _split(body.partition(">")[2]))
        values = {key.strip(): value.strip() for key, _, value in items}
        texts = {}
        for name, (key, form) in _EXPLICIT.items():
            match = re.fullmatch(form, values.get(key, ""), re.ASCII)
            if not match:
                raise self.error(f"{key} is {values.get(key)!r}; {form} is expected")
            texts[name] = list(match.groups())
        return texts


def _split(text: str) -> list[str]:
    """Split on commas outside parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text)]
