"""Grammars of parts in a fixed order: a message about a text that breaks one has the place and what was expected."""

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A part of a text: its name for readers, and its regular expression."""

    what: str
    pattern: str
    optional: bool = False


def compiled(parts: Sequence[Part]) -> re.Pattern[str]:
    """Regular expression of all parts in a row."""
    return re.compile("".join(f"(?:{part.pattern})?" if part.optional else part.pattern for part in parts), re.ASCII)


def broken(text: str, parts: Sequence[Part]) -> str:
    """Message about the place where ``text`` leaves the grammar, which it must do, with a caret below it."""
    position = 0
    for part in parts:
        match = re.compile(part.pattern, re.ASCII).match(text, position)
        if match:
            position = match.end()
        elif not part.optional:
            return _told(text, position, f"{part.what} is expected")
    behind = next((part.what for part in parts if part.optional and re.match(part.pattern, text[position:])), "")
    reason = f"{behind} stands behind a part that follows it" if behind else "no further part is known here"
    return _told(text, position, reason)


def _told(text: str, position: int, reason: str) -> str:
    found = re.match(r"_?[^_]*", text[position:])
    word = found[0] if found else ""
    what = f"found {word!r}" if word else "the name ends"
    # A caret needs characters that are one column wide.
    shown = "".join(character if character.isascii() and character.isprintable() else "?" for character in text)
    return f"at character {position + 1} {reason}, {what}\n  {shown}\n  {' ' * position}^"
