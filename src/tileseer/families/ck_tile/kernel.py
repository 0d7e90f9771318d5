"""The effective kernel and its name.

``parse(name(kernel)) == kernel`` holds for every valid kernel: the name is a bijection. A configuration that
would need a correction is refused here, before it gets a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from tileseer.conv.operation import DTYPES, VARIANTS
from tileseer.core.errors import UserError
from tileseer.core.grammar import Part, compiled
from tileseer.families import gemm_kernel as gemm
from tileseer.families.ck_tile import pipelines

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "grouped_conv_"
LAYOUTS = {1: ("nwgc", "nhwgc"), 2: ("nhwgc",), 3: ("ndhwgc", "nhwgc")}
"""Layout labels by dimensionality; the first is the true one, the others occur in foreign rule sets."""
LABELS = tuple(dict.fromkeys(label for labels in LAYOUTS.values() for label in labels))
PIPELINES = tuple(pipelines.TABLE)
EPILOGUES = ("cshuffle", "default")
SCHEDULERS = ("intrawave", "interwave")
SPECIALIZATIONS = ("default", "filter1x1_pad0", "filter1x1_stride1_pad0", "filter3x3")
STREAMK = ("none", "tree", "linear")
DEFAULT_VECTORS = (4, 8, 8)
TWO_BLOCK_PIPELINES = tuple(name for name, row in pipelines.TABLE.items() if row.blocks_per_cu == 2)

_COUNTS = (*gemm.SIZES, *gemm.VECTORS, "num_wave_groups", "num_groups_to_merge")


@dataclass(frozen=True, order=True)
class KernelConfig(gemm.GemmKernel):
    """One implicit-GEMM convolution kernel of CK Tile, as it is compiled; see ``GemmKernel`` for its sizes.

    Not part of it: the target (the kernel id adds it), split-K (a launch knob), blocks per CU (derived).
    """

    variant: str
    dtype: str
    layout: str
    ndim: int
    pipeline: str
    epilogue: str
    scheduler: str
    tile_m: int
    tile_n: int
    tile_k: int
    wave_m: int
    wave_n: int
    wave_k: int
    warp_tile_m: int
    warp_tile_n: int
    warp_tile_k: int
    vec_a: int = DEFAULT_VECTORS[0]
    vec_b: int = DEFAULT_VECTORS[1]
    vec_c: int = DEFAULT_VECTORS[2]
    num_wave_groups: int = 1
    num_groups_to_merge: int = 1
    double_smem_buffer: bool = False
    two_stage: bool = False
    specialization: str = "default"
    explicit_gemm: bool = False
    streamk: str = "none"
    streamk_persistent: bool = False
    split_image: bool = False
    pad_m: bool = True
    pad_n: bool = True
    pad_k: bool = True

    choices: ClassVar[Mapping[str, Sequence[Any]]] = {
        "variant": VARIANTS, "dtype": DTYPES, "pipeline": PIPELINES, "epilogue": EPILOGUES,
        "scheduler": SCHEDULERS, "specialization": SPECIALIZATIONS, "streamk": STREAMK, "layout": LABELS,
    }  # fmt: skip

    def __post_init__(self) -> None:
        gemm.check_fields(self, "kernel", _COUNTS)
        if self.ndim not in LAYOUTS or self.layout not in LAYOUTS[self.ndim]:
            raise UserError(f"kernel: layout {self.layout!r} does not fit ndim {self.ndim!r}; known: {LAYOUTS}")
        if self.streamk_persistent and self.streamk == "none":
            raise UserError("kernel: streamk_persistent is set without a streamk strategy")

    @property
    def name(self) -> str:
        """The kernel's name."""
        return name(self)

    @property
    def pads(self) -> tuple[bool, bool, bool]:
        """Whether m, n, k are padded to the tile."""
        return self.pad_m, self.pad_n, self.pad_k

    @property
    def blocks_per_cu(self) -> int:
        """Occupancy hint given to the compiler; it follows from pipeline and buffering."""
        hint = pipelines.TABLE[self.pipeline].blocks_per_cu
        if hint != "by_buffering":
            return hint
        return 1 if self.double_smem_buffer else 2

    @property
    def built_as(self) -> KernelConfig:
        """The kernel with the label of its true layout; foreign rule sets label 3D ``nhwgc``."""
        label = LAYOUTS[self.ndim][0]
        return self if self.layout == label else replace(self, layout=label)


KERNEL = KernelConfig
FIELDS = tuple(field.name for field in fields(KernelConfig))


