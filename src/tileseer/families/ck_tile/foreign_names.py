"""Kernel names as others write them, completed to whole kernels.

The reference calls one kernel by three names. The generator's says every field (``kernel.parse``). The benchmark's

``grouped_conv_{variant}_{dtype}_{n}d_{MxNxK}_{pipeline}_{scheduler}[_gmN][_dsb][_si][_2stage]``

says neither waves, warp tile, vectors nor epilogue, and the shared library's

``[lib]dispatcher_conv_{variant}_{n}d_{dtype}_{MxNxK}_{waves}_{warp tile}_{pipeline}_{scheduler}[...][.so]``

no vectors and no epilogue. What a name leaves out is what the reference's tables give it, and is listed with the
kernel, so that a reader knows what was assumed. Where the reference builds another kernel than the name says, the
kernel is the one that is built.

The kernels of another family have one name each, which says every field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tileseer import families
from tileseer.conv.operation import DTYPES, VARIANTS
from tileseer.core.errors import UserError
from tileseer.families import kernels
from tileseer.families.ck_tile import depthwise, kernel
from tileseer.families.ck_tile.kernel import DEFAULT_VECTORS, LAYOUTS, PIPELINES, SCHEDULERS, KernelConfig
from tileseer.families.gemm_kernel import GemmKernel

TILES = {
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
"""Waves and warp tile of a tile that its table has not."""
LARGE_BLOCKS = ("gfx950",)
"""Archs whose blocks may have 16 waves; elsewhere the benchmark builds the first arrangement that is allowed."""
FIRST_WAVES = (1, 4, 1)
INTRAWAVE_ONLY = ("compv3", "compv4", "compv5", "compv6", "comp_async")
"""Pipelines that the benchmark builds as intrawave although the name says interwave."""

_SUFFIXES = r"(?:_gm(?P<gm>[1-9]\d*))?(?P<dsb>_dsb)?(?P<si>_si)?(?P<two>_2stage)?"
_SIZES = r"[1-9]\d*x[1-9]\d*x[1-9]\d*"


def _either(values: tuple[str, ...]) -> str:
    return "|".join(sorted(values, key=len, reverse=True))


_WORDS = {
    "variant": f"(?P<variant>{_either(VARIANTS)})",
    "dtype": f"(?P<dtype>{_either(DTYPES)})",
    "ndim": r"(?P<ndim>[23])d",
    "tile": f"(?P<tile>{_SIZES})",
    "loop": f"(?P<pipeline>{_either(PIPELINES)})_(?P<scheduler>{_either(SCHEDULERS)}){_SUFFIXES}",
}
_BENCHMARK = re.compile("grouped_conv_{variant}_{dtype}_{ndim}_{tile}_{loop}".format(**_WORDS), re.ASCII)
_LIBRARY = re.compile(
    "(?:lib)?dispatcher_conv_{variant}_{ndim}_{dtype}_{tile}_(?P<wave>{sizes})_(?P<warp>{sizes})_{loop}".format(
        **_WORDS, sizes=_SIZES
    ),
    re.ASCII,
)
_LAUNCH = re.compile(r"(?P<name>.+)@splitk(?P<split_k>[1-9]\d*)", re.ASCII)


@dataclass(frozen=True)
class Named:
    """What a name stands for."""

    kernel: GemmKernel
    split_k: int
    assumed: str
    """What the name does not say or says otherwise, as ``field=value`` words; empty for a complete name."""


def read(text: str, arch: str) -> Named:
    """Return the kernel that ``text`` stands for on ``arch``; ``UserError`` if it follows none of the schemes.

    Schemes of CK Tile: the generator's and ours, with ``@splitkN`` for a split reduction; the benchmark's; the
    library's. The ending of a header, source or library file is ignored.
    """
    name = _stem(text)
    launch = _LAUNCH.fullmatch(name)
    name, split_k = (launch["name"], int(launch["split_k"])) if launch else (name, 1)
    family = families.of_arch(arch)
    if family is not families.CK_TILE:
        if not name.startswith(family.prefix):
            raise UserError(f"{text!r} is no kernel of {arch}; their names begin with {family.prefix}")
        return Named(kernels.parse([name])[0], split_k, "")
    match = _BENCHMARK.fullmatch(name) or _LIBRARY.fullmatch(name)
    if match:
        built, assumed = _completed(match, arch)
        return Named(built, split_k, assumed)
    try:
        return _relabelled(kernel.parse(name), split_k)
    except UserError as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{reason}; nor is it a name of the reference's benchmark or of its libraries") from error


def is_depthwise(text: str) -> bool:
    """Return whether ``text`` is the name of a depthwise kernel: no implicit GEMM, and in no model."""
    try:
        depthwise.parse(_stem(text))
    except UserError:
        return False
    return True


def _stem(text: str) -> str:
    return re.sub(r"\.(hpp|cuh|cpp|cu|so|o)$", "", text.strip())


def _relabelled(found: KernelConfig, split_k: int) -> Named:
    """The generator calls 3D kernels nhwgc as well; they are ndhwgc."""
    true = LAYOUTS[found.ndim][0]
    if found.layout == true:
        return Named(found, split_k, "")
    return Named(KernelConfig(**{**vars(found), "layout": true}), split_k, f"layout={true}")


def _completed(match: re.Match[str], arch: str) -> tuple[KernelConfig, str]:
    groups = match.groupdict()
    tile = _sizes(groups["tile"])
    assumed: dict[str, object] = {}
    if groups.get("wave"):
        wave, warp = _sizes(groups["wave"]), _sizes(groups["warp"])
    else:
        wave, warp = TILES.get(tile, OTHER_TILES)
        if wave[0] * wave[1] > 4 and arch not in LARGE_BLOCKS:
            wave = FIRST_WAVES
        assumed |= {"waves": _text(wave), "warp_tile": _text(warp)}
    assumed |= {"vectors": "_".join(map(str, DEFAULT_VECTORS)), "epilogue": "cshuffle"}
    pipeline, scheduler = groups["pipeline"], groups["scheduler"]
    if groups["variant"] != "forward" and pipeline not in ("compv3", "mem"):
        pipeline = assumed["pipeline"] = "compv3"
    if scheduler == "interwave" and pipeline in INTRAWAVE_ONLY:
        scheduler = assumed["scheduler"] = "intrawave"
    ndim = int(groups["ndim"])
    built = KernelConfig(
        groups["variant"], groups["dtype"], LAYOUTS[ndim][0], ndim, pipeline, "cshuffle", scheduler,
        *tile, *wave, *warp, *DEFAULT_VECTORS, num_groups_to_merge=int(groups["gm"] or 1),
        double_smem_buffer=bool(groups["dsb"]), split_image=bool(groups["si"]), two_stage=bool(groups["two"]),
    )  # fmt: skip
    return built, " ".join(f"{field}={value}" for field, value in assumed.items())


def _sizes(text: str) -> tuple[int, int, int]:
    m, n, k = (int(part) for part in text.split("x"))
    return m, n, k


def _text(sizes: tuple[int, int, int]) -> str:
    return "x".join(map(str, sizes))
