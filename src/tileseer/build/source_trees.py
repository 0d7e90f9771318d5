"""The trees of C++ headers that kernels include."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tileseer.core.checkout import source_of
from tileseer.core.reading import read_bytes, read_utf8
from tileseer.facts.compile import CkSettings
from tileseer.libraries.registry import tree_of_toolchain

_COMMENT_OR_LITERAL = re.compile(
    rb"""//(?:\\\n|[^\n])*|/\*.*?\*/|R"([^()\s\\]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S
)
"""A comment or a literal of C++."""


@dataclass(frozen=True)
class HeaderTree:
    """The headers below an include folder; ``folder``: the one of the kernel library in it."""

    include: Path
    folder: str = "."

    def digest(self) -> str:
        """Return the SHA-256 of every file of the kernel library, without comments and white space."""
        files = sorted(path for path in (self.include / self.folder).rglob("*") if path.is_file())
        lines = (f"{path.relative_to(self.include)} {content_digest(path)}\n" for path in files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()


@cache
def content_digest(path: Path) -> str:
    """Return the SHA-256 of a header without comments and white space: what a compiler makes something of."""
    bare = _COMMENT_OR_LITERAL.sub(lambda match: b" " if match[0].startswith(b"/") else match[0], read_bytes(path))
    lines = (b" ".join(line.split()) for line in bare.splitlines())
    return hashlib.sha256(b"\n".join(line for line in lines if line)).hexdigest()


def tree_of(toolchain: str, roots: Mapping[str, str | None]) -> HeaderTree:
    """Return the headers that kernels of a toolchain are compiled against; ``roots``: folders by section."""
    tree = tree_of_toolchain(toolchain)
    return HeaderTree(tree.find(roots[tree.section]) / "include", tree.folder)


def ck_level(settings: CkSettings, table: Path, compiles: bool) -> str:
    """Return the level of CK Tile's API to write for; without compiling, only a tree of the settings is asked."""
    if settings.api != "auto":
        return settings.api
    tree = tree_of_toolchain("hipcc")
    return tree.level(table, tree.find(settings.root) if compiles or settings.root else None)


def tree_commit(root: Path) -> str | None:
    """Return the commit of a tree: of a checkout, or as an installed one says; None where it is unknown."""
    if (root / ".git").exists():
        return source_of(root).commit
    header = root / "include/ck/version.h"
    match = re.search(r"#define CK_COMMIT_ID\s+(\w+)", read_utf8(header)) if header.is_file() else None
    return match[1] if match else None
