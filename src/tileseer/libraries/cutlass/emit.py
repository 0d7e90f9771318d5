"""The CUDA C++ text of CUTLASS kernels: a header and a compilation unit a kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tileseer.core.errors import UserError
from tileseer.libraries.cutlass.kernel import CutlassKernel
from tileseer.libraries.emitter import Emitter

ELEMENTS = {"fp16": "cutlass::half_t", "bf16": "cutlass::bfloat16_t"}
CPP_LAYOUTS = {2: "cutlass::layout::TensorNHWC", 3: "cutlass::layout::TensorNDHWC"}
CPP_OPERATORS = {"forward": "Fprop", "bwd_data": "Dgrad", "bwd_weight": "Wgrad"}

_SM_ARCH = re.compile(r"sm_[0-9]{2,3}a?", re.ASCII)


class CutlassEmitter(Emitter):
    """A header and a compilation unit for each kernel; there is one API level."""

    folder = "cutlass"
    pattern = "*.j2"
    header_suffix, source_suffix = ".cuh", ".cu"
    launcher = "cutlass_kernel.hpp"
    registration = "TILESEER_CUTLASS_KERNEL({name})"

    @staticmethod
    def entries(names: Sequence[str], api: Path, arch: str) -> list[dict[str, Any]]:
        """Return how a dispatcher finds each kernel: header, wrapper, and the key's values as registration has them."""
        return [
            {"kernel": name, "header": f"{name}.cuh", "unit": f"{name}.cu", "registry_key": {"name": name}}
            for name in names
        ]

    def header(self, kernel: CutlassKernel, arch: str) -> str:
        """Return the kernel's header for ``arch`` (sm_...)."""
        # The arch becomes part of C++ text.
        if not _SM_ARCH.fullmatch(arch):
            raise UserError(f"arch {arch!r} is no CUDA target of the form sm_90")
        grouped = "Group" if kernel.group_mode != "none" else ""
        operator = CPP_OPERATORS[kernel.variant]
        folder = "cutlass/conv/kernel"
        stem = f"default_conv{kernel.ndim}d_{'group_' if grouped else ''}{operator.lower()}"
        return self._render(
            "kernel.cuh.j2",
            name=kernel.name,
            k=kernel,
            arch=arch,
            header=f"{folder}/{stem}.h",
            builder=f"DefaultConv{kernel.ndim}d{grouped}{operator}",
            element=ELEMENTS[kernel.dtype],
            layout=CPP_LAYOUTS[kernel.ndim],
            swizzle=_swizzle(kernel),
            iterator=f"k{kernel.iterator.capitalize()}",
            stride_support="kUnity" if kernel.strides == "unity" else "kStrided",
            group_mode=f"k{kernel.group_mode.capitalize()}Group",
        )

    def paths(self, kernel: CutlassKernel) -> list[str]:
        """Return the files of one kernel: header and unit."""
        return [f"{kernel.name}.cuh", f"{kernel.name}.cu"]

    def kernel_files(self, kernel: CutlassKernel, arch: str) -> dict[str, str]:
        """Return path to text of the files of one kernel; see ``paths``."""
        texts = [self.header(kernel, arch), self._render("kernel.cu.j2", name=kernel.name)]
        return dict(zip(self.paths(kernel), texts, strict=True))

    def collection_files(self, kernels: Sequence[CutlassKernel], arch: str) -> dict[str, str]:
        """Return the one source that registers all kernels, however many."""
        return {"library.cu": self.registration_source(kernels)}


def _swizzle(kernel: CutlassKernel) -> str:
    """Return the swizzle; the 2D input gradient for any stride walks the tiles of one filter phase after the other."""
    if kernel.variant == "bwd_data" and kernel.ndim == 2 and kernel.strides == "strided":
        return f"cutlass::conv::threadblock::StridedDgradIdentityThreadblockSwizzle<{kernel.swizzle}>"
    return f"cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<{kernel.swizzle}>"
