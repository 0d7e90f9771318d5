"""A convolution as a text of another program: a line that calls one which the libraries know, or what one stores.

Texts are read as people paste them: in quotes, with variables in front, behind a log's own words, or as a list of words
of Python or JSON.
"""

import ast
import re
from contextlib import suppress
from functools import cache

from tileseer.core.errors import UserError, shown
from tileseer.libraries.program import Form, Line
from tileseer.libraries.registry import installed

LONGEST = 2000
"""Characters of a line behind its beginning."""
_QUOTED_WORD = re.compile(r"(?<=\s)([\"'])(\S*)\1(?=\s|$)")
_END = re.compile(r"(?<=\S)[\"'`]|\\[nrt]")
"""What ends a call in a text of others, beside such words."""
_END_WORD = re.compile(r"[0-9&]?>.*|\||\|\||&&|;|#.*")
"""What ends it in a line of a shell."""
_LIST = re.compile(rf"[\[(]\s*[\"'][^\[\]()]{{1,{LONGEST}}}[\])]")
FEWEST_WORDS = 3
"""Of a list that is a call."""


@cache
def forms() -> tuple[Form, ...]:
    """Return the texts of all libraries, those with the name of a program first."""
    return tuple(sorted((form for library in installed() for form in library.forms), key=lambda form: not form.name))


def names_of_programs(between: str) -> str:
    """Return the names of the programs with a word between them."""
    return between.join(form.name for form in forms() if form.name)


def examples() -> str:
    """Return a text of each form, with commas between them."""
    return ", ".join(form.example for form in forms())


def ways() -> str:
    """Return how programs print such lines, in words."""
    return "".join(f"; {form.way}" for form in forms() if form.way)


def line_in(text: str) -> str | None:
    """Return the part of a text that may be a problem; None if it has none. The text may be a very long one."""
    for form in forms():
        if match := form.pattern.search(text):
            behind = _QUOTED_WORD.sub(r"\2", f" {text[match.end() : match.end() + LONGEST]}")
            return match[0] + _END.split(behind)[0].strip()
    listed = _list_in(text)
    return listed and line_in(listed)


def _list_in(text: str) -> str | None:
    """Return the words of a list of Python or JSON that calls a program, as a line; None if there is no such list."""
    for match in _LIST.finditer(text):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            words = ast.literal_eval(match[0])
            if len(words) >= FEWEST_WORDS and all(isinstance(word, str | int) for word in words):
                return " ".join(map(str, words))
    return None


def is_line(text: str) -> bool:
    """Return whether a text is one of another program and no ``N=8,C=64``."""
    words = text.split()
    return (len(words) > 1 and "=" not in words[0]) or line_in(text) is not None


def parse_line(text: str) -> Line:
    """Return what a line says; ``UserError`` for another program or flag, or for no convolution that we have."""
    line = line_in(text)
    if line is None:
        raise UserError(
            f"--problem: a line of {shown(' '.join(text.split()[:1]))}: use one of "
            f"{names_of_programs(', ').lower()}; lines are such as {examples()}"
        )
    form, match = next((form, match) for form in forms() if (match := form.pattern.search(line)))
    words = [word for word in line[match.end() :].split() if word != "\\"]  # a line that goes on
    end = next((place for place, word in enumerate(words) if _END_WORD.fullmatch(word)), len(words))
    words = [own for word in words[:end] if (own := word.strip("\"'").rstrip(";,)"))]
    if variable := next((word for word in words if re.match(r"\$[\w{(]", word)), None):
        raise UserError(f"--problem: {shown(variable)} is a variable of a shell; write its value")
    return form.parse(words)
