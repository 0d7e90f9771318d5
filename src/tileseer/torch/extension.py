"""The operators ``torch.ops.tileseer.*``: compiled at their first use, with their shapes for ``torch.compile``."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from tileseer.core.errors import UserError
from tileseer.core.seal import file_digest

SOURCE = Path(__file__).with_name("operator.cpp")
HEADERS = (("cudnn.h", "nvidia.cudnn"), ("cuda_runtime_api.h", "nvidia.cu13"), ("crt/host_defines.h", "triton"))
"""Headers that the operators need, and the package of PyTorch's own wheels that has them."""


@functools.cache
def load() -> Any:
    """Compile (half a minute, once per machine and version of PyTorch) and load the operators.

    ``UserError`` where PyTorch has no CUDA, or a compiler or a header is missing.
    """
    if torch.version.cuda is None or not torch.backends.cudnn.is_available():
        raise UserError("this PyTorch is built without CUDA or cuDNN; install PyTorch for CUDA")
    from torch.utils import cpp_extension

    libraries = Path(torch.__file__).parent / "lib"
    try:
        module = cpp_extension.load(
            name=f"tileseer_operator_{file_digest(SOURCE)[:12]}",
            sources=[str(SOURCE)],
            extra_cflags=["-O2"],
            extra_include_paths=[str(folder) for folder in _include_folders()],
            # Linked by hand: PyTorch's own way needs a CUDA toolkit, and the operators have no code for the device.
            extra_ldflags=[f"-L{libraries}", "-lc10_cuda", "-ltorch_cuda"],
        )
    except (RuntimeError, OSError, ImportError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UserError(
            f"tileseer's operators for PyTorch cannot be compiled ({reason}); it takes a C++ compiler and ninja"
        ) from error
    _register_shapes()
    return module


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
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    return [root / part for root in roots for part in ("include", os.path.join("backends", "nvidia", "include"))]


def _layout(x: torch.Tensor, w: torch.Tensor) -> torch.memory_format:
    """Layout of all results: channels last if either operand is."""
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    return last if last in map(suggest_memory_format, (x, w)) else torch.contiguous_format


def _register_shapes() -> None:
    @torch.library.register_fake("tileseer::convolution")
    def convolution(
        x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int], padding: Sequence[int],
        dilation: Sequence[int], groups: int, plans: int,
    ) -> torch.Tensor:  # fmt: skip
        image = [
            (extent + 2 * p - d * (f - 1) - 1) // s + 1
            for extent, f, s, p, d in zip(x.shape[2:], w.shape[2:], stride, padding, dilation, strict=True)
        ]
        return _empty(x, (x.shape[0], w.shape[0], *image), _layout(x, w))

    @torch.library.register_fake("tileseer::convolution_data")
    def convolution_data(grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *_: object) -> torch.Tensor:
        return _empty(grad, x.shape, _layout(x, w))

    @torch.library.register_fake("tileseer::convolution_weight")
    def convolution_weight(grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *_: object) -> torch.Tensor:
        return _empty(grad, w.shape, _layout(x, w))


def _empty(like: torch.Tensor, shape: Sequence[int], layout: torch.memory_format) -> torch.Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=layout)
