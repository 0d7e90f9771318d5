"""A cache directory that workflows and users share: what a digest stands for is made once and kept.

::

    FOLDER/entries/ab/abcdef...    one entry: a line with key, size and SHA-256 of the content, then the content
    FOLDER/partial/                entries that are being written, of full size from the start
    FOLDER/size, FOLDER/size.lock  the bytes promised to entries, and the lock of that number
    FOLDER/claims                  empty; its locks say who makes which entry just now (``cache_claims``)

An entry appears by a rename, so a reader finds it whole or not at all, and its content is checked at every read: a
damaged entry is removed and counts as absent. Who writes reserves the space first, so the bound holds whoever is
killed when; what the dead have reserved or left half written is found at the next collection. All can be lost at any
time: an entry that cannot be written or read costs the time to make it again, and nothing else.
"""

import fcntl
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tileseer.core import build_locks
from tileseer.core.errors import UserError

KEY = re.compile(r"[0-9a-f]{64}")
_MAGIC = b"tileseer-cache-1"
_KEPT_SHARE = 0.9
"""Share of the bound that a collection leaves, so that not every entry after it needs another one."""


class Entry(NamedTuple):
    """One file of the cache, as the file system knows it."""

    path: Path
    size: int
    last_used: int


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

    @property
    def held(self) -> int:
        """Bytes that are taken: entries and what will become one."""
        return self.bytes + self.partial_bytes


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
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(path, error)
            return None
        payload, fault = _checked(key, content)
        if payload is None:
            print(f"cache: {path}: {fault}; it is removed and made again", file=sys.stderr)
            _unlink(path)
            return None
        self._touch(path)
        return payload

    def put(self, key: str, content: bytes, replace: bool = False) -> bool:
        """Keep ``content`` under ``key``; True if the key has an entry then. A sound one stays, unless ``replace``.

        Content above the bound, a full disk or a read-only folder are no error: the caller has the content. The
        reason is printed on stderr.
        """
        path = self._path(key)
        whole = _header(key, content) + content
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
        """Hold the claims on making some entries; yield the keys that are ours to make (``cache_claims.claimed``).

        Where nothing is kept, or the folder cannot be written, all are ours.
        """
        with ExitStack() as stack:
            ours = set(keys)
            if self._max_bytes:
                try:
                    self._folder.mkdir(parents=True, exist_ok=True)
                    ours = stack.enter_context(build_locks.claimed(self._folder / "claims", keys, wait))
                except OSError as error:
                    self._warn(self._folder, error)
            yield ours

    def stats(self) -> Stats:
        """Number of entries and their size together."""
        entries = list(self._scan())
        return Stats(str(self._folder), len(entries), sum(entry.size for entry in entries), self._max_bytes)

    def collect(self, max_bytes: int | None = None) -> Collected:
        """Remove what was used longest ago until at most ``max_bytes`` are left, and what dead writers left."""
        if not self._folder.is_dir():
            return Collected(0, 0, 0, 0, 0, 0)
        with self._size() as size:
            return self._collect(size, self._max_bytes if max_bytes is None else max_bytes)

    def verify(self, repair: bool = False) -> dict[Path, str]:
        """Check every entry against its own hash; return what is wrong by path. ``repair`` removes those files."""
        faults = {}
        for entry in self._scan():
            try:
                fault = _checked(entry.path.name, entry.path.read_bytes())[1]
            except FileNotFoundError:
                continue  # Another process has collected it since.
            except OSError as error:
                fault = f"cannot be read: {error.strerror}"
            if fault:
                faults[entry.path] = fault
                if repair:
                    _unlink(entry.path)
        return dict(sorted(faults.items()))

    def _path(self, key: str) -> Path:
        if not KEY.fullmatch(key):
            raise ValueError(f"a cache key has 64 hex digits, not {key!r}")
        return self._entries / key[:2] / key

    def _make_folders(self, folder: Path) -> None:
        """Make the folders of an entry; they take the permissions of the cache, which its owner chose."""
        self._folder.mkdir(parents=True, exist_ok=True)
        mode = self._folder.stat().st_mode & 0o7777
        for path in (self._partial, self._entries, folder):
            try:
                path.mkdir()
            except FileExistsError:
                continue
            path.chmod(mode)

    @contextmanager
    def _size(self) -> Iterator[Path]:
        """Hold the lock of the number of promised bytes; yield its file."""
        from filelock import FileLock  # Not above: a stage that only reads starts in half the time.

        # Everybody must be able to open the file, whoever made it.
        with FileLock(self._folder / "size.lock", mode=0o666):
            yield self._folder / "size"

    def _reserve(self, size: Path, path: Path, wanted: int) -> tuple[int, Path]:
        """Partial file of the wanted size, locked, so that no collection takes it for a dead one.

        The caller holds the lock of ``size``, as a collection does: none comes between making and locking.
        """
        promised = _promised(size)
        if promised is None or promised + wanted > self._max_bytes:
            promised = self._collect(size, max(0, int(self._max_bytes * _KEPT_SHARE) - wanted)).held
        # Promised before there is a file: who is killed in between leaves a promise too much, never one too few.
        _promise(size, promised + wanted)
        partial = self._partial / f"{path.name}.{os.urandom(6).hex()}"
        handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.ftruncate(handle, wanted)
        return handle, partial

    def _collect(self, size: Path, max_bytes: int) -> Collected:
        """Remove entries, oldest first; the caller holds the lock of ``size``."""
        dead = sum(_remove_if_dead(path) for path in _files(self._partial))
        # What others are writing just now is no entry yet; its file has its full size from the start. It is counted
        # first: what becomes an entry meanwhile is counted twice, never left out.
        writing = sum(map(_size_of, _files(self._partial)))
        entries = sorted(self._scan(), key=lambda entry: (entry.last_used, entry.path))
        left, removed, removed_bytes = sum(entry.size for entry in entries), 0, 0
        for entry in entries:
            if left - removed_bytes <= max_bytes:
                break
            if _unlink(entry.path):
                removed += 1
                removed_bytes += entry.size
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

    def _scan(self) -> Iterator[Entry]:
        for folder in _folders(self._entries):
            for path in _files(folder):
                if KEY.fullmatch(path.name):
                    try:
                        stat = path.stat()
                    except FileNotFoundError:
                        continue  # Another process has collected it since.
                    yield Entry(path, stat.st_size, stat.st_mtime_ns)

    def _touch(self, path: Path) -> None:
        try:
            os.utime(path)
        except OSError:
            # The entry of another user, or gone by now: its age only decides how soon it is collected.
            return

    def _warn(self, path: Path, error: OSError) -> None:
        print(f"cache: {error.filename or path}: {error.strerror}; going on without it", file=sys.stderr)


