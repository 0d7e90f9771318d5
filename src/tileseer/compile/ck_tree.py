"""The Composable Kernel tree: where it is, and of which API level."""

import re
from pathlib import Path

from tileseer.compile.compiler import brought, rocm_folders
from tileseer.compile.header_tree import HeaderTree, find_root
from tileseer.core.checkout import source_of
from tileseer.families.registry import of_toolchain
from tileseer.settings.compile import CkSettings

HOW = "run `make toolchain`, or set ck.root to the top folder of a Composable Kernel tree"


def find(settings: CkSettings) -> Path:
    """The tree of the settings, of ROCm or of ``make toolchain``; ``UserError`` if there is none."""
    places = [*rocm_folders(), brought("toolchain") / "ck"]
    return find_root("Composable Kernel tree", "include/ck_tile", "ck.root", settings.root, places, HOW)


def tree(settings: CkSettings) -> HeaderTree:
    """The headers."""
    return HeaderTree(find(settings) / "include", "ck_tile")


def level(settings: CkSettings, table: Path, compiles: bool) -> str:
    """API level to write kernels for; where nothing is compiled, a tree is asked only if the settings name one."""
    if settings.api != "auto":
        return settings.api
    if not compiles and not settings.root:
        return of_toolchain("hipcc").part("api").NEWEST
    return of_toolchain("hipcc").part("api").detect(table, find(settings))


def commit(root: Path) -> str | None:
    """Commit of a tree: of a checkout, or as an installed one says; None where it is unknown."""
    if (root / ".git").exists():
        return source_of(root).commit
    header = root / "include/ck/version.h"
    told = re.search(r"#define CK_COMMIT_ID\s+(\w+)", header.read_text()) if header.is_file() else None
    return told[1] if told else None
