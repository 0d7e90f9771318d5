"""A problem as a line of a program that other people run, such as a library's own driver or profiler."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from tileseer.core.errors import UserError, shown
from tileseer.problems.problem import NO_DEPTH

Key = TypeVar("Key")
Value = TypeVar("Value")
DEPTH_DIMS = ("Di", "Z", "stride_d", "pad_d", "dilation_d")


class Line(NamedTuple):
    """What a line says."""

    directions: tuple[str, ...]
    dtype: str
    dims: dict[str, int]
    layout: str = ""
    """Of ``LAYOUTS`` or ``DEEP_LAYOUTS``; empty if the line names none."""
    assumed: str = ""
    """The flags that were missing, with the defaults of the program."""


class Form(NamedTuple):
    """A text by which users have problems: a line that calls a program of a library, or what one stores."""

    name: str
    """Of the program; empty for a text without it."""
    pattern: re.Pattern[str]
    """What stands before the words of the problem, in a text with others."""
    parse: Callable[[Sequence[str]], Line]
    """These words to what they say; ``UserError`` for no convolution that we have."""
    example: str
    """Such a text."""
    way: str = ""
    """How a program prints such texts, in words."""


def call_of(program: str) -> re.Pattern[str]:
    """Return the pattern of a call of a program, whatever its folder."""
    return re.compile(rf"(?<![\w-]){program}(?:\.exe)?[\"']?:?\s", re.IGNORECASE)


def check_depth(program: str, ndim: int, dims: Mapping[str, int]) -> None:
    """Raise a ``UserError`` for 3D tensors without depth, whose dimensions are those of a 2D problem."""
    flat = dict.fromkeys(DEPTH_DIMS, 1) | {"pad_d": 0}
    if ndim == 3 and flat == flat | {name: dims[name] for name in DEPTH_DIMS if name in dims}:
        raise UserError(f"--problem: {program}: {NO_DEPTH}; write it as a 2D one")


def known(where: str, word: Key, meanings: Mapping[Key, Value]) -> Value:
    """Return what a word means; a ``UserError`` says where it stood and which there are."""
    if word not in meanings:
        raise UserError(f"--problem: {where} {shown(word)}: use one of {', '.join(map(str, meanings))}")
    return meanings[word]


def number(where: str, text: str) -> int:
    """Return a whole number of at most 18 digits; ``UserError`` for another text."""
    if not re.fullmatch("[0-9]{1,18}", text):
        raise UserError(f"--problem: {where} {shown(text)}: this is no whole number")
    return int(text)
