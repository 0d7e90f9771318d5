"""The one exception that a user is meant to read."""

import codecs
import functools
import io
import re
import reprlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from difflib import get_close_matches
from itertools import zip_longest
from pathlib import Path
from types import UnionType
from typing import Any, TextIO, TypeVar, cast

Item = TypeVar("Item")


class UserError(Exception):
    """A mistake that the user can repair: wrong config, unknown arch, malformed file, missing compiler.

    The message names the file, the field, the value and the fix; it is printed without a traceback.
    """


OF_FOREIGN_CODE = Exception, SystemExit
"""What the code of a user may raise, which may end the process as well."""


@contextmanager
def mistakes_of(subject: str, known: str = "") -> Iterator[None]:
    """Turn what the code of a user raises into a ``UserError`` that names ``subject`` and the line.

    ``known``: what there is, for an error that names what there is not.
    """
    try:
        yield
    except UserError:
        raise
    # The traceback stays attached for those who ask for it.
    except OF_FOREIGN_CODE as error:
        frames = traceback.extract_tb(error.__traceback__)
        # The user's own line, where there is one, rather than that of a package which it called.
        own = [
            each for each in frames[1:] if not any(word in each.filename for word in ("site-packages", "<", _PACKAGE))
        ]
        frame = [*frames, *own][-1]
        # An error of syntax says itself where it is.
        where = "" if isinstance(error, SyntaxError) else f" ({Path(frame.filename).name}, line {frame.lineno})"
        there = f"; {known}" if known and isinstance(error, KeyError | AttributeError) else ""
        raise UserError(f"{subject}: {said_by(error)}{where}{there}") from error


def said_by(error: BaseException) -> str:
    """Return the type and text of what the code of a user raised."""
    ends = "; what ends the program belongs below if __name__ == '__main__':" if isinstance(error, SystemExit) else ""
    return f"{type(error).__name__}: {error}{ends}"


def lines_of(error: UserError) -> str:
    """Return what is printed of an error: a line a fault."""
    return "\n".join(f"error: {line}" for line in str(error).splitlines())


_PACKAGE = str(Path(__file__).parents[1])
INTERRUPTED = 130
"""Exit status of a command that was ended by Ctrl-C, as shells have it: 128 and the number of the signal."""
MOST_CHARACTERS_SHOWN = 80
_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxlist, _REPR.maxtuple, _REPR.maxdict = 3, 20, 20, 20
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 2 * MOST_CHARACTERS_SHOWN


def shown(value: object) -> str:
    """Return a user's value for a message: Python's form, cut if it is long, and never made whole if it is huge."""
    try:
        text = _REPR.repr(str(value) if isinstance(value, Path) else value).replace("\n", " ")
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= MOST_CHARACTERS_SHOWN else f"{text[:MOST_CHARACTERS_SHOWN]}..."


def require(name: str, value: object, kind: type | UnionType, such: str) -> None:
    """Raise a ``UserError`` for an argument ``name`` of a public call of another type; ``such`` says what to give."""
    if not isinstance(value, kind):
        raise UserError(f"{name} is {shown(value)}; give {such}")


def listed(name: str, values: Iterable[Item], kind: type, such: str) -> list[Item]:
    """Return the elements of an argument ``name``; a ``UserError`` as of ``require`` unless all are of a type."""
    found = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else None
    if found is None or not all(isinstance(each, kind) for each in found):
        raise UserError(f"{name} is {shown(values)}; give {such}")
    return found


_OTHER_WORDS = {"fprop": "forward", "fwd": "forward", "dgrad": "bwd_data", "wgrad": "bwd_weight", "bfloat16": "bf16"}
_OTHER_WORDS |= {"half": "fp16", "float16": "fp16", "float": "fp32", "float32": "fp32"}
"""What other programs call directions and data types."""


