"""Files and folders appear whole or not at all: write to a temporary name in the same folder, then rename."""

import ctypes
import errno
import glob
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

LEFT_S = 3600.0
"""Silence after which the writer of a temporary file is taken for dead."""
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
"""Of Linux (man renameat2)."""
refuse_changes: ContextVar[Callable[[], None]] = ContextVar("refuse_changes", default=lambda: None)
"""Called when a file or folder is whole: raises where a job was made from what changed meanwhile (``reruns.py``)."""


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it becomes ``path``, on any error it is removed."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; give the name of a file", str(target))
    if target.exists() and not target.is_file():
        # A rename would take the place of a device, for the whole machine.
        raise OSError(errno.EINVAL, "is a device or a pipe; give the name of a file", str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_left(target)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        with naming(target):
            yield temporary
            _share(temporary, 0o666)
            refuse_changes.get()()
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _share(path: Path, mode: int) -> None:
    """Give a temporary file or folder, which is private, the mode of any other one: results are for the group."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(mode & ~umask)


def _remove_left(target: Path) -> None:
    """Remove what killed writers of ``target`` have left: what is this user's and was not written to for so long."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        with suppress(FileNotFoundError):
            state = path.lstat()
            if state.st_uid == os.getuid() and state.st_mtime < time.time() - LEFT_S:
                _remove(path)


def _remove(path: Path) -> None:
    """Remove a file or folder; what cannot be removed now, the next writer tries again."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def naming(target: Path) -> Iterator[None]:
    """Name ``target`` in errors of the file system: a full disk names no file by itself."""
    try:
        yield
    except OSError as error:
        if error.filename:
            raise
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(target)) from error


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8 with unchanged line ends."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write ``content`` and flush it to the disk before the rename."""
    with replacing(path) as temporary, temporary.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """Yield a new folder beside ``folder``; on success the two change places, on any error the new one is removed.

    A reader sees what was there before, or the new folder, and never none.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    replaced = folder.with_name(f".{folder.name}.replaced.tmp")
    with naming(folder):
        if replaced.exists() and not os.path.lexists(folder):
            os.rename(replaced, folder)
        _remove_left(folder)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
        try:
            _share(made, 0o777)
            yield made
            # So that a power cut after the rename loses no file.
            for path in (*made.rglob("*"), made):
                flush(path)
            refuse_changes.get()()
            if not _exchange(made, folder):
                _put_in_place(made, folder, replaced)
        finally:
            _remove(made)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _exchange(made: Path, folder: Path) -> bool:
    """Let two folders change places at once; False where there is no second one or the system cannot do that."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(made), _AT_FDCWD, os.fsencode(folder), _RENAME_EXCHANGE) == 0)


def _put_in_place(made: Path, folder: Path, replaced: Path) -> None:
    """Rename twice; a kill between leaves the earlier folder at ``replaced``, from where the next writer takes it."""
    _remove(replaced)
    if os.path.lexists(folder):
        os.rename(folder, replaced)
    os.rename(made, folder)
    _remove(replaced)
