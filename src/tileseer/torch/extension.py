"""The kernels of PyTorch's convolution, compiled at their first use."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from tileseer.core import cache, locks
from tileseer.core.errors import UserError
from tileseer.core.reading import read_utf8

SOURCES = Path(__file__).with_name("native")
CUDNN = SOURCES / "cudnn"
HEADERS = (("cudnn.h", "nvidia.cudnn"), ("cuda_runtime_api.h", "nvidia.cu13"), ("crt/host_defines.h", "triton"))
"""Headers that cuDNN's plans need, and the package of PyTorch's own wheels that has them."""


@functools.cache
def load(plans: Path = CUDNN) -> Any:
    """Compile (once per machine and version of PyTorch) and load the kernels; ``UserError`` where that cannot be.

    ``plans`` has the header ``plans.hpp`` of a library of plans. Processes that come at the same time compile once: the
    others wait for a lock that the system frees when its process ends.
    """
    name = f"tileseer_{_digest(plans)}"
    folder = cache.default_folder() / "torch" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locks.hold_folder(folder):
            if not (folder / "complete").exists():
                with _without_starting_cuda():
                    _compile(name, folder, plans)
                (folder / "complete").touch()
        return _import(name, folder / f"{name}.so")
    except (RuntimeError, OSError, ImportError, subprocess.SubprocessError) as error:
        lines = str(error).splitlines() or [repr(error)]
        reason = next((line for line in lines if "error:" in line or "not found" in line), lines[0])
        raise UserError(
            f"tileseer's kernels for PyTorch cannot be compiled in {folder} ({reason.strip()}); it takes a C++ "
            "compiler and ninja"
        ) from error


def check_cudnn() -> None:
    """Refuse a cuDNN that PyTorch itself refuses (``UserError``): an older one than it was built with."""
    built, found = torch._C._cudnn.getCompileVersion(), torch._C._cudnn.getRuntimeVersion()
    if found[0] == built[0] and found[1] >= built[1]:
        return
    required = (one.partition(";")[0].strip() for one in metadata.requires("torch") or ())
    own = next((one for one in required if one.startswith("nvidia-cudnn-")), "PyTorch again")
    raise UserError(
        f"PyTorch {torch.__version__} was built with cuDNN {_dotted(built)}, and refuses the older {_dotted(found)} "
        f"that is installed: install {own}"
    )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _compile(name: str, folder: Path, plans: Path) -> None:
    from torch.utils import cpp_extension

    # What a killed process left, with PyTorch's own lock, for which it would wait for ever.
    for left in folder.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    cpp_extension.JIT_EXTENSION_VERSIONER.entries.pop(name, None)  # or what failed once would count as compiled
    of_cuda = plans == CUDNN
    cpp_extension.load(
        name=name,
        sources=[str(SOURCES / name) for name in ("override.cpp", "bindings.cpp")],
        extra_cflags=["-O2", "-fvisibility=hidden"],
        extra_include_paths=[str(part) for part in (SOURCES, plans, *(_include_folders() if of_cuda else ()))],
        # Linked by hand: PyTorch's own way needs a CUDA toolkit, and the kernels have no code for the device.
        extra_ldflags=[f"-L{Path(torch.__file__).parent / 'lib'}", "-lc10_cuda", "-ltorch_cuda"] if of_cuda else [],
        build_directory=str(folder),
        is_python_module=False,
        is_standalone=False,
    )


def _import(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _digest(plans: Path) -> str:
    """Sixteen digits for all that the compiled kernels depend on."""
    parts = [torch.__version__, str(torch.version.cuda), sys.version, _library_version()]
    parts += [read_utf8(path) for path in (*sorted(SOURCES.glob("*.?pp")), plans / "plans.hpp")]
    return cache.key(*parts)[:16]


def _library_version() -> str:
    """Return cuDNN's version; PyTorch's own function starts CUDA."""
    return str(torch._C._cudnn.getVersionInt()) if torch.backends.cudnn.is_available() else ""


@contextlib.contextmanager
def _without_starting_cuda() -> Iterator[None]:
    """Let PyTorch ask the driver's library whether there is a GPU: its own way ends the use of CUDA after a fork."""
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _include_folders() -> list[Path]:
    """Where the headers are: in a CUDA toolkit, in PyTorch's own wheels, or where the compiler looks anyway."""
    from torch.utils.cpp_extension import CUDA_HOME

    toolkit = [Path(CUDA_HOME, "include")] if CUDA_HOME else []
    folders = []
    for header, package in HEADERS:
        candidates = [*toolkit, *_package_folders(package)]
        folders += [folder for folder in candidates if (folder / header).is_file()][:1]
    return list(dict.fromkeys(folders))


def _package_folders(package: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(package)
    except ImportError:
        return []
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else ()
    return [root / part for root in roots for part in ("include", os.path.join("backends", "nvidia", "include"))]
