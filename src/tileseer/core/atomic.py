"""Files appear whole or not at all: write to a temporary name in the same folder, then rename."""

import glob
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EIO
from pathlib import Path

from tileseer.core import seal

LEFT_S = 3600.0
"""Silence after which the writer of a temporary file is taken for dead."""


@contextmanager
def replacing(path: str | Path, sealed: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it becomes ``path``, on any error it is removed.

    ``sealed`` files, those that a later stage reads, get a seal beside them (``tileseer.core.seal``).
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_left(target)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        with naming(target):
            yield temporary
            # mkstemp makes the file private; results are for the group as any other file is.
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
            if sealed:
                seal.write_seal(target, temporary)
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_left(target: Path) -> None:
    """Remove what killed writers of ``target`` have left: files of this user that nobody has written to for long."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        with suppress(FileNotFoundError):
            state = path.lstat()
            if state.st_uid == os.getuid() and state.st_mtime < time.time() - LEFT_S:
                path.unlink()


@contextmanager
def naming(target: Path) -> Iterator[None]:
    """Name ``target`` in errors of the file system: a full disk names no file by itself."""
    try:
        yield
    except OSError as error:
        if error.filename:
            raise
        raise OSError(error.errno or EIO, error.strerror or str(error), str(target)) from error


def write_text(path: str | Path, text: str, sealed: bool = False) -> None:
    """Write ``text`` as UTF-8 with unchanged line ends."""
    write_bytes(path, text.encode(), sealed)


def write_bytes(path: str | Path, content: bytes, sealed: bool = False) -> None:
    """Write ``content`` and flush it to the disk before the rename."""
    with replacing(path, sealed) as temporary, temporary.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """Yield a new folder beside ``folder``; on success it takes that place, on any error it is removed.

    A reader sees what was there before, or the new folder.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as name:
        made = Path(name, "new")
        made.mkdir()
        yield made
        if folder.exists():
            os.rename(folder, Path(name, "old"))
        os.rename(made, folder)
