"""A cache directory that workflows and users share: what a digest stands for is made once and kept.

::

    FOLDER/entries/ab/abcdef...    one entry: a line with key, size and SHA-256 of the content, then the content

An entry appears by a rename, so a reader finds it whole or not at all, and its content is checked at every read: a
damaged entry is removed and counts as absent. Nothing is locked: two workflows that miss the same entry at the same
time both make it, and the later rename wins. A writer counts the folder before it fills it, and what was used longest
ago goes. All can be lost at any time: an entry that cannot be written or read costs the time to make it again.

It is not ``diskcache``: that reads pickles, and its SQLite index is not safe on a network disk.
"""

import hashlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from tileseer.core.atomic import LEFT_S, write_bytes
from tileseer.core.reading import regular_file

KEY = re.compile(r"[0-9a-f]{64}")
_PARTIAL = re.compile(r"\.[0-9a-f]{64}\.\w+\.tmp")
"""Name of an entry that is being written (``tileseer.core.atomic``)."""
_MAGIC = "tileseer-cache-1"
_LONGEST_LINE = 200
_KEPT_SHARE = 0.9
"""Share of the bound that pruning leaves, so that not every entry after it needs another one."""
_ROOM_SHARE = 0.25
"""Share of the free space that a process fills before it counts again: others write as well."""


def key(*parts: bytes | str) -> str:
    """Return the digest of what an entry depends on: 64 hex digits, other parts give another one."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        # The length first: ("ab", "c") must not be ("a", "bc").
        digest.update(f"{len(content)}:".encode() + content)
    return digest.hexdigest()


def default_folder() -> Path:
    """Return the cache folder of this user: ``$XDG_CACHE_HOME/tileseer`` or ``~/.cache/tileseer``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        # The XDG specification: a relative path is to be ignored.
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "tileseer"


def open_cache(folder: str | None, max_gib: float) -> "Cache":
    """Return the cache that the configuration describes."""
    return Cache(default_folder() if folder is None else Path(folder).expanduser(), int(max_gib * 2**30))


class Cache:
    """A cache folder of at most ``max_bytes`` bytes; 0 turns it off.

    Several processes that write at once may exceed the bound by what they are writing.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self._entries = folder / "entries"
        self._max_bytes = max_bytes
        self._room = 0
        """Bytes that this process may write before it counts the folder again."""

    def get(self, key: str) -> bytes | None:
        """Return the content kept under ``key``, or None; a damaged entry is removed, with a line on stderr."""
        path = self._path(key)
        if not self._max_bytes:
            return None
        try:
            with regular_file(path) as stream:
                first, content = stream.readline(_LONGEST_LINE), stream.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            _warn(path, error)
            return None
        if first != _line(key, content):
            print(
                f"cache: {path}: its content does not match the hash in its first line; it is removed and made again",
                file=sys.stderr,
            )
            _unlink(path)
            return None
        # The entry of another user, or gone by now: its age only decides how soon it goes.
        with suppress(OSError):
            os.utime(path)
        return content

    def put(self, key: str, content: bytes) -> bool:
        """Keep ``content`` under ``key``; True if the key has an entry then; a sound one stays.

        Content above the bound, a full disk or a read-only folder are no error: the caller has the content. The
        reason is printed on stderr.
        """
        path = self._path(key)
        whole = _line(key, content) + content
        if len(whole) > self._max_bytes:
            return False
        if self.get(key) is not None:
            return True
        try:
            self._make_folders(path.parent)
            self._make_room(len(whole))
            write_bytes(path, whole)
        except OSError as error:
            _warn(path, error)
            return False
        return True

    def made_once(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Return the content kept under ``key``; without one, ``make`` it and keep it."""
        kept = self.get(key)
        if kept is None:
            kept = make()
            self.put(key, kept)
        return kept

    def _prune(self, max_bytes: int) -> int:
        """Remove what was used longest ago until at most ``max_bytes`` are left, and what killed writers left.

        Return the bytes that are left.
        """
        for path, stat in self._scan(_PARTIAL):
            if stat.st_mtime < time.time() - LEFT_S:
                _unlink(path)
        entries = sorted((stat.st_mtime_ns, path, stat.st_size) for path, stat in self._scan(KEY))
        left = sum(size for _, _, size in entries)
        for _, path, size in entries:
            if left <= max_bytes:
                break
            left -= size if _unlink(path) else 0
        return left

    def _path(self, key: str) -> Path:
        return self._entries / key[:2] / key

    def _make_folders(self, folder: Path) -> None:
        """Make the folders of an entry; they take the permissions of the cache, which its owner chose."""
        self.folder.mkdir(parents=True, exist_ok=True)
        mode = self.folder.stat().st_mode & 0o7777
        for path in (self._entries, folder):
            with suppress(FileExistsError):
                path.mkdir()
                path.chmod(mode)

    def _make_room(self, size: int) -> None:
        """Prune so that ``size`` more bytes stay within the bound."""
        if size > self._room:
            total = sum(stat.st_size for _, stat in self._scan(KEY))
            if total + size > self._max_bytes:
                total = self._prune(max(0, int(self._max_bytes * _KEPT_SHARE) - size))
            self._room = size + int((self._max_bytes - total - size) * _ROOM_SHARE)
        self._room -= size

    def _scan(self, names: re.Pattern[str]) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield the files with such names and their states, less those that others remove meanwhile."""
        for path in self._entries.glob("*/*"):
            if names.fullmatch(path.name):
                with suppress(FileNotFoundError):
                    yield path, path.stat()


def _warn(path: Path, error: OSError) -> None:
    print(f"cache: {error.filename or path}: {error.strerror}; going on without it", file=sys.stderr)


def _line(key: str, content: bytes) -> bytes:
    return f"{_MAGIC} {key} {len(content)} {hashlib.sha256(content).hexdigest()}\n".encode()


def _unlink(path: Path) -> bool:
    """Remove a file, or see that another process did; False if it is another user's in a protected folder."""
    try:
        path.unlink(missing_ok=True)
    except PermissionError:
        return False
    return True
