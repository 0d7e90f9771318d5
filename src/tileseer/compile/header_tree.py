"""A tree of C++ headers that kernels include: which of them a text includes, and what those are."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.M)


class HeaderTree:
    """The headers below an include folder, read once each; what is not in it (the system's) does not count."""

    def __init__(self, include: Path) -> None:
        self.include = include
        self._digests: dict[bytes, str] = {}

    def digest(self, text: bytes) -> str:
        """Return a SHA-256 of the headers that ``text`` includes, directly or through others, and of nothing else.

        Conditions of the preprocessor are not evaluated: a header under an ``#if`` counts as included.
        """
        direct = b"\n".join(sorted(set(_INCLUDE.findall(text))))
        if direct not in self._digests:
            total = hashlib.sha256()
            for path in self.included(text):
                total.update(f"{path} {_read(self.include / path)[0]}\n".encode())
            self._digests[direct] = total.hexdigest()
        return self._digests[direct]

    def included(self, text: bytes) -> list[str]:
        """Return the headers of the tree that ``text`` includes, directly or through others, sorted."""
        seen: set[str] = set()
        waiting = [path.decode() for path in _INCLUDE.findall(text)]
        while waiting:
            path = waiting.pop()
            if path not in seen and (self.include / path).is_file():
                seen.add(path)
                waiting.extend(_read(self.include / path)[1])
        return sorted(seen)

    def whole_digest(self, folder: str) -> str:
        """Return a SHA-256 of every file below ``folder`` of the tree: a rule compares it to see that one changed."""
        total = hashlib.sha256()
        for path in sorted(path for path in (self.include / folder).rglob("*") if path.is_file()):
            total.update(f"{path.relative_to(self.include)} {_read(path)[0]}\n".encode())
        return total.hexdigest()


@cache
def _read(path: Path) -> tuple[str, tuple[str, ...]]:
    """Return the SHA-256 of a header and what it includes."""
    content = path.read_bytes()
    return hashlib.sha256(content).hexdigest(), tuple(found.decode() for found in _INCLUDE.findall(content))
