"""Packages of published models, which an installation finds by the GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from importlib import metadata, util
from pathlib import Path

import torch

from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.libraries.cudnn.library import CUDNN
from tileseer.libraries.registry import library_of_arch

GROUP = "tileseer.models"
"""Entry points of packages of models: the arch, and the package."""
MODEL = "model"
"""Folder of a package that has ``index.json`` and all that it lists."""
OF_CUDNN = "_cudnn"


def model_of_gpu(major: int, minor: int) -> Path:
    """Return the folder of the installed cuDNN models of a GPU; ``UserError`` where there is none."""
    for point in metadata.entry_points(group=GROUP, name=_arch(major, minor)):
        spec = util.find_spec(point.value)
        if spec and spec.origin:
            return Path(spec.origin).parent / MODEL
    raise _no_models([(major, minor)], installed_archs())


def arch_of_model(folder: Path) -> str:
    """Return the arch of a folder of models; ``UserError`` where it is none, or not one of cuDNN's plans."""
    arch = model_files.parse_index(folder).arch
    if library_of_arch(arch) is not CUDNN:
        raise UserError(
            f"{folder}: its models are of {arch}, not of cuDNN's plans; make such: tileseer run --arch "
            "sm_90_cudnn, or give none: the installed package's"
        )
    return arch


def installed_archs() -> list[str]:
    """Return the archs of the installed packages with models of cuDNN's plans."""
    return sorted({point.name for point in metadata.entry_points(group=GROUP) if point.name.endswith(OF_CUDNN)})


def check_gpus(archs: Collection[str]) -> None:
    """Refuse GPUs for none of which there are models (``UserError``), as far as that is known without starting CUDA."""
    gpus = visible_gpus()
    if not archs or (gpus and not any(_arch(*gpu) in archs for gpu in gpus)):
        raise _no_models(gpus, archs)


def visible_gpus() -> list[tuple[int, int]]:
    """Return the compute capabilities of the GPUs; those of the whole machine, or none, while CUDA is not started."""
    if torch.cuda.is_initialized():
        return sorted({torch.cuda.get_device_capability(number) for number in range(torch.cuda.device_count())})
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return []
    if nvml.nvmlInit_v2():
        return []
    count, major, minor, device = ctypes.c_uint(), ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    gpus = set()
    for number in range(count.value):
        failed = nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(number), ctypes.byref(device))
        if not failed and not nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor)):
            gpus.add((major.value, minor.value))
    nvml.nvmlShutdown()
    return sorted(gpus)


def package_of_arch(arch: str) -> str:
    """Return the name of the package of an arch's models: ``tileseer-models-sm90-cudnn``."""
    name, _, library = arch.rpartition("_")
    return f"tileseer-models-{name.replace('_', '')}-{library}"


def _arch(major: int, minor: int) -> str:
    return f"sm_{major}{minor}{OF_CUDNN}"


def _no_models(gpus: Collection[tuple[int, int]], archs: Collection[str]) -> UserError:
    there = f"there are models of {', '.join(archs)} alone" if archs else "no package of models is installed"
    wanted = ", ".join(_arch(*gpu) for gpu in gpus) or "this GPU"
    return UserError(
        f"there are no models for the GPU ({wanted}): {there}; install such a package (make wheels builds that of "
        f"sm_90_cudnn, for H100 and H200), or measure cuDNN's plans on your own GPU (docs/nvidia.md)"
    )
