"""A cache directory that workflows and users share: what a digest stands for is made once and kept.

::

    FOLDER/entries/ab/abcdef...    one entry: a line with key, size and SHA-256 of the content, then the content
    FOLDER/partial/                entries that are being written, of full size from the start
    FOLDER/size                    the bytes promised to entries; who changes that number holds its lock
    FOLDER/claims                  empty; its locks say who makes which entry just now

An entry appears by a rename, so a reader finds it whole or not at all, and its content is checked at every read: a
damaged entry is removed and counts as absent. Who writes reserves the space first, so the bound holds whoever is
killed when; what the dead have reserved or left half written is found at the next collection. All can be lost at any
time: an entry that cannot be written or read costs the time to make it again, and nothing else.

Of two workflows that miss the same entry, one makes it and the other waits. A claim is a lock on one byte of one file,
at a place that the key gives. So there is nothing to clean up, and the system releases the claims of a process that
ends, however it ends. Two keys with the same place, one pair in 2**60, wait for each other, which costs time only. The
locks are those of a process (``fcntl``): it must not hold two sets of claims at once.

Others may write to the folder. What is no plain file there is never followed, read or written
(``tileseer.core.shared_file``), and a collection removes nothing but files with the names of entries.
"""

import fcntl
import hashlib
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tileseer.core import shared_file
from tileseer.core.errors import UserError

KEY = re.compile(r"[0-9a-f]{64}")
_PARTIAL = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{12}")
_DAMAGED = "its content does not match the hash in its first line"
_MAGIC = "tileseer-cache-1"
_LONGEST_LINE = 200
_KEPT_SHARE = 0.9
"""Share of the bound that a collection leaves, so that not every entry after it needs another one."""
_PLACE_DIGITS = 15
"""Hex digits of a key that give the place of its claim: an offset has to be positive."""


class Stats(NamedTuple):
    """What a cache holds, in bytes on the disk."""

    folder: str
    entries: int
    bytes: int
    max_bytes: int


class Collected(NamedTuple):
    """What a collection removed and what it left."""

    removed: int
    removed_bytes: int
    dead_partial: int
    """Entries half written by a process that is gone."""
    entries: int
    bytes: int
    partial_bytes: int
    """Bytes of entries that others are writing just now."""


def key(*parts: bytes | str) -> str:
    """Digest of what an entry depends on: 64 hex digits, other parts give another one."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        # The length first: ("ab", "c") must not be ("a", "bc").
        digest.update(f"{len(content)}:".encode() + content)
    return digest.hexdigest()


def default_folder() -> Path:
    """Cache folder of this user: ``$XDG_CACHE_HOME/tileseer`` or ``~/.cache/tileseer``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        # The XDG specification: a relative path is to be ignored.
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "tileseer"


