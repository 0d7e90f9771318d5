"""The tables of the named rule sets ``default`` and ``full`` in ``config/rule_sets``, read and checked.

Sizes are written ``16x64x64`` (m, n, k), pipelines ``compv3``, ``mem/interwave`` or ``mem/both``.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tileseer.core.strict_tables import StrictModel
from tileseer.facts.arch import Triple
from tileseer.facts.operations import DTYPES, Variant
from tileseer.libraries.ck_tile.kernel import PIPELINES

SampledSet = Literal["full-tests", "tiny"]
Class = Literal["half", "float"]
Pipeline = Literal[PIPELINES]  # type: ignore[valid-type]

CLASS_OF: dict[str, Class] = {dtype: "float" if dtype == "fp32" else "half" for dtype in DTYPES}
"""The tables tell two classes of data types apart."""

_SCHEDULERS_OF_SUFFIX = {"": ("intrawave",), "/interwave": ("interwave",), "/both": ("interwave", "intrawave")}


def _sizes(text: Any) -> Any:
    """Turn ``16x64x64`` into (16, 64, 64)."""
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", str(text), re.ASCII):
        raise ValueError("write sizes as 16x64x64, each at least 1")
    return tuple(map(int, str(text).split("x")))


def _pipelines(rows: Any) -> Any:
    """Turn ``[compv3, mem/both]`` into the (pipeline, scheduler) that it stands for."""
    if not isinstance(rows, list) or not rows:
        raise ValueError("write a list such as [compv3, mem/both]")
    traits: list[tuple[str, str]] = []
    for row in map(str, rows):
        pipeline, slash, choice = row.partition("/")
        if pipeline not in PIPELINES or slash + choice not in _SCHEDULERS_OF_SUFFIX:
            known = ", ".join(PIPELINES)
            raise ValueError(f"{row!r}: write PIPELINE, PIPELINE/interwave or PIPELINE/both; known: {known}")
        traits += [(pipeline, scheduler) for scheduler in _SCHEDULERS_OF_SUFFIX[slash + choice]]
    return tuple(traits)


Size = Annotated[Triple, BeforeValidator(_sizes)]
Pair = Annotated[tuple[int, int], BeforeValidator(_sizes)]
Pipelines = Annotated[tuple[tuple[str, str], ...], BeforeValidator(_pipelines)]
Count = Annotated[int, Field(ge=1)]


class DefaultTile(StrictModel):
    """A tile of ``default`` with its waves and warp tile."""

    tile: Size
    wave: Size
    warp_tile: Size
    not_with: list[Pipeline] = Field(default_factory=list)
    """Pipelines that this tile is not built for."""


class DefaultPipeline(StrictModel):
    """A pipeline of ``default``; the scheduler is intrawave."""

    pipeline: Pipeline
    epilogue: Literal["cshuffle", "default"]
    tile_k_factor: Count = 1
    double_smem_buffer: bool = False
    two_stage: list[bool] = Field([False], min_length=1)


class DefaultRules(StrictModel):
    """``default.yaml``."""

    layout: str
    vectors: Size
    tiles: list[DefaultTile] = Field(min_length=1)
    variants: dict[Variant, list[DefaultPipeline]]


class ClassRow(StrictModel):
    """What a tile is combined with in one class of data types."""

    base: list[Literal[1, 2, 3]]
    vectors: list[Size] = Field(min_length=1)
    pipelines: Pipelines


class NamedTile(StrictModel):
    """A tile of ``full``; ``warp_tile`` gives m = n by wave layout where it is not the usual one."""

    tile: Size
    waves: list[Size] = Field(min_length=1)
    warp_tile: dict[Size, list[Count]] = Field(default_factory=dict)
    half: ClassRow | None = None
    float: ClassRow | None = None

    def of_class(self, name: Class) -> ClassRow | None:
        """Return the row of one class."""
        return self.half if name == "half" else self.float


class FeatureRow(StrictModel):
    """Options that are switched on together for some tiles; its ``pipelines`` replace those of the tile."""

    tiles: list[Size] = Field(min_length=1)
    classes: list[Class] = Field(["half", "float"], min_length=1)
    pipelines: Pipelines | None = None
    split_image: bool = False
    explicit_gemm: bool = False
    two_stage: bool = False
    num_groups_to_merge: Count = 1
    streamk: Literal["none", "tree", "linear"] = "none"
    streamk_persistent: bool = False

    def options(self) -> dict[str, Any]:
        """Return the fields of ``KernelConfig`` that the feature sets."""
        return self.model_dump(exclude={"tiles", "classes", "pipelines"})


class VariantRules(StrictModel):
    """A direction of ``full``."""

    tiles: list[NamedTile] = Field(min_length=1)
    features: list[FeatureRow] = Field(default_factory=list)
    small_warp_k_with_wavelet: list[Size] = Field(default_factory=list)


class NamedDepthwise(StrictModel):
    """A depthwise kernel; sizes are height x width, ``vectors`` elements a load x elements a store."""

    tile: Pair
    filter: Count
    stride: Pair
    sub_tile: Pair
    batches: Count
    vectors: Pair


class Sample(StrictModel):
    """A set that is drawn from another one."""

    of: Literal["full", "full-tests"]
    every: Count | None = None
    """Take every n-th kernel of a category."""
    at_least: Count | None = None
    """Take one kernel a category, then more in turn up to this many."""


class FullRules(StrictModel):
    """``full.yaml``."""

    layout: str
    epilogue: Literal["cshuffle", "default"]
    samples: dict[SampledSet, Sample]
    variants: dict[Variant, VariantRules]
    depthwise: list[NamedDepthwise]
