"""The Composable Kernel tree: where it is, and of which API level."""

from __future__ import annotations

import re
from pathlib import Path

from tileseer.compile.compiler import brought, rocm_folders
from tileseer.compile.header_tree import HeaderTree
from tileseer.core.checkout import source_of
from tileseer.core.errors import UserError
from tileseer.families.ck_tile import ck_api
from tileseer.settings.compile import CkSettings

HOW = "run `make toolchain`, or set ck.root to the top folder of a Composable Kernel tree"


def brought_root() -> Path:
    """Return where ``make toolchain`` puts its tree."""
    return brought("toolchain") / "ck"


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


def commit(root: Path) -> str | None:
    """Return the commit of a tree: of a checkout, or as an installed one says; None where nobody knows."""
    if (root / ".git").exists():
        return source_of(root).commit
    header = root / "include/ck/version.h"
    told = re.search(r"#define CK_COMMIT_ID\s+(\w+)", header.read_text()) if header.is_file() else None
    return told[1] if told else None


class CkTree(HeaderTree):
    """The headers below ``root/include``."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / "include")
        self.root = root
