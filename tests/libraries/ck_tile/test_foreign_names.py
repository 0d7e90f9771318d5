"""Kernel names of the reference's schemes, and what is assumed where a name is incomplete."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileseer.core.errors import UserError
from tileseer.libraries.ck_tile.kernel import PIPELINES, SCHEDULERS
from tileseer.libraries.ck_tile.names import FIRST_WAVES, TILE_WAVES
from tileseer.libraries.names import read_kernel_name

OURS = "grouped_conv_fwd_bf16_nhwgc_2d_compv3_cshuffle_intrawave_64x128x64_2x2x1_32x32x16"


def test_a_whole_name_assumes_nothing():
    found = read_kernel_name(OURS, "gfx950")
    assert (found.kernel.name, found.split_k, found.assumed) == (OURS, 1, "")
    assert read_kernel_name(f"{OURS}@splitk4", "gfx950").split_k == 4
    assert read_kernel_name(f" {OURS}.hpp ", "gfx950") == found


def test_a_benchmark_name_takes_waves_and_warp_tile_from_the_tile():
    found = read_kernel_name("grouped_conv_forward_bf16_2d_64x128x64_compv3_intrawave", "gfx950")
    assert found.kernel.name == OURS
    assert found.assumed == "waves=2x2x1 warp_tile=32x32x16 vectors=4_8_8 epilogue=cshuffle"


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("64x128x64_compv3", "compv3_cshuffle_intrawave_64x128x64_2x2x1_32x32x16"),
        ("64x128x64_compv5", "compv3_cshuffle_intrawave_64x128x64_2x2x1_32x32x16"),
        ("16x64x128_compv4", "compv4_cshuffle_intrawave_16x64x64_1x4x1_16x16x16_dsb"),
        ("32x128x64_compv4", "compv4_cshuffle_intrawave_32x64x64_2x2x1_16x16x16_dsb"),
        ("128x128x64_compv4", "compv4_cshuffle_intrawave_64x64x64_4x1x1_16x16x16_dsb"),
    ],
)
def test_a_benchmark_name_without_scheduler_is_the_kernel_that_was_timed(name, kernel):
    found = read_kernel_name(f"grouped_conv_forward_bf16_2d_{name}", "gfx950_mi355x")
    assert found.kernel.name == f"grouped_conv_fwd_bf16_nhwgc_2d_{kernel}"
    tile, pipeline = name.split("_")
    assert ("pipeline=" in found.assumed) == (pipeline not in kernel)
    assert ("tile=" in found.assumed.replace("warp_tile", "")) == (tile not in kernel)
    assert read_kernel_name(f"grouped_conv_forward_bf16_2d_{name}", "gfx950").kernel == found.kernel


def test_a_library_name_says_waves_and_warp_tile():
    stem = "dispatcher_conv_forward_2d_bf16_64x128x64_2x2x1_32x32x16_compv3_intrawave"
    for text in (stem, f"lib{stem}.so"):
        found = read_kernel_name(text, "gfx950")
        assert found.kernel.name == OURS
        assert found.assumed == "vectors=4_8_8 epilogue=cshuffle"


@given(
    st.sampled_from(("forward", "bwd_data", "bwd_weight")), st.sampled_from(("fp16", "bf16", "fp32")),
    st.sampled_from((2, 3)), st.sampled_from(tuple(TILE_WAVES)), st.sampled_from(PIPELINES),
    st.sampled_from(SCHEDULERS),
    st.sampled_from((1, 2, 16)), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_every_benchmark_name_is_read(variant, dtype, ndim, tile, pipeline, scheduler, merged, dsb, si, two_stage):
    text = f"grouped_conv_{variant}_{dtype}_{ndim}d_{'x'.join(map(str, tile))}_{pipeline}_{scheduler}"
    text += (f"_gm{merged}" if merged > 1 else "") + "_dsb" * dsb + "_si" * si + "_2stage" * two_stage
    found = read_kernel_name(text, "gfx950")
    k = found.kernel
    assert (k.variant, k.dtype, k.ndim, k.tile) == (variant, dtype, ndim, tile)
    assert (k.wave, k.warp_tile, k.vectors) == (*TILE_WAVES[tile], (4, 8, 8))
    assert (k.num_groups_to_merge, k.double_smem_buffer, k.split_image, k.two_stage) == (merged, dsb, si, two_stage)
    assert k.layout == {2: "nhwgc", 3: "ndhwgc"}[ndim]
    if variant != "forward" and pipeline not in ("compv3", "mem"):
        assert k.pipeline == "compv3" and "pipeline=compv3" in found.assumed
    else:
        assert k.pipeline == pipeline and "pipeline=" not in found.assumed
    assert ("scheduler=intrawave" in found.assumed) == (k.scheduler != scheduler)


def test_unknown_tiles_and_large_blocks_take_what_the_reference_builds():
    other = read_kernel_name("grouped_conv_forward_fp16_2d_256x256x32_compv3_intrawave", "gfx950").kernel
    assert (other.wave, other.warp_tile) == ((2, 2, 1), (32, 32, 16))
    name = "grouped_conv_forward_fp16_2d_128x128x64_compv3_intrawave"
    assert read_kernel_name(name, "gfx950").kernel.wave == (4, 4, 1)
    assert read_kernel_name(name, "gfx942").kernel.wave == FIRST_WAVES


def test_the_generators_label_of_volumes_is_corrected_and_said():
    name = OURS.replace("nhwgc_2d", "nhwgc_3d")
    found = read_kernel_name(name, "gfx950")
    assert found.kernel.name == OURS.replace("nhwgc_2d", "ndhwgc_3d")
    assert found.assumed == "layout=ndhwgc"


@pytest.mark.parametrize(
    "text",
    [
        "", "kernel", OURS + "_vec4_8_8", "grouped_conv_forward_bf16_2d_64x128x64_compv9_intrawave",
        "grouped_conv_forward_bf16_2d_64x128_compv3_intrawave",
        "grouped_conv_forward_bf16_2d_64x128x64_compv3_intrawave_si_dsb",
    ],
)  # fmt: skip
def test_other_names_are_refused(text):
    with pytest.raises(UserError, match="kernel name"):
        read_kernel_name(text, "gfx950")
