"""A tree of C++ headers that kernels include: where it is, and which of its headers a text includes."""

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tileseer.core.errors import UserError

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.M)


def find_root(what: str, mark: str, option: str, root: str | None, places: Sequence[Path], how: str) -> Path:
    """Top folder of a tree: ``root`` (of the settings' ``option``), else the first place that has the path ``mark``."""
    if root:
        if not Path(root).expanduser().joinpath(mark).exists():
            kind = "file" if Path(mark).suffix else "folder"
            raise UserError(f"{option}: {Path(root).expanduser()} has no {kind} {mark}; {how}")
        return Path(root).expanduser()
    for place in places:
        if (place / mark).exists():
            return place
    raise UserError(f"no {what} in {', '.join(map(str, places))}; {how}")


class HeaderTree:
    """The headers below an include folder, read once each; what is not in it (the system's) does not count.

    ``folder``: its folder with the kernel library.
    """

    def __init__(self, include: Path, folder: str = ".") -> None:
        self.include, self.folder = include, folder
        self._digests: dict[bytes, str] = {}

    def digest(self, text: bytes) -> str:
        """SHA-256 of the headers that ``text`` includes, directly or through others, and of nothing else.

        Conditions of the preprocessor are not evaluated: a header under an ``#if`` counts as included.
        """
        direct = b"\n".join(sorted(set(_INCLUDE.findall(text))))
        if direct not in self._digests:
            total = hashlib.sha256()
            for path in self._included(text):
                total.update(f"{path} {_read(self.include / path)[0]}\n".encode())
            self._digests[direct] = total.hexdigest()
        return self._digests[direct]

    def _included(self, text: bytes) -> list[str]:
        """Headers of the tree that ``text`` includes, directly or through others, sorted."""
        seen: set[str] = set()
        waiting = [path.decode() for path in _INCLUDE.findall(text)]
        while waiting:
            path = waiting.pop()
            if path not in seen and (self.include / path).is_file():
                seen.add(path)
                waiting.extend(_read(self.include / path)[1])
        return sorted(seen)

    def whole_digest(self) -> str:
        """SHA-256 of every file of the kernel library."""
        total = hashlib.sha256()
        for path in sorted(path for path in (self.include / self.folder).rglob("*") if path.is_file()):
            total.update(f"{path.relative_to(self.include)} {_read(path)[0]}\n".encode())
        return total.hexdigest()


@cache
def _read(path: Path) -> tuple[str, tuple[str, ...]]:
    """SHA-256 of a header, and what it includes."""
    content = path.read_bytes()
    return hashlib.sha256(content).hexdigest(), tuple(found.decode() for found in _INCLUDE.findall(content))