class Cache:
    """A cache folder of at most ``max_bytes`` bytes; 0 turns it off: nothing is found and nothing kept."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._entries = folder / "entries"
        self._partial = folder / "partial"
        self._max_bytes = max_bytes

    def get(self, key: str) -> bytes | None:
        """Content kept under ``key``, or None; a damaged entry is removed, with a line on stderr."""
        path = self._path(key)
        if not self._max_bytes:
            return None
        try:
            content = _content(path, key, self._max_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(path, error)
            return None
        if content is None:
            print(f"cache: {path}: {_DAMAGED}; it is removed and made again", file=sys.stderr)
            _unlink(path)
            return None
        # The entry of another user, or gone by now: its age only decides how soon it is collected.
        with suppress(OSError):
            os.utime(path, follow_symlinks=False)
        return content

    def put(self, key: str, content: bytes, replace: bool = False) -> bool:
        """Keep ``content`` under ``key``; True if the key has an entry then. A sound one stays, unless ``replace``.

        Content above the bound, a full disk or a read-only folder are no error: the caller has the content. The
        reason is printed on stderr.
        """
        path = self._path(key)
        whole = _line(key, len(content), hashlib.sha256(content).hexdigest()) + content
        if len(whole) > self._max_bytes:
            return False
        if not replace and self.get(key) is not None:
            return True
        try:
            self._make_folders(path.parent)
            with self._size() as size:
                handle, partial = self._reserve(size, path, len(whole))
            self._write(handle, partial, path, whole)
        except OSError as error:
            self._warn(path, error)
            return False
        return True

    def made_once(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Content kept under ``key``; else ``make`` it and keep it, or wait for the process that makes it already."""
        kept = self.get(key)
        if kept is not None:
            return kept
        with self.claimed([key], wait=True):
            kept = self.get(key)
            if kept is None:
                kept = make()
                self.put(key, kept)
            return kept

    @contextmanager
    def claimed(self, keys: Sequence[str], wait: bool = False) -> Iterator[set[str]]:
        """Hold the claims on making some entries; yield the keys that are ours: all if we ``wait``, else the free ones.

        A waiting process must hold no other claim. Where nothing can be kept all are ours.
        """
        ours, handle = set(keys), -1
        try:
            if self._max_bytes:
                self._folder.mkdir(parents=True, exist_ok=True)
                handle = shared_file.opened_by_all(self._folder / "claims")
                # In order, so that two who wait never wait for each other.
                ours = {key for key in sorted(ours) if _claim(handle, key, wait)}
        except OSError as error:
            self._warn(self._folder, error)
        try:
            yield ours
        finally:
            if handle >= 0:
                # With the file the process gives up all of its locks on it.
                os.close(handle)

    def stats(self) -> Stats:
        """Number of entries and their size together."""
        sizes = [stat.st_size for _, stat in self._scan()]
        return Stats(str(self._folder), len(sizes), sum(sizes), self._max_bytes)

    def collect(self, max_bytes: int | None = None) -> Collected:
        """Remove what was used longest ago until at most ``max_bytes`` are left, and what dead writers left."""
        if not self._folder.is_dir():
            return Collected(0, 0, 0, 0, 0, 0)
        with self._size() as size:
            return self._collect(size, self._max_bytes if max_bytes is None else max_bytes)

    def verify(self, repair: bool = False) -> dict[Path, str]:
        """Check every entry against its own hash; return what is wrong by path. ``repair`` removes those files."""
        faults = {}
        for path, _ in self._scan():
            try:
                fault = "" if _content(path, path.name) is not None else _DAMAGED
            except FileNotFoundError:
                continue  # Another process has collected it since.
            except OSError as error:
                fault = f"cannot be read: {error.strerror}"
            if fault:
                faults[path] = fault
                if repair:
                    _unlink(path)
        return faults

    def _path(self, key: str) -> Path:
        if not KEY.fullmatch(key):
            raise ValueError(f"a cache key has 64 hex digits, not {key!r}")
        return self._entries / key[:2] / key

    def _make_folders(self, folder: Path) -> None:
        """Make the folders of an entry; they take the permissions of the cache, which its owner chose."""
        self._folder.mkdir(parents=True, exist_ok=True)
        mode = self._folder.stat().st_mode & 0o7777
        for path in (self._partial, self._entries, folder):
            with suppress(FileExistsError):
                path.mkdir()
                path.chmod(mode)
            if path.is_symlink():
                raise shared_file.not_plain(path)

    @contextmanager
    def _size(self) -> Iterator[int]:
        """Hold the lock of the number of promised bytes; yield a descriptor of its file."""
        path = self._folder / "size"
        locked = False
        while not locked:
            handle = shared_file.opened_by_all(path)
            try:
                # Not if somebody removed the file meanwhile: then the one that is there now is locked.
                if locked := shared_file.lock(handle, path, wait=True):
                    yield handle
            finally:
                os.close(handle)

    def _reserve(self, size: int, path: Path, wanted: int) -> tuple[int, Path]:
        """Partial file of the wanted size, locked, so that no collection takes it for a dead one.

        The caller holds the lock of ``size``, as a collection does: none comes between making and locking.
        """
        promised = _promised(size)
        if promised is None or promised + wanted > self._max_bytes:
            left = self._collect(size, max(0, int(self._max_bytes * _KEPT_SHARE) - wanted))
            promised = left.bytes + left.partial_bytes
        # Promised before there is a file: who is killed in between leaves a promise too much, never one too few.
        _promise(size, promised + wanted)
        partial = self._partial / f"{path.name}.{os.urandom(6).hex()}"
        handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | shared_file.PLAIN, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.ftruncate(handle, wanted)
        return handle, partial

    def _collect(self, size: int, max_bytes: int) -> Collected:
        """Remove entries, oldest first; the caller holds the lock of ``size``."""
        dead = sum(_remove_if_dead(path) for path, _ in self._scan_partial())
        # What others are writing just now is no entry yet; its file has its full size from the start. It is counted
        # first: what becomes an entry meanwhile is counted twice, never left out.
        writing = sum(stat.st_size for _, stat in self._scan_partial())
        entries = sorted((stat.st_mtime_ns, path, stat.st_size) for path, stat in self._scan())
        left, removed, removed_bytes = sum(entry[2] for entry in entries), 0, 0
        for _, path, bytes_of_it in entries:
            if left - removed_bytes <= max_bytes:
                break
            if _unlink(path):
                removed += 1
                removed_bytes += bytes_of_it
        _promise(size, left - removed_bytes + writing)
        return Collected(removed, removed_bytes, dead, len(entries) - removed, left - removed_bytes, writing)

    def _write(self, handle: int, partial: Path, path: Path, whole: bytes) -> None:
        """Fill a partial file, wait until it is on the disk, and make it the entry ``path``."""
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(whole)
                stream.flush()
                umask = os.umask(0)
                os.umask(umask)
                os.fchmod(handle, 0o666 & ~umask)
                os.fsync(handle)
                # Before the file is closed: its lock ends with it.
                os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)

    def _scan(self) -> Iterator[tuple[Path, os.stat_result]]:
        return ((path, stat) for path, stat in _found(self._entries, "*/*") if KEY.fullmatch(path.name))

    def _scan_partial(self) -> Iterator[tuple[Path, os.stat_result]]:
        return ((path, stat) for path, stat in _found(self._partial, "*") if _PARTIAL.fullmatch(path.name))

    def _warn(self, path: Path, error: OSError) -> None:
        print(f"cache: {error.filename or path}: {error.strerror}; going on without it", file=sys.stderr)


