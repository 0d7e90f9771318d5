"""The C++ of the kernels of each family, as files of a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from tileseer import families
from tileseer.families import registration
from tileseer.families.ck_tile import emit as ck_tile
from tileseer.families.ck_tile.kernel import KernelConfig
from tileseer.families.cutlass import emit as cutlass
from tileseer.families.cutlass.kernel import CutlassKernel
from tileseer.families.gemm_kernel import GemmKernel


def template_files(templates: Path) -> list[Path]:
    """Return the C++ templates of all families below ``templates`` (workflow/templates), sorted."""
    return sorted([*ck_tile.template_files(templates), *(templates / "cutlass").glob("*.j2")])


def files(kernels: Sequence[GemmKernel], arch: str, templates: Path, api: Path, level: str) -> dict[str, str]:
    """Return the files of each kernel, path to text: header and unit, or the reason why there is no form for it.

    ``api`` and ``level``: the table of CK Tile's names, and the level of its API that is written for.
    """
    if families.of_arch(arch) is families.CUTLASS:
        return cutlass.Emitter(templates / "cutlass").files(cast(Sequence[CutlassKernel], kernels), arch)
    emitter = ck_tile.Emitter(templates, api, level)
    own = cast(Sequence[KernelConfig], kernels)
    lacks = {kernel.name: emitter.lack(kernel) for kernel in own}
    texts = {f"{name}{registration.LACK}": f"CK Tile {level}: {lack}\n" for name, lack in lacks.items() if lack}
    return texts | emitter.files(own, arch)


def collection_files(
    kernels: Sequence[GemmKernel], arch: str, templates: Path, api: Path, level: str
) -> dict[str, str]:
    """Return the files that name many kernels, for people's own builds."""
    if families.of_arch(arch) is families.CUTLASS:
        return {"library.cu": registration.source(kernels)}
    return ck_tile.Emitter(templates, api, level).collection_files(cast(Sequence[KernelConfig], kernels), arch)
