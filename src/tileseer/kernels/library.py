"""Where the library lies that emitted C++ is compiled against."""

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tileseer.core.cache import default_folder
from tileseer.core.errors import UserError


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
    package = importlib.util.find_spec("cutlass_library")
    installed = [Path(package.origin).parent / "source"] if package and package.origin else []
    named = os.environ.get("CUTLASS_PATH", "")
    return [*([Path(named)] if named else []), *installed, brought("cuda-toolchain") / "cutlass"]


LIBRARIES = {
    "hipcc": Library(
        "Composable Kernel tree",
        "ck",
        "ck_tile",
        "include/ck_tile",
        "run `make toolchain`, or set ck.root to the top folder of a Composable Kernel tree",
        lambda: [*rocm_folders(), brought("toolchain") / "ck"],
    ),
    "nvcc": Library(
        "CUTLASS headers",
        "cutlass",
        "cutlass",
        "include/cutlass/cutlass.h",
        "run `make cuda-toolchain`, or set cutlass.root to the top folder of a CUTLASS tree",
        _cutlass_places,
    ),
}
"""By toolchain."""
