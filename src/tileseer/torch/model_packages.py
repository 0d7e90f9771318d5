"""Packages of published models, which an installation finds by the GPU."""

from __future__ import annotations

from importlib import metadata, util
from pathlib import Path

from tileseer.core.errors import UserError

GROUP = "tileseer.models"
"""Entry points of packages of models: the arch, and the package."""
MODEL = "model"
"""Folder of a package that has ``index.json`` and all that it lists."""


def model_of_gpu(major: int, minor: int) -> Path:
    """Return the folder of the installed cuDNN models of a GPU; ``UserError`` where there is none."""
    arch = f"sm_{major}{minor}_cudnn"
    for point in metadata.entry_points(group=GROUP, name=arch):
        spec = util.find_spec(point.value)
        if spec and spec.origin:
            return Path(spec.origin).parent / MODEL
    raise UserError(
        f"no package with models of {arch} is installed; install {package_of_arch(arch)} (make wheels builds "
        f"it), or give the folder of a model, such as results/models/{arch}"
    )


def package_of_arch(arch: str) -> str:
    """Return the name of the package of an arch's models: ``tileseer-models-sm90-cudnn``."""
    name, _, library = arch.rpartition("_")
    return f"tileseer-models-{name.replace('_', '')}-{library}"
