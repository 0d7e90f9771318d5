"""The trees of C++ headers that kernels include: where they are, and which of their headers a text includes."""

import hashlib
import importlib.util
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tileseer.core.cache import default_folder
from tileseer.core.checkout import source_of
from tileseer.core.errors import UserError
from tileseer.families.registry import of_toolchain
from tileseer.settings.compile import CkSettings

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.M)


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
    """SHA-256 of a header, and what it includes."""
    content = path.read_bytes()
    return hashlib.sha256(content).hexdigest(), tuple(found.decode() for found in _INCLUDE.findall(content))


@dataclass(frozen=True)
class Library:
    """A library of kernels, whose tree is that of the settings or lies at one of some places."""

    what: str
    section: str
    """Section of the settings whose ``root`` is the top folder of a tree."""
    folder: str
    """Folder of the library below ``include``."""
    mark: str
    """Path that a tree has."""
    how: str
    """How to get it, for messages."""
    places: Callable[[], list[Path]]

    def find(self, root: str | None) -> Path:
        """Top folder of its tree: ``root``, else the first place that has one; ``UserError`` if there is none."""
        if root:
            path = Path(root).expanduser()
            if not (path / self.mark).exists():
                kind = "file" if Path(self.mark).suffix else "folder"
                raise UserError(f"{self.section}.root: {path} has no {kind} {self.mark}; {self.how}")
            return path
        places = self.places()
        for place in places:
            if (place / self.mark).exists():
                return place
        raise UserError(f"no {self.what} in {', '.join(map(str, places))}; {self.how}")

    def tree(self, root: str | None) -> HeaderTree:
        """Its headers."""
        return HeaderTree(self.find(root) / "include", self.folder)


def folders(*variables: str, default: str) -> list[Path]:
    """Folders that variables of the environment name, then the default one."""
    named = [os.environ.get(name, "") for name in variables]
    return [Path(folder) for folder in dict.fromkeys((*named, default)) if folder]


def rocm_folders() -> list[Path]:
    """Where a ROCm install would be: ``$ROCM_PATH``, then ``/opt/rocm``."""
    return folders("ROCM_PATH", default="/opt/rocm")


def brought(folder: str) -> Path:
    """Where ``make toolchain`` (``toolchain``) and ``make cuda-toolchain`` (``cuda-toolchain``) put theirs."""
    return default_folder() / folder


def _cutlass_places() -> list[Path]:
    named = os.environ.get("CUTLASS_PATH", "")
    package = importlib.util.find_spec("cutlass_library")
    places = [Path(named)] if named else []
    places += [Path(package.origin).parent / "source"] if package and package.origin else []
    return [*places, brought("cuda-toolchain") / "cutlass"]


CK = Library(
    "Composable Kernel tree",
    "ck",
    "ck_tile",
    "include/ck_tile",
    "run `make toolchain`, or set ck.root to the top folder of a Composable Kernel tree",
    lambda: [*rocm_folders(), brought("toolchain") / "ck"],
)
CUTLASS = Library(
    "CUTLASS headers",
    "cutlass",
    "cutlass",
    "include/cutlass/cutlass.h",
    "run `make cuda-toolchain`, or set cutlass.root to the top folder of a CUTLASS tree",
    _cutlass_places,
)


def ck_level(settings: CkSettings, table: Path, compiles: bool) -> str:
    """Level of CK Tile's API to write kernels for; where nothing is compiled, only a tree of the settings is asked."""
    api = of_toolchain("hipcc").part("api")
    if settings.api != "auto":
        return settings.api
    return api.detect(table, CK.find(settings.root)) if compiles or settings.root else api.NEWEST


def commit(root: Path) -> str | None:
    """Commit of a tree: of a checkout, or as an installed one says; None where it is unknown."""
    if (root / ".git").exists():
        return source_of(root).commit
    header = root / "include/ck/version.h"
    told = re.search(r"#define CK_COMMIT_ID\s+(\w+)", header.read_text()) if header.is_file() else None
    return told[1] if told else None
