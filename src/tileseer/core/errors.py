"""The one exception that a user is meant to read."""

import codecs
import functools
import io
import reprlib
import sys
from collections.abc import Callable


class UserError(Exception):
    """A mistake that the user can repair: wrong config, unknown arch, malformed file, missing compiler.

    The message names the file, the field, the value and the fix; it is printed without a traceback.
    """


def lines_of(error: UserError) -> str:
    """Return what is printed of an error: a line a fault."""
    return "\n".join(f"error: {printed(line)}" for line in str(error).splitlines())


INTERRUPTED = 130
"""Exit status of a command that was ended by Ctrl-C, as shells have it: 128 and the number of the signal."""
MOST_CHARACTERS_SHOWN = 80
_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxlist, _REPR.maxtuple, _REPR.maxdict = 3, 20, 20, 20
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 2 * MOST_CHARACTERS_SHOWN


def shown(value: object) -> str:
    """Return a user's value for a message: Python's form, cut if it is long, and never made whole if it is huge."""
    try:
        text = _REPR.repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= MOST_CHARACTERS_SHOWN else f"{text[:MOST_CHARACTERS_SHOWN]}..."


def printed(text: str) -> str:
    """Return the text of others as a terminal may get it: control characters as escapes, but for line ends."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _write_utf8() -> None:
    """Let the standard streams take any text, whatever the locale says."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def reports_user_errors(main: Callable[..., int | None]) -> Callable[..., int]:
    """Wrap a command's ``main`` so that a ``UserError`` becomes one line on stderr and exit status 2, and Ctrl-C 130.

    ``OSError`` (full disk, read-only folder, missing file) is the user's to repair as well; it names its file.
    Everything else is a defect of Tileseer and keeps its traceback.
    """

    @functools.wraps(main)
    def wrapped(*args: object, **kwargs: object) -> int:
        _write_utf8()
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
            print(printed(f"error: {error.strerror or error}{where}"), file=sys.stderr)
        return 2

    return wrapped
