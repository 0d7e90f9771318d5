"""Installed packages: published models of GPUs, and cuDNN."""

from __future__ import annotations

from importlib import metadata, util
from pathlib import Path

from tileseer.core.errors import UserError

GROUP = "tileseer.models"
"""Entry points of packages of models: name of the arch, and the package whose folder has ``index.json``."""


def model_of_gpu(major: int, minor: int) -> Path:
    """Return the folder of the installed cuDNN models of a GPU; ``UserError`` where there is none."""
    arch = f"sm_{major}{minor}_cudnn"
    for point in metadata.entry_points(group=GROUP, name=arch):
        spec = util.find_spec(point.value)
        if spec and spec.origin:
            return Path(spec.origin).parent
    raise UserError(
        f"no package with models of {arch} is installed; install {package_of_arch(arch)} (make wheels builds "
        f"it), or give the folder of a model, such as results/models/{arch}"
    )


def package_of_arch(arch: str) -> str:
    """Return the name of the package of an arch's models: ``tileseer-models-sm90-cudnn``."""
    name, _, library = arch.rpartition("_")
    return f"tileseer-models-{name.replace('_', '')}-{library}"


def cudnn_package(library: str | None, cuda: str | None = None) -> str:
    """Return what to install for a version of cuDNN: of ``cudnn 91900``, ``nvidia-cudnn-cu13==9.19.0.*``.

    ``cuda`` is PyTorch's version of CUDA, such as 12.8; None: 13.
    """
    number = int(str(library).split()[-1])
    version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    return f"nvidia-cudnn-cu{(cuda or '13').partition('.')[0]}=={version}.*"