def nearest(word: object, known: Iterable[object], share: float = 0.6) -> str:
    """Return which of ``known`` is meant by a misspelt word, whatever the case of its letters; "" if none is near.

    ``share``: that of the letters that must agree (``difflib``).
    """
    words = {str(each).lower(): str(each) for each in known}
    written = str(word).lower()
    head, line, tail = written.rpartition("_")
    meant = f"{_OTHER_WORDS.get(head, head)}{line}{_OTHER_WORDS.get(tail, tail)}"
    if written not in words and meant in words:
        return words[meant]
    # Rather than one that looks like it: tv_resnet50 and not resnet50s for resnet50.
    longer = with_a_prefix(word, known) if len(written) > 3 and written not in words else []
    near = [words[each] for each in get_close_matches(written, words, 1, share)]
    return (longer or near or [""])[0]


def with_a_prefix(word: object, known: Iterable[object]) -> list[str]:
    """Return those of ``known`` that are ``word`` behind a prefix which one of ``/._-`` ends, the shortest first."""
    ends = re.compile(rf"[/._-]{re.escape(str(word))}$", re.IGNORECASE)
    return sorted((str(each) for each in known if ends.search(str(each))), key=len)


def is_it(word: object, known: Iterable[object], share: float = 0.6) -> str:
    """Return "; is it X?" with what ``nearest`` finds, or with all in which one letter is another; "" if none is near.

    So gfx940 is gfx942 or gfx950.
    """
    words = list(map(str, known))
    near = nearest(word, words, share)
    several = sorted({each for each in words if _letters(word, each) == 1}) if near and _letters(word, near) else []
    return f"; is it {' or '.join(several[:3] or [near])}?" if near else ""


def _letters(word: object, other: str) -> int:
    """Return how many letters of two words differ, place by place; more than there are where one is longer."""
    return sum(one != two for one, two in zip_longest(str(word).lower(), other.lower()))


_ODD = re.compile(r"[^ -~\n\t]")


def printed(text: str) -> str:
    """Return the text of others as a terminal may get it: what is no character to see as an escape, that of JSON."""
    return _ODD.sub(lambda odd: odd[0] if odd[0].isprintable() else _escape(odd[0]), text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


class _Plain:
    """A stream that writes what ``printed`` returns."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printed(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def plain_output() -> Iterator[None]:
    """Write any text to the standard streams, whatever the locale says, and nothing that a terminal obeys."""
    # A stream that the caller closed is none.
    sys.stdout, sys.stderr = (stream or io.StringIO() for stream in (sys.stdout, sys.stderr))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    with redirect_stdout(cast(TextIO, _Plain(sys.stdout))), redirect_stderr(cast(TextIO, _Plain(sys.stderr))):
        yield


def reports_user_errors(main: Callable[..., int | None]) -> Callable[..., int]:
    """Wrap a command's ``main`` so that a ``UserError`` becomes one line on stderr and exit status 2, and Ctrl-C 130.

    ``OSError`` (full disk, read-only folder, missing file) is the user's to repair as well; it names its file.
    Everything else is a defect of Tileseer and keeps its traceback.
    """

    @functools.wraps(main)
    def wrapped(*args: object, **kwargs: object) -> int:
        with plain_output():
            return _status(main, *args, **kwargs)

    return wrapped


def _status(main: Callable[..., int | None], *args: object, **kwargs: object) -> int:
    """Return the exit status of ``main``, whose errors are printed."""
    try:
        return main(*args, **kwargs) or 0
    except BrokenPipeError:
        # The reader of our output (``head``, a pager) has left: nothing to report, nowhere to report it.
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except MemoryError:
        print("error: there is not enough memory; is an input too large?", file=sys.stderr)
    except UserError as error:
        print(lines_of(error), file=sys.stderr)
    except OSError as error:
        # A copy has two: what is read and what is written.
        where = " -> ".join(str(name) for name in (error.filename, error.filename2) if name)
        where = f" ({where})" if where else ""
        print(f"error: {error.strerror or error}{where}", file=sys.stderr)
    return 2
