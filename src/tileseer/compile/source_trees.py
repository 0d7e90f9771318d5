"""The trees of C++ headers that kernels include, and which of their headers a text includes."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from tileseer.config.compile import CkSettings
from tileseer.core.checkout import source_of
from tileseer.kernels.ck_tile import api as ck_api
from tileseer.kernels.library import LIBRARIES

_TEXT = re.compile(
    rb"""//(?:\\\n|[^\n])*|/\*.*?\*/|R"([^()\s\\]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S
)
"""A comment or a literal of C++."""
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.M)
_LINE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"].*$', re.M)


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
            self._digests[direct] = self._digest_of(self._included(text))
        return self._digests[direct]

    def whole_digest(self) -> str:
        """SHA-256 of every file of the kernel library."""
        files = (path for path in (self.include / self.folder).rglob("*") if path.is_file())
        return self._digest_of(str(path.relative_to(self.include)) for path in sorted(files))

    def _digest_of(self, paths: Iterable[str]) -> str:
        lines = (f"{path} {_read(self.include / path)[0]}\n" for path in paths)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

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


@cache
def _read(path: Path) -> tuple[str, tuple[str, ...]]:
    """SHA-256 of a header without comments and white space, and what it includes."""
    content = path.read_bytes()
    bare = _TEXT.sub(lambda match: b" " if match[0].startswith(b"/") else match[0], content)
    lines = (b" ".join(line.split()) for line in bare.splitlines())
    digest = hashlib.sha256(b"\n".join(line for line in lines if line)).hexdigest()
    return digest, tuple(name.decode() for name in _INCLUDE.findall(content))


def content_digest(path: Path) -> str:
    """SHA-256 of a header without comments and white space: what a compiler makes something of."""
    return _read(path)[0]


def include_lines(text: bytes) -> bytes:
    """The lines of ``text`` that include headers."""
    return b"".join(line.strip() + b"\n" for line in _LINE.findall(text))


def tree_of(toolchain: str, roots: Mapping[str, str | None]) -> HeaderTree:
    """Headers that kernels of a toolchain are compiled against; ``roots``: folders of the settings, by section."""
    library = LIBRARIES[toolchain]
    return HeaderTree(library.find(roots[library.section]) / "include", library.folder)


def ck_level(settings: CkSettings, table: Path, compiles: bool) -> str:
    """Level of CK Tile's API to write kernels for; where nothing is compiled, only a tree of the settings is asked."""
    if settings.api != "auto":
        return settings.api
    if compiles or settings.root:
        return ck_api.detect(table, LIBRARIES["hipcc"].find(settings.root))
    return ck_api.NEWEST


def commit(root: Path) -> str | None:
    """Commit of a tree: of a checkout, or as an installed one says; None where it is unknown."""
    if (root / ".git").exists():
        return source_of(root).commit
    header = root / "include/ck/version.h"
    match = re.search(r"#define CK_COMMIT_ID\s+(\w+)", header.read_text()) if header.is_file() else None
    return match[1] if match else None
