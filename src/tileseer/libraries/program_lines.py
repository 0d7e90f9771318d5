"""A convolution as a line of another program: of the programs that the libraries know.

``parse_line`` reads such a line as people paste it: in quotes, with variables in front, behind a log's own words.
"""

import re
import shlex
from functools import cache

from tileseer.libraries.program import Line, Program, known
from tileseer.libraries.registry import installed

SHELL_WORDS = re.compile(r"[0-9&]?>.*|\||\|\||&&|;")
"""What ends the call in a line of a shell."""


@cache
def programs() -> tuple[Program, ...]:
    """Return the programs of all libraries, by name."""
    return tuple(sorted((program for library in installed() for program in library.programs), key=lambda p: p.name))


def names_of_programs(between: str) -> str:
    """Return the names of the programs with a word between them."""
    return between.join(program.name for program in programs())


@cache
def form_of_a_line() -> re.Pattern[str]:
    """Return the form of a program's call in a text, with the word before it."""
    return re.compile(rf"\S{{,200}}(?:{names_of_programs('|')})(?:\.exe)?[\"']?\s.{{,2000}}", re.IGNORECASE)


@cache
def _call() -> re.Pattern[str]:
    """Return the form of the word of a line that calls a program."""
    return re.compile(rf"(?:^|[/\\=(])({names_of_programs('|')})(?:\.exe)?$", re.IGNORECASE)


def is_line(text: str) -> bool:
    """Return whether a text is a line of another program and no ``N=8,C=64``."""
    words = split_words(text)
    return len(words) > 1 and ("=" not in words[0] or any(map(_call().search, words)))


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
    words = split_words(text)
    start = next((place for place, word in enumerate(words) if _call().search(word)), 0)
    program, *words = words[start:]
    end = next((place for place, word in enumerate(words) if SHELL_WORDS.fullmatch(word)), len(words))
    named = _call().search(program)
    parsers = {own.name.lower(): own.parse for own in programs()}
    parse = known("a line of", named[1].lower() if named else program, parsers)
    return parse([own for word in words[:end] if (own := word.rstrip(";,)"))])
