"""Names that say every field of a kernel: one table of parts writes them, reads them and tells where one is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from string import Formatter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tileseer.core.errors import UserError, shown

if TYPE_CHECKING:
    from tileseer.libraries.gemm_kernel import Kernel

AnyKernel = TypeVar("AnyKernel", bound="Kernel")
SPELLED = {"forward": "fwd"}
"""Words that names spell otherwise than fields do."""
LONGEST_NAME = 1000
COUNT = r"[1-9]\d{0,5}"
"""Six digits at most: products of three such numbers fit into 64 bits."""


@dataclass(frozen=True)
class Part:
    """A part of a name: what it is to a reader, and a format string of fields and properties.

    ``{field:text}`` is a flag: it writes the text or nothing. An optional part is left out where all its fields have
    their defaults.
    """

    what: str
    form: str
    optional: bool = False


class _Place:
    """A part of the names of one class of kernels."""

    def __init__(self, kind: type[Kernel], part: Part) -> None:
        own = {one.name: one for one in fields(kind)}  # type: ignore[arg-type]
        self.what, self.optional = part.what, part.optional
        self.pieces: list[tuple[str, str]] = []
        """Fixed texts, each with the field behind it."""
        self.texts: dict[str, dict[Any, str]] = {}
        """Field to the text of each value; of a count or a free text to nothing."""
        self.pattern = ""
        for literal, field, flag, _ in Formatter().parse(part.form):
            self.pieces.append((literal, field or ""))
            self.pattern += literal
            if field:
                is_flag = field in own and own[field].type == "bool"
                texts = {value: SPELLED.get(value, str(value)) for value in kind.choices.get(field, ())}
                self.texts[field] = {True: flag or "1", False: "" if flag else "0"} if is_flag else texts
                self.pattern += self._field_pattern(kind, field, field in own)
        self.defaults = [(field, own[field].default if field in own else None) for field in self.texts]
        if (first := self.pieces[0][1]) and self.texts[first] and not part.optional:
            words = (part.form.strip("_").replace(f"{{{first}}}", word) for word in self.texts[first].values())
            self.what += f" ({', '.join(words)})"
        # Behind a part that ends with a number or a word: nothing or the next part.
        self.pattern += "" if part.form.endswith("_") else "(?![^_])"

    def _field_pattern(self, kind: type[Kernel], field: str, is_own: bool) -> str:
        # Longest first: one may be the beginning of another.
        words = sorted(filter(None, self.texts[field].values()), key=len, reverse=True)
        values = "|".join(words) or kind.patterns.get(field) or (COUNT if is_own else "[0-9]+")
        absent = "?" if "" in self.texts[field].values() and len(self.texts) > 1 else ""
        return f"({f'?P<{field}>' if is_own else '?:'}{values}){absent}"

    def text(self, kernel: Kernel) -> str:
        if self.optional and all(getattr(kernel, field) == default for field, default in self.defaults):
            return ""
        return "".join([literal + self._value_text(kernel, field) for literal, field in self.pieces])

    def _value_text(self, kernel: Kernel, field: str) -> str:
        value = getattr(kernel, field) if field else ""
        return self.texts[field][value] if self.texts.get(field) else str(value)


def check_length(text: str) -> None:
    """Raise a ``UserError`` if a kernel's name is too long for one."""
    if len(text) > LONGEST_NAME:
        raise UserError(f"kernel name {shown(text)}: has {len(text)} characters; {LONGEST_NAME} are the most")


class Grammar(Generic[AnyKernel]):
    """How kernels of one class are called."""

    def __init__(self, kind: type[AnyKernel]) -> None:
        self._kind = kind
        self._places = [_Place(kind, part) for part in kind.parts]
        whole = (f"(?:{place.pattern})?" if place.optional else place.pattern for place in self._places)
        self._whole = re.compile("".join(whole), re.ASCII)
        self._texts = {field: texts for place in self._places for field, texts in place.texts.items()}

    def name(self, kernel: AnyKernel) -> str:
        """Name of a kernel."""
        return "".join([place.text(kernel) for place in self._places])

    def parse(self, text: str) -> AnyKernel:
        """Return the kernel called ``text``; any text that is not exactly its name is a ``UserError``."""
        check_length(text)
        match = self._whole.fullmatch(text)
        if not match:
            raise UserError(f"kernel name {text!r}: {self._fault(text)}\n(the grammar is in docs/internals/kernels.md)")
        kernel = self._kind(**{field: self._value(field, word) for field, word in match.groupdict().items() if word})
        if kernel.name != text:
            raise UserError(f"kernel name {text!r} is not canonical; the kernel is called {kernel.name!r}")
        return kernel

    def _value(self, field: str, word: str) -> Any:
        if texts := self._texts[field]:
            return next(value for value, text in texts.items() if text == word)
        return word if field in self._kind.patterns else int(word)

    def _fault(self, text: str) -> str:
        """Return the message about the place where ``text`` leaves the grammar, with a caret below it."""
        position = 0
        for place in self._places:
            match = re.compile(place.pattern, re.ASCII).match(text, position)
            if match:
                position = match.end()
            elif not place.optional:
                return _show_fault(text, position, f"{place.what} is expected")
        rest = text[position:]
        late = next((place.what for place in self._places if place.optional and re.match(place.pattern, rest)), "")
        reason = f"{late} comes after a part that must follow it" if late else "no further part is allowed here"
        return _show_fault(text, position, reason)


def _show_fault(text: str, position: int, reason: str) -> str:
    match = re.match(r"_?[^_]*", text[position:])
    what = f"found {match[0]!r}" if match and match[0] else "the name ends"
    # A caret needs characters that are one column wide.
    shown = "".join(character if character.isascii() and character.isprintable() else "?" for character in text)
    return f"at character {position + 1} {reason}, {what}\n  {shown}\n  {' ' * position}^"
