"""Where the library lies that emitted C++ is compiled against."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tileseer.core.cache import default_folder
from tileseer.core.errors import UserError


@dataclass(frozen=True)
class SourceTree:
    """The tree of a library's headers: that of the settings, or the first of some places that has one."""

    what: str
    section: str
    """Section of the settings whose ``root`` is the top folder of a tree."""
    folder: str
    """Folder of the library below ``include``."""
    target: str
    """What `make` brings a tree with."""
    places: Callable[[], list[Path]]
    level: Callable[[Path, Path | None], str] = lambda table, root: ""
    """(table of names, tree) to the level of the API to write for: that of the tree, without one the newest."""

    def find(self, root: str | None) -> Path:
        """Return the top folder: ``root``, else the first place that has a tree; ``UserError`` if there is none."""
        places = [Path(root).expanduser()] if root else self.places()
        for place in places:
            if (place / "include" / self.folder).is_dir():
                return place
        option = f"{self.section}.root"
        raise UserError(
            f"{f'{option}: ' if root else ''}no {self.what} in {', '.join(map(str, places))}: a tree has the folder "
            f"include/{self.folder}; run `make {self.target}`, or set {option}"
        )


def folders(*variables: str, default: str = "") -> list[Path]:
    """Return the folders that variables of the environment name, then the default one, if there is one."""
    named = [os.environ.get(name, "") for name in variables]
    return [Path(folder) for folder in dict.fromkeys((*named, default)) if folder]


def rocm_folders() -> list[Path]:
    """Return where a ROCm install would be: ``$ROCM_PATH``, then ``/opt/rocm``."""
    return folders("ROCM_PATH", default="/opt/rocm")


def brought(folder: str) -> Path:
    """Return where ``make toolchain`` (``toolchain``) and ``make cuda-toolchain`` (``cuda-toolchain``) put theirs."""
    return default_folder() / folder
