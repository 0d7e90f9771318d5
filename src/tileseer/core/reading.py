"""Reading of files that others wrote: regular files alone, of bounded size, their mistakes in one line."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Self

from tileseer.core.errors import UserError, is_it, nearest, shown

LARGEST_TABLE, LARGEST_TEXT, LARGEST_OBJECT = 2**28, 2**24, 2**32
"""Bytes of a table (CSV, a list of problems), of a text whose parts become objects (YAML, JSON), of machine code."""


class ReadFromFolder:
    """A class whose ``read`` makes an object of a folder, which is no argument of the class itself."""

    def __new__(cls, *args: object, **_: object) -> Self:
        """Raise a ``UserError`` for the path of a folder."""
        if args and isinstance(args[0], str | Path):
            raise UserError(f"{cls.__name__}({shown(args[0])}): write {cls.__name__}.read({shown(args[0])}, ...)")
        return super().__new__(cls)


def path_of(name: str, given: object, of: str = "a folder") -> Path:
    """Return the path of the argument ``name``, in which ``~`` is the home; ``UserError`` for what is no path."""
    if not isinstance(given, str | Path) or not str(given):
        raise UserError(f"{name} is {shown(given)}; give the path of {of}")
    path = Path(given).expanduser()
    if of == "a folder" and path.is_file():
        raise UserError(f"{path}: is a file; give its folder, {path.parent}")
    return path


def regular_file(path: Path) -> BufferedReader:
    """Open a file of any size for reading; ``UserError`` for a pipe, a device, a folder, else an ``OSError``."""
    try:
        # A pipe without a writer would block the plain open for ever.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        raise UserError(f"{path}: this is no name of a file: {error}") from error
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        folder, other = "a folder; give a file", "a pipe or a device; give a file with its content"
        raise UserError(f"{path}: is {folder if stat.S_ISDIR(mode) else other}")
    return os.fdopen(handle, "rb")


def no_file(path: Path) -> str:
    """Say that there is no such file, with the nearest name in its folder, or that a file is wanted."""
    text = str(path)
    if "=" in text or not set("./") & set(text):
        return "there is no such file; give the path of a file, not what is in it"
    return f"there is no such file{way_to(path)}"


def way_to(path: Path) -> str:
    """Return which file is meant by the path of one that is not there, or which part of the path is not."""
    if not path.parent.is_dir():
        absent = next(each for each in reversed(path.parents) if not each.is_dir())
        what = "is a file" if absent.exists() else "is no folder"
        return f": {absent} {what}{is_it(absent, absent.parent.glob('*/'), 0.8) or '; correct the path'}"
    beside = {each.name: each for each in path.parent.iterdir() if each.is_file()}
    tables = {each.name: each for each in sorted(Path("config").rglob("*.*")) if each.is_file()}
    near = beside.get(nearest(path.name, beside, 0.8)) or tables.get(path.name)
    if near is None and path.parts[0] == "config":
        return f"; correct its name, or bring it back: git checkout -- {path}"
    return f"; is it {near}?" if near else "; correct the path"


@contextmanager
def opened(path: Path, most: int) -> Iterator[BinaryIO]:
    """Yield a regular file of at most ``most`` bytes; ``UserError`` for what is none, missing or larger."""
    try:
        stream = regular_file(path)
    except FileNotFoundError as error:
        raise UserError(f"{path}: {no_file(path)}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    with stream:
        if (size := os.fstat(stream.fileno()).st_size) > most:
            raise UserError(f"{path}: has {size:,} bytes, of which at most {most:,} are read; split it")
        yield stream


def read_bytes(path: Path, most: int = LARGEST_TEXT) -> bytes:
    """Return the content of a file; ``UserError`` where ``opened`` raises one, or if it grows beyond ``most``."""
    with opened(path, most) as stream:
        try:
            content = stream.read(most + 1)
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > most:
        raise UserError(f"{path}: has more than {most:,} bytes; split it")
    return content


def read_utf8(path: Path, most: int = LARGEST_TEXT, encoding: str = "utf-8") -> str:
    """Return the text of a file, with line feeds alone; ``UserError`` if it cannot be read or is not in UTF-8."""
    return utf8_text(path, read_bytes(path, most), encoding)


_FORMS = {
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
    b"PAR1": "a Parquet file, no text; write it as CSV",
    b"PK\3\4": "an archive or a spreadsheet, no text; save it as CSV",
    b"\x1f\x8b": "compressed by gzip; gunzip it",
    b"BZh": "compressed by bzip2; bunzip2 it",
    b"\x7fELF": "machine code, no text",
}
"""What files are that begin so, and what to do."""


def require_text(path: Path, start: bytes) -> None:
    """Raise a ``UserError`` that says what a file is that begins with ``start``, where that is no text."""
    for sign, form in _FORMS.items():
        if start.startswith(sign):
            raise UserError(f"{path}: is {form}")


def utf8_text(path: Path, content: bytes, encoding: str = "utf-8") -> str:
    """Return the text of a file's content, with line feeds alone; ``UserError`` if it is not in UTF-8."""
    require_text(path, content)
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}: line {line} is not UTF-8; save the file as UTF-8") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
