"""Kernel names as others write them, completed to whole kernels.

The reference calls one kernel by three names. The generator's says every field (``kernel.parse``). The benchmark's

``grouped_conv_{variant}_{dtype}_{n}d_{MxNxK}_{pipeline}_{scheduler}[_gmN][_dsb][_si][_2stage]``

says neither waves, warp tile, vectors nor epilogue; its older form ends with the pipeline, and what it calls compv4
or compv5 is another tile or pipeline (``_as_timed``). The shared library's

``[lib]dispatcher_conv_{variant}_{n}d_{dtype}_{MxNxK}_{waves}_{warp tile}_{pipeline}_{scheduler}[...][.so]``

no vectors and no epilogue. What a name leaves out is what the reference's tables give it, and is listed with the
kernel, so that a reader knows what was assumed. Where the reference builds another kernel than the name says, the
kernel is the one that is built.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tileseer.core.errors import UserError
from tileseer.facts.hardware import target
from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.libraries.ck_tile import depthwise
from tileseer.libraries.ck_tile.depthwise import DepthwiseConfig
from tileseer.libraries.ck_tile.kernel import DEFAULT_VECTORS, LAYOUTS_OF_NDIM, PIPELINES, SCHEDULERS, KernelConfig
from tileseer.libraries.grammar import COUNT

TILE_WAVES = {
    (16, 64, 64): ((1, 4, 1), (16, 16, 16)),
    (32, 64, 64): ((2, 2, 1), (16, 16, 16)),
    (64, 64, 64): ((4, 1, 1), (16, 16, 16)),
    (32, 128, 64): ((1, 4, 1), (32, 32, 16)),
    (64, 128, 64): ((2, 2, 1), (32, 32, 16)),
    (128, 128, 64): ((4, 4, 1), (32, 32, 16)),
    (16, 64, 128): ((1, 4, 1), (16, 16, 32)),
    (32, 64, 128): ((2, 2, 1), (16, 16, 32)),
    (64, 64, 128): ((4, 1, 1), (16, 16, 32)),
    (128, 64, 128): ((8, 2, 1), (16, 16, 32)),
}
"""Waves and warp tile that the reference's benchmark gives a tile. A fact about names, not a setting."""
OTHER_TILES = (2, 2, 1), (32, 32, 16)
"""Waves and warp tile of a tile that is missing from its table."""
LARGE_BLOCKS = ("gfx950",)
"""Archs whose blocks may have 16 waves; elsewhere the benchmark builds the first arrangement that is allowed."""
FIRST_WAVES = (1, 4, 1)
INTRAWAVE_ONLY = ("compv3", "compv4", "compv5", "compv6", "comp_async")
"""Pipelines that the benchmark builds as intrawave although the name says interwave."""
OLDER_COMPV4 = {16: (16, 64, 64), 32: (32, 64, 64)}, (64, 64, 64)
"""Tile behind a compv4 name without scheduler, by tile_m, and of any larger one: the times of ten such names are those
of three kernels (``config/recorded/gfx950_mi355x/SOURCE.md``)."""

_THREE_COUNTS = rf"{COUNT}x{COUNT}x{COUNT}"
_VARIANT, _DTYPE, _NDIM = rf"(?P<variant>{'|'.join(VARIANTS)})", rf"(?P<dtype>{'|'.join(DTYPES)})", r"(?P<ndim>[23])d"
_PIPELINE = rf"(?P<pipeline>{'|'.join(PIPELINES)})"
_SCHEDULER = (
    rf"_(?P<scheduler>{'|'.join(SCHEDULERS)})(?:_gm(?P<gm>{COUNT}))?(?P<dsb>_dsb)?(?P<si>_si)?(?P<two>_2stage)?"
)
_BENCHMARK = re.compile(
    f"grouped_conv_{_VARIANT}_{_DTYPE}_{_NDIM}_(?P<tile>{_THREE_COUNTS})_{_PIPELINE}(?:{_SCHEDULER})?", re.ASCII
)
"""With a scheduler and what may follow it, or in the older form."""
_LIBRARY_NAME = re.compile(
    f"(?:lib)?dispatcher_conv_{_VARIANT}_{_NDIM}_{_DTYPE}_(?P<tile>{_THREE_COUNTS})_(?P<wave>{_THREE_COUNTS})_(?P<warp>{_THREE_COUNTS})"
    f"_{_PIPELINE}{_SCHEDULER}",
    re.ASCII,
)