def _header(key: str, content: bytes) -> bytes:
    digest = hashlib.sha256(content).hexdigest()
    return b"%s %s %d %s\n" % (_MAGIC, key.encode(), len(content), digest.encode())


def _checked(key: str, whole: bytes) -> tuple[bytes | None, str]:
    """(content, "") of an entry, or (None, its fault)."""
    line, _, content = whole.partition(b"\n")
    if not line.startswith(_MAGIC + b" "):
        return None, "it does not begin as an entry does"
    if line + b"\n" != _header(key, content):
        return None, "its content does not match the hash in its first line"
    return content, ""


def _promised(size: Path) -> int | None:
    """Number of promised bytes; None if nobody has counted yet or the file is damaged."""
    try:
        return int(size.read_text())
    except (FileNotFoundError, ValueError):
        return None


def _promise(size: Path, number: int) -> None:
    """Write the number in one piece, in place: a folder that protects files of other users allows no other way."""
    if not size.exists():
        os.close(os.open(size, os.O_CREAT | os.O_WRONLY))
        size.chmod(0o666)
    handle = os.open(size, os.O_WRONLY)
    try:
        os.pwrite(handle, b"%020d" % number, 0)
    finally:
        os.close(handle)


def _size_of(path: Path) -> int:
    """Size of a file; 0 if it has become an entry by now."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _remove_if_dead(path: Path) -> bool:
    """Remove a partial file whose writer is gone: the system has released its lock."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, PermissionError):
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _unlink(path)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)


def _unlink(path: Path) -> bool:
    """Remove a file; False if it is gone already or is another user's in a folder that protects it."""
    try:
        path.unlink()
    except (FileNotFoundError, PermissionError):
        return False
    return True


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []


def open_cache(folder: str | None, max_gib: float) -> Cache:
    """Cache that the configuration describes; ``UserError`` if the folder is no absolute path."""
    if folder is not None and not Path(folder).expanduser().is_absolute():
        raise UserError(f"cache.folder: {folder!r}: give an absolute path; a cache is shared between workflows")
    return Cache(default_folder() if folder is None else Path(folder).expanduser(), int(max_gib * 2**30))