def _line(key: str, size: int, digest: str) -> bytes:
    return f"{_MAGIC} {key} {size} {digest}\n".encode()


def _content(path: Path, key: str, most: float = math.inf) -> bytes | None:
    """Content of an entry; None if it is damaged or larger than ``most``. What is returned fits its hash."""
    with open(shared_file.opened(path), "rb") as stream:
        first = stream.readline(_LONGEST_LINE)
        size = os.fstat(stream.fileno()).st_size - len(first)
        # Its size first: a forged one may be larger than the memory.
        if size > most or not first.startswith(_line(key, size, "").rstrip(b"\n")):
            return None
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        stream.seek(len(first))
        return stream.read(size) if first == _line(key, size, digest) else None


def _claim(handle: int, key: str, wait: bool) -> bool:
    """Lock the place of a key in the file of claims; False if another process has it and we do not ``wait``."""
    place = int(key[:_PLACE_DIGITS], 16)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except (BlockingIOError, PermissionError):
        if not wait:
            return False
        print("cache: waiting for another workflow, which makes an entry that is needed here", file=sys.stderr)
        fcntl.lockf(handle, fcntl.LOCK_EX, 1, place)
    return True


def _promised(size: int) -> int | None:
    """Number of promised bytes; None if nobody has counted yet or the file is damaged."""
    try:
        return int(os.pread(size, 40, 0))
    except ValueError:
        return None


def _promise(size: int, number: int) -> None:
    """Write the number in one piece, in place: a folder that protects files of other users allows no other way."""
    os.pwrite(size, b"%020d" % number, 0)


def _remove_if_dead(path: Path) -> bool:
    """Remove a partial file whose writer is gone: the system has released its lock."""
    try:
        handle = shared_file.opened(path)
    except OSError:
        # Gone, another user's, or no plain file.
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _unlink(path)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)


def _unlink(path: Path) -> bool:
    """Remove a file; False if it is gone already, is a folder, or another user's in a folder that protects it."""
    try:
        path.unlink()
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        return False
    return True


def _found(folder: Path, pattern: str) -> Iterator[tuple[Path, os.stat_result]]:
    """Files of a folder and their states, sorted, less those that others remove meanwhile or that a link leads to."""
    for path in sorted(folder.glob(pattern)):
        with suppress(FileNotFoundError):
            if not (folder.is_symlink() or path.parent.is_symlink()):
                yield path, path.lstat()


def open_cache(folder: str | None, max_gib: float) -> Cache:
    """Cache that the configuration describes; ``UserError`` if the folder is no absolute path."""
    if folder is not None and not Path(folder).expanduser().is_absolute():
        raise UserError(f"cache.folder: {folder!r}: give an absolute path; a cache is shared between workflows")
    return Cache(default_folder() if folder is None else Path(folder).expanduser(), int(max_gib * 2**30))