def parse_kernel(text: str) -> KernelConfig | DepthwiseConfig:
    """Return the kernel called ``text``, of any kind; any other text is a ``UserError``."""
    return DepthwiseConfig.parse(text) if text.startswith(depthwise.DEPTHWISE_PREFIX) else KernelConfig.parse(text)


def complete_name(name: str, arch: str) -> tuple[KernelConfig | DepthwiseConfig, str]:
    """Return the kernel that a name of any of the schemes stands for on ``arch``, and what was assumed for it."""
    match = _BENCHMARK.fullmatch(name) or _LIBRARY_NAME.fullmatch(name)
    if match:
        return _complete(match.groupdict(), arch)
    try:
        kernel = parse_kernel(name)
    except UserError as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{reason}; nor is it a name of the reference's benchmark or of its libraries") from error
    # The generator calls 3D kernels nhwgc as well; they are ndhwgc.
    built = kernel.built_as
    return built, "" if built == kernel else f"layout={LAYOUTS_OF_NDIM[kernel.ndim][0]}"


def _complete(groups: dict[str, Any], arch: str) -> tuple[KernelConfig, str]:
    assumed: dict[str, object] = {}
    if not groups["scheduler"]:
        assumed = _as_timed(groups)
        groups |= assumed
    tile = _sizes(groups["tile"])
    if groups.get("wave"):
        wave, warp = _sizes(groups["wave"]), _sizes(groups["warp"])
    else:
        wave, warp = TILE_WAVES.get(tile, OTHER_TILES)
        if wave[0] * wave[1] > 4 and target(arch) not in LARGE_BLOCKS:
            wave = FIRST_WAVES
        assumed |= {"waves": _text(wave), "warp_tile": _text(warp)}
    assumed |= {"vectors": "_".join(map(str, DEFAULT_VECTORS)), "epilogue": "cshuffle"}
    pipeline, scheduler = groups["pipeline"], groups["scheduler"]
    if groups["variant"] != "forward" and pipeline not in ("compv3", "mem"):
        pipeline = assumed["pipeline"] = "compv3"
    if scheduler == "interwave" and pipeline in INTRAWAVE_ONLY:
        scheduler = assumed["scheduler"] = "intrawave"
    ndim = int(groups["ndim"])
    words = (groups["variant"], groups["dtype"], LAYOUTS_OF_NDIM[ndim][0], ndim, pipeline, "cshuffle", scheduler)
    options = {"double_smem_buffer": "dsb", "split_image": "si", "two_stage": "two"}
    sizes: list[Any] = [*tile, *wave, *warp, *DEFAULT_VECTORS]
    flags: dict[str, Any] = {field: bool(groups.get(word)) for field, word in options.items()}
    built = replace(KernelConfig(*words, *sizes, **flags), num_groups_to_merge=int(groups["gm"] or 1))
    return built, " ".join(f"{field}={value}" for field, value in assumed.items())


def _as_timed(groups: Mapping[str, str]) -> dict[str, object]:
    """Return what a name without scheduler says otherwise or leaves open, as the times of such names show it."""
    assumed: dict[str, object] = {"scheduler": "intrawave"}
    if (groups["variant"], groups["pipeline"]) == ("forward", "compv4"):
        known, larger = OLDER_COMPV4
        tile = _text(known.get(_sizes(groups["tile"])[0], larger))
        assumed |= {"dsb": "1", **({"tile": tile} if tile != groups["tile"] else {})}
    elif groups["pipeline"] == "compv5":
        assumed["pipeline"] = "compv3"
    return assumed


def _sizes(text: str) -> tuple[int, int, int]:
    m, n, k = (int(part) for part in text.split("x"))
    return m, n, k


def _text(sizes: tuple[int, int, int]) -> str:
    return "x".join(map(str, sizes))
