"""The effective kernel and its name.

``parse(kernel.name) == kernel`` holds for every valid kernel: the name is a bijection. A configuration that
would need a correction is refused here, before it gets a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tileseer.core.errors import UserError
from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.libraries import gemm_kernel as gemm
from tileseer.libraries.ck_tile import pipelines
from tileseer.libraries.grammar import Part

CK_TILE_PREFIX = "grouped_conv_"
LAYOUTS_OF_NDIM = {1: ("nwgc", "nhwgc"), 2: ("nhwgc",), 3: ("ndhwgc", "nhwgc")}
"""Layout labels by dimensionality; the first is the true one, the others occur in foreign rule sets."""
LABELS = tuple(dict.fromkeys(label for labels in LAYOUTS_OF_NDIM.values() for label in labels))
PIPELINES = tuple(pipelines.PIPELINE_FACTS)
EPILOGUES = ("cshuffle", "default")
SCHEDULERS = ("intrawave", "interwave")
SPECIALIZATIONS = ("default", "filter1x1_pad0", "filter1x1_stride1_pad0", "filter3x3")
STREAMK = ("none", "tree", "linear")
DEFAULT_VECTORS = (4, 8, 8)


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
        "ndim": tuple(LAYOUTS_OF_NDIM),
        "scheduler": SCHEDULERS, "specialization": SPECIALIZATIONS, "streamk": STREAMK, "layout": LABELS,
    }  # fmt: skip
    parts: ClassVar[Sequence[Part]] = (
        Part(CK_TILE_PREFIX, CK_TILE_PREFIX),
        Part("a direction", "{variant}_"),
        Part("a data type", "{dtype}_"),
        Part("a layout", "{layout}_"),
        Part("the dimensionality", "{ndim}d_"),
        Part("a pipeline", "{pipeline}_"),
        Part("an epilogue", "{epilogue}_"),
        Part("a scheduler", "{scheduler}_"),
        *gemm.SIZE_PARTS,
        Part("_vecA_B_C", "_vec{vec_a}_{vec_b}_{vec_c}", optional=True),
        Part("_wgN", "_wg{num_wave_groups}", optional=True),
        Part("_gmN", "_gm{num_groups_to_merge}", optional=True),
        Part("_dsb", "{double_smem_buffer:_dsb}", optional=True),
        Part("_2stage", "{two_stage:_2stage}", optional=True),
        Part("the specialization", "_{specialization}", optional=True),
        Part("_explicit_gemm", "{explicit_gemm:_explicit_gemm}", optional=True),
        Part("_streamk_...", "_streamk_{streamk}{streamk_persistent:_persistent}", optional=True),
        Part("_large_tensor", "{split_image:_large_tensor}", optional=True),
        Part("_padMNK", "_pad{pad_m}{pad_n}{pad_k}", optional=True),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout not in LAYOUTS_OF_NDIM[self.ndim]:
            raise UserError(f"kernel: layout {self.layout!r} does not fit ndim {self.ndim!r}; known: {LAYOUTS_OF_NDIM}")
        if self.streamk_persistent and self.streamk == "none":
            raise UserError("kernel: streamk_persistent is set without a streamk strategy")

    @property
    def merges_groups(self) -> bool:
        """Whether a block computes several convolution groups."""
        return self.num_groups_to_merge > 1

    @property
    def blocks_per_cu(self) -> int:
        """Occupancy hint given to the compiler; it follows from pipeline and buffering."""
        hint = pipelines.PIPELINE_FACTS[self.pipeline].blocks_per_cu
        if hint != "by_buffering":
            return hint
        return 1 if self.double_smem_buffer else 2

    @property
    def built_as(self) -> KernelConfig:
        """The kernel with the label of its true layout; foreign rule sets label 3D ``nhwgc``."""
        label = LAYOUTS_OF_NDIM[self.ndim][0]
        return self if self.layout == label else replace(self, layout=label)


KERNEL_FIELDS = tuple(gemm.field_types(KernelConfig))
parse, frame = KernelConfig.parse, KernelConfig.frame
