"""The Composable Kernel tree: where it is, of which API level, and which of its headers a text includes."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

from tilewright import ck_api
from tilewright.cache import default_folder
from tilewright.errors import UserError
from tilewright.settings.compile import CkSettings
from tilewright.toolchain.compiler import rocm_folders

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"](ck_tile/[^>"]+|ck/[^>"]+)[>"]', re.M)
HOW = "run `make toolchain`, or set ck.root to the top folder of a Composable Kernel tree"


def brought_root() -> Path:
    """Return where ``make toolchain`` puts its tree."""
    return default_folder() / "toolchain" / "ck"


def find(settings: CkSettings) -> Path:
    """Return the tree of the settings, of ROCm or of ``make toolchain``; ``UserError`` if there is none."""
    if settings.root:
        root = Path(settings.root).expanduser()
        if not (root / "include/ck_tile").is_dir():
            raise UserError(f"ck.root: {root} has no folder include/ck_tile; {HOW}")
        return root
    places = [*rocm_folders(), brought_root()]
    for root in places:
        if (root / "include/ck_tile").is_dir():
            return root
    raise UserError(f"no Composable Kernel tree in {', '.join(map(str, places))}; {HOW}")


def level(settings: CkSettings, table: Path, compiles: bool) -> str:
    """Return the API level to write kernels for; where nothing is compiled, a tree is asked only if one is named."""
    if settings.api != "auto":
        return settings.api
    if not compiles and not settings.root:
        return ck_api.NEWEST
    return ck_api.detect(table, find(settings))


class CkTree:
    """The headers below ``root/include``, read once each."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.include = root / "include"
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

    def whole_digest(self) -> str:
        """Return a SHA-256 of every header of ``ck_tile``: what a rule compares to know that something changed."""
        total = hashlib.sha256()
        for path in sorted((self.include / "ck_tile").rglob("*.hpp")):
            total.update(f"{path.relative_to(self.include)} {_read(path)[0]}\n".encode())
        return total.hexdigest()


@cache
def _read(path: Path) -> tuple[str, tuple[str, ...]]:
    """Return the SHA-256 of a header and what it includes of the tree."""
    content = path.read_bytes()
    return hashlib.sha256(content).hexdigest(), tuple(found.decode() for found in _INCLUDE.findall(content))
