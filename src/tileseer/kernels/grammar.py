"""Names that say every field of a kernel: one table of parts writes them, reads them and tells where one is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from string import Formatter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tileseer.core.errors import UserError

if TYPE_CHECKING:
    from tileseer.kernels.gemm_kernel import Kernel

AnyKernel = TypeVar("AnyKernel", bound="Kernel")
SPELLED = {"forward": "fwd"}
"""Words that names spell otherwise than fields do."""
COUNT = r"[1-9]\d{0,5}"
"""Six digits at most: products of three such numbers fit into 64 bits."""


@dataclass(frozen=True)
class Part:
    """A part of a name: what it is to a reader, and a format string of fields and properties.

    ``{field:text}`` is a flag, whose text stands there or not. An optional part is left out where all its fields have
    their defaults.
    """

    what: str
    form: str
    optional: bool = False


class _Piece:
    """A fixed text, and the field behind it, with the text of each value; a count has none."""

    def __init__(self, kind: type[Kernel], literal: str, field: str, flag: str) -> None:
        own = {one.name: one for one in fields(kind)}.get(field)  # type: ignore[arg-type]
        self.literal = literal
        self.field = field
        self.default = own.default if own else None
        self.texts: dict[Any, str] = {value: SPELLED.get(value, str(value)) for value in kind.choices.get(field, ())}
        if own and own.type == "bool":
            self.texts = {True: flag or "1", False: "" if flag else "0"}
        # Longest first: one may be the beginning of another.
        words = sorted(filter(None, self.texts.values()), key=len, reverse=True)
        group = f"(?P<{field}>" if own else "(?:"
        any_value = kind.patterns.get(field) or (COUNT if own else "[0-9]+")
        self.pattern = f"{literal}{group}{'|'.join(words) or any_value})" if field else literal

    def text(self, kernel: Kernel) -> str:
        value = getattr(kernel, self.field) if self.field else ""
        return self.literal + (self.texts[value] if self.texts else str(value))


class _Place:
    """A part of the names of one class of kernels."""

    def __init__(self, kind: type[Kernel], part: Part) -> None:
        pieces = [_Piece(kind, text, field or "", flag or "") for text, field, flag, _ in Formatter().parse(part.form)]
        self.pieces, self.optional, self.what = pieces, part.optional, part.what
        self.defaults = [(piece.field, piece.default) for piece in pieces if piece.field]
        if pieces[0].texts and not part.optional:
            words = (part.form.strip("_").replace(f"{{{pieces[0].field}}}", word) for word in pieces[0].texts.values())
            self.what += f" ({', '.join(words)})"
        patterns = [piece.pattern + "?" * ("" in piece.texts.values() and len(pieces) > 1) for piece in pieces]
        # Behind a part that ends with a number or a word: nothing or the next part.
        self.pattern = "".join(patterns) + ("" if part.form.endswith("_") else "(?![^_])")

    def text(self, kernel: Kernel) -> str:
        if self.optional and all(getattr(kernel, field) == default for field, default in self.defaults):
            return ""
        return "".join([piece.text(kernel) for piece in self.pieces])


class Grammar(Generic[AnyKernel]):
    """How kernels of one class are called."""

    def __init__(self, kind: type[AnyKernel]) -> None:
        self._kind = kind
        self._places = [_Place(kind, part) for part in kind.parts]
        whole = (f"(?:{place.pattern})?" if place.optional else place.pattern for place in self._places)
        self._whole = re.compile("".join(whole), re.ASCII)
        self._texts = {piece.field: piece.texts for place in self._places for piece in place.pieces}
        self._free = frozenset(kind.patterns)

    def name(self, kernel: AnyKernel) -> str:
        """Name of a kernel."""
        return "".join([place.text(kernel) for place in self._places])

    def parse(self, text: str) -> AnyKernel:
        """Kernel called ``text``; any text that is not exactly its name is a ``UserError``."""
        match = self._whole.fullmatch(text)
        if not match:
            raise UserError(f"kernel name {text!r}: {self._fault(text)}\n(the grammar is in docs/kernels.md)")
        kernel = self._kind(**{field: self._value(field, word) for field, word in match.groupdict().items() if word})
        if kernel.name != text:
            raise UserError(f"kernel name {text!r} is not canonical; the kernel is called {kernel.name!r}")
        return kernel

    def _value(self, field: str, word: str) -> Any:
        texts = self._texts[field]
        if field in self._free:
            return word
        return next(value for value, text in texts.items() if text == word) if texts else int(word)

    def _fault(self, text: str) -> str:
        """Message about the place where ``text`` leaves the grammar, with a caret below it."""
        position = 0
        for place in self._places:
            match = re.compile(place.pattern, re.ASCII).match(text, position)
            if match:
                position = match.end()
            elif not place.optional:
                return _told(text, position, f"{place.what} is expected")
        rest = text[position:]
        behind = next((place.what for place in self._places if place.optional and re.match(place.pattern, rest)), "")
        reason = f"{behind} stands behind a part that follows it" if behind else "no further part is known here"
        return _told(text, position, reason)


def _told(text: str, position: int, reason: str) -> str:
    found = re.match(r"_?[^_]*", text[position:])
    word = found[0] if found else ""
    what = f"found {word!r}" if word else "the name ends"
    # A caret needs characters that are one column wide.
    shown = "".join(character if character.isascii() and character.isprintable() else "?" for character in text)
    return f"at character {position + 1} {reason}, {what}\n  {shown}\n  {' ' * position}^"
