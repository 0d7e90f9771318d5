"""Strict JSON for hand-written tables: every refusal names file, JSON path, value and what is allowed.

Keys that begin with ``_`` are comments and are dropped. A key that stands twice is refused: the standard
reader would silently keep the last one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeGuard, TypeVar

from tileseer.core import seal
from tileseer.core.errors import UserError

MAX_INTEGER = 2**31 - 1
MAX_NAME = 24
MAX_TEXT = 80

_NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_NAME_RULE = f"a name of at most {MAX_NAME} lower-case letters, digits and underscores, a letter first"
_LONGEST_SHOWN = 80

Item = TypeVar("Item", bound=Hashable)


class _Pairs(list[tuple[str, object]]):
    """An object as it stands in the text, repeated keys included."""


@dataclass(frozen=True)
class Node:
    """A value and where it stands: ``source`` is the file, ``path`` the JSON path (empty at the top)."""

    source: str
    path: str
    value: object

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a UTF-8 file; one that is missing, unreadable or no strict JSON is a ``UserError``."""
        seal.check(Path(path))
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, source: str) -> Self:
        """Read ``text``; ``source`` says where it came from in errors."""
        try:
            return cls(source, "", _plain(json.loads(text, object_pairs_hook=_Pairs), source, ""))
        except json.JSONDecodeError as error:
            raise UserError(f"{source}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}") from error
        except RecursionError as error:
            raise UserError(f"{source}: nested too deeply; flatten it") from error
        except ValueError as error:
            # The reader's only other complaint is an integer of thousands of digits.
            raise UserError(f"{source}: a number is too long; use at most {MAX_INTEGER}") from error

    def error(self, expected: str) -> UserError:
        """Return the error that says what stands here and what was ``expected``."""
        return UserError(f"{self.source}: {self.path or 'top level'} is {_shown(self.value)}: expected {expected}")

    def members(self) -> dict[str, Node]:
        """Return the members of an object, sorted by key: their order in the text has no meaning."""
        if not isinstance(self.value, dict):
            raise self.error("an object")
        return {key: Node(self.source, _below(self.path, key), self.value[key]) for key in sorted(self.value)}

    def fields(self, *names: str) -> dict[str, Node]:
        """Return the members of an object that has exactly the keys ``names``."""
        members = self.members()
        for key, member in members.items():
            if key not in names:
                raise member.error(f"no such key; allowed here: {', '.join(names)}")
        for name in names:
            if name not in members:
                raise UserError(f"{self.source}: {_below(self.path, name)} is missing: add the key {name!r}")
        return members

    def named(self) -> dict[str, Node]:
        """Return the members of an object whose keys are free to choose, but for the form of a name."""
        members = self.members()
        for key, member in members.items():
            if len(key) > MAX_NAME or not _NAME.fullmatch(key):
                raise UserError(f"{self.source}: {member.path}: the key must be {_NAME_RULE}")
        return members

    def items(self) -> list[Node]:
        """Return the elements of a list."""
        if not isinstance(self.value, list):
            raise self.error("a list")
        return [Node(self.source, f"{self.path}[{index}]", item) for index, item in enumerate(self.value)]

    def distinct(self, read: Callable[[Node], Item]) -> tuple[Item, ...]:
        """Return the elements of a list in their order, each through ``read``; a repeated one is refused."""
        seen: dict[Item, None] = {}
        for node in self.items():
            item = read(node)
            if item in seen:
                raise node.error("no repetition of an earlier element: remove one of the two")
            seen[item] = None
        return tuple(seen)

    def integer(self) -> int:
        """Return a positive integer."""
        if not _is_positive_integer(self.value):
            raise self.error(f"a positive integer of at most {MAX_INTEGER}")
        return self.value

    def fraction(self) -> float:
        """Return a number above 0 and at most 1."""
        value = self.value
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
            raise self.error("a number above 0 and at most 1")
        return float(value)

    def triple(self) -> tuple[int, int, int]:
        """Return three positive integers (m, n, k)."""
        value = self.value
        if not isinstance(value, list) or len(value) != 3 or not all(map(_is_positive_integer, value)):
            raise self.error(f"three positive integers [m, n, k] of at most {MAX_INTEGER}")
        return value[0], value[1], value[2]

    def text(self) -> str:
        """Return a short line of printable characters."""
        if not isinstance(self.value, str) or not 0 < len(self.value) <= MAX_TEXT or not self.value.isprintable():
            raise self.error(f"one line of 1 to {MAX_TEXT} printable characters")
        return self.value

    def name(self) -> str:
        """Return a name."""
        if not isinstance(self.value, str) or len(self.value) > MAX_NAME or not _NAME.fullmatch(self.value):
            raise self.error(_NAME_RULE)
        return self.value

    def choice(self, allowed: Collection[str]) -> str:
        """Return a name that is one of ``allowed``."""
        if not isinstance(self.value, str) or self.value not in allowed:
            raise self.error(f"one of {', '.join(allowed)}")
        return self.value


def _plain(value: object, source: str, path: str) -> object:
    """Return ``value`` with its objects as dicts, free of comments."""
    if isinstance(value, _Pairs):
        members: dict[str, object] = {}
        for key, member in value:
            below = _below(path, key)
            if key in members:
                raise UserError(f"{source}: {below}: the key {_shown(key)} stands twice: remove one of the two")
            members[key] = _plain(member, source, below)
        return {key: member for key, member in members.items() if not key.startswith("_")}
    if isinstance(value, list):
        return [_plain(item, source, f"{path}[{index}]") for index, item in enumerate(value)]
    return value


def _below(path: str, key: str) -> str:
    if not re.fullmatch(r"\w+", key, re.ASCII):
        return f"{path}[{_shown(key)}]"
    return f"{path}.{key}" if path else key


def _is_positive_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_INTEGER


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."
