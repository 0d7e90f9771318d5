"""A convolution as a text of another program: a line that calls one which the libraries know, or what one stores.

``parse_line`` reads such a text as people paste it: in quotes, with variables in front, behind a log's own words, or as
a list of words of Python or JSON.
"""

import ast
import re
import shlex
from contextlib import suppress
from functools import cache

from tileseer.core.errors import UserError
from tileseer.libraries.program import Form, Line, Program, known
from tileseer.libraries.registry import installed

SHELL_WORDS = re.compile(r"[0-9&]?>.*|\||\|\||&&|;")
"""What ends the call in a line of a shell."""
LONGEST = 2000
"""Characters of a line behind its beginning."""
_LIST = re.compile(rf"[\[(]\s*[\"'][^\[\]()]{{1,{LONGEST}}}[\])]")
FEWEST_WORDS = 3
"""Of a list that is a call."""


@cache
def programs() -> tuple[Program, ...]:
    """Return the programs of all libraries, by name."""
    return tuple(sorted((program for library in installed() for program in library.programs), key=lambda p: p.name))


@cache
def forms() -> tuple[Form, ...]:
    """Return the other texts of all libraries."""
    return tuple(form for library in installed() for form in library.forms)


def names_of_programs(between: str) -> str:
    """Return the names of the programs with a word between them."""
    return between.join(program.name for program in programs())


def examples() -> str:
    """Return a text of each form, with commas between them."""
    return ", ".join([*(one.example for one in programs()), *(one.example for one in forms())])


@cache
def _form_of_a_line() -> re.Pattern[str]:
    """Return the form of a program's call in a text, with the word before it."""
    return re.compile(rf"\S{{,200}}(?:{names_of_programs('|')})(?:\.exe)?[\"']?\s.{{,{LONGEST}}}", re.IGNORECASE)


@cache
def _call() -> re.Pattern[str]:
    """Return the form of the word of a line that calls a program."""
    return re.compile(rf"(?:^|[/\\=(])({names_of_programs('|')})(?:\.exe)?$", re.IGNORECASE)


def line_in(text: str) -> str | None:
    """Return the part of a text that may be a problem; None if it has none. The text may be a very long one."""
    lowered = text.lower()
    places = [place for name in programs() if (place := lowered.find(name.name.lower())) >= 0]
    if places:
        start = max(0, min(places) - 200)
        own = text[start : min(places) + LONGEST + 200]
        found = _form_of_a_line().search(own)
        return _list_in(own) or (found and found[0])
    for form in forms():
        if match := form.pattern.search(text):
            return text[match.start() : match.start() + LONGEST].strip()
    listed = _list_in(text)
    return listed and line_in(listed)


def _list_in(text: str) -> str | None:
    """Return the words of a list of Python or JSON that calls a program, as a line; None if there is no such list."""
    for match in _LIST.finditer(text):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            words = ast.literal_eval(match[0])
            if len(words) >= FEWEST_WORDS and all(isinstance(word, str | int) for word in words):
                return shlex.join(map(str, words))
    return None


def is_line(text: str) -> bool:
    """Return whether a text is one of another program and no ``N=8,C=64``."""
    words = split_words(text)
    is_call = len(words) > 1 and ("=" not in words[0] or any(map(_call().search, words)))
    return is_call or line_in(text) is not None


def split_words(text: str) -> list[str]:
    """Return the words of a pasted line, the call quoted or not; where a quote does not end, quotes mean nothing."""
    lexer = shlex.shlex(text.replace("`", " "), posix=True)
    lexer.whitespace_split, lexer.escape, lexer.commenters = True, "", ""
    try:
        words = list(lexer)
    except ValueError:
        words = re.sub(r"[\"']", " ", text).split()
    calls = [word.split() if any(map(_call().search, word.split())) else [word] for word in words]
    return [word for call in calls for word in call if word != "\\"]  # a line that goes on


def parse_line(text: str) -> Line:
    """Return what a line says; ``UserError`` for another program or flag, or for no convolution that we have."""
    words = split_words(_list_in(text) or text)
    start = next((place for place, word in enumerate(words) if _call().search(word)), None)
    if start is not None:
        program = _call().search(words[start])
        assert program is not None
        parsers = {own.name.lower(): own.parse for own in programs()}
        return parsers[program[1].lower()](_until_the_end(words[start + 1 :]))
    line = " ".join(words)
    for form in forms():
        if match := form.pattern.search(line):
            return form.parse(_until_the_end(line[match.start() :].split()))
    try:
        return known("a line of", words[0] if words else "", dict[str, Line]())
    except UserError as error:
        raise UserError(f"{error}{names_of_programs(', ').lower()}; lines are such as {examples()}") from None


def _until_the_end(words: list[str]) -> list[str]:
    """Return the words of a call, without what a shell or a list has behind it."""
    end = next((place for place, word in enumerate(words) if SHELL_WORDS.fullmatch(word)), len(words))
    return [own for word in words[:end] if (own := word.rstrip(";,)\"'"))]