def name(kernel: KernelConfig) -> str:
    """The kernel's name; suffixes appear in a fixed order and only where they differ from the default."""
    k = kernel
    # Written out, because a library of 14,000 kernels asks for a name more often than for anything else.
    text = (
        f"{PREFIX}{gemm.SHORT_VARIANTS[k.variant]}_{k.dtype}_{k.layout}_{k.ndim}d_{k.pipeline}_{k.epilogue}"
        f"_{k.scheduler}_{k.tile_m}x{k.tile_n}x{k.tile_k}_{k.wave_m}x{k.wave_n}x{k.wave_k}"
        f"_{k.warp_tile_m}x{k.warp_tile_n}x{k.warp_tile_k}"
    )
    if (k.vec_a, k.vec_b, k.vec_c) != DEFAULT_VECTORS:
        text += f"_vec{k.vec_a}_{k.vec_b}_{k.vec_c}"
    if k.num_wave_groups != 1:
        text += f"_wg{k.num_wave_groups}"
    if k.num_groups_to_merge != 1:
        text += f"_gm{k.num_groups_to_merge}"
    if k.double_smem_buffer:
        text += "_dsb"
    if k.two_stage:
        text += "_2stage"
    if k.specialization != "default":
        text += f"_{k.specialization}"
    if k.explicit_gemm:
        text += "_explicit_gemm"
    if k.streamk != "none":
        text += f"_streamk_{k.streamk}" + ("_persistent" if k.streamk_persistent else "")
    if k.split_image:
        text += "_large_tensor"
    if not (k.pad_m and k.pad_n and k.pad_k):
        text += f"_pad{k.pad_m:d}{k.pad_n:d}{k.pad_k:d}"
    return text


_PARTS = (
    Part(PREFIX, PREFIX),
    gemm.choice("a direction", "variant", tuple(gemm.SHORT_VARIANTS.values())),
    gemm.choice("a data type", "dtype", DTYPES),
    gemm.choice("a layout", "layout", LABELS),
    Part("the dimensionality (1d, 2d, 3d)", r"(?P<ndim>[123])d_"),
    gemm.choice("a pipeline", "pipeline", PIPELINES),
    gemm.choice("an epilogue", "epilogue", EPILOGUES),
    gemm.choice("a scheduler", "scheduler", SCHEDULERS),
    *gemm.SIZE_PARTS,
    gemm.VECTOR_PART,
    Part("_wgN", rf"_wg(?P<wg>{gemm.COUNT}){gemm.END}", optional=True),
    Part("_gmN", rf"_gm(?P<gm>{gemm.COUNT}){gemm.END}", optional=True),
    Part("_dsb", r"(?P<dsb>_dsb)(?![^_])", optional=True),
    Part("_2stage", r"(?P<two>_2stage)(?![^_])", optional=True),
    Part("the specialization", rf"_(?P<spec>{gemm.either(SPECIALIZATIONS[1:])})(?![^_])", optional=True),
    Part("_explicit_gemm", r"(?P<explicit>_explicit_gemm)(?![^_])", optional=True),
    Part(
        "_streamk_...",
        rf"_streamk_(?P<streamk>{gemm.either(STREAMK[1:])})(?P<persistent>_persistent)?(?![^_])",
        optional=True,
    ),
    Part("_large_tensor", r"(?P<large>_large_tensor)(?![^_])", optional=True),
    Part("_padMNK", r"_pad(?P<pads>[01]{3})(?![^_])", optional=True),
)
_GRAMMAR = compiled(_PARTS)


def parse(text: str) -> KernelConfig:
    """Kernel called ``text``; any text that ``name`` would not have written is a ``UserError``."""
    return gemm.parsed(text, _GRAMMAR, _PARTS, _kernel)


def _kernel(match: re.Match[str]) -> KernelConfig:
    vectors = [int(value) for value in match["vec"][4:].split("_")] if match["vec"] else list(DEFAULT_VECTORS)
    pads = [flag == "1" for flag in match["pads"] or "111"]
    leading: list[Any] = [
        gemm.LONG_VARIANTS[match["variant"]], match["dtype"], match["layout"], int(match["ndim"]), match["pipeline"],
        match["epilogue"], match["scheduler"],
    ]  # fmt: skip
    options: dict[str, Any] = {
        "num_wave_groups": int(match["wg"] or 1), "num_groups_to_merge": int(match["gm"] or 1),
        "double_smem_buffer": bool(match["dsb"]), "two_stage": bool(match["two"]),
        "specialization": match["spec"] or "default", "explicit_gemm": bool(match["explicit"]),
        "streamk": match["streamk"] or "none", "streamk_persistent": bool(match["persistent"]),
        "split_image": bool(match["large"]), "pad_m": pads[0], "pad_n": pads[1], "pad_k": pads[2],
    }  # fmt: skip
    return KernelConfig(*leading, *gemm.sizes_behind(match, "scheduler").values(), *vectors, **options)


def frame(kernels: Sequence[KernelConfig]) -> pd.DataFrame:
    """One row a kernel: ``kernel`` (its name), then every field of ``KernelConfig``."""
    return gemm.frame_of(kernels, FIELDS)
