import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_samples import a_kernel

from tileseer.core.errors import UserError
from tileseer.libraries.ck_tile import kernel as kernels
from tileseer.libraries.ck_tile.kernel import KernelConfig, parse
from tileseer.libraries.gemm_kernel import field_types


def configs():
    fields = {
        "variant": st.sampled_from(kernels.VARIANTS),
        "dtype": st.sampled_from(kernels.DTYPES),
        "layout": st.sampled_from(
            [(ndim, label) for ndim, labels in kernels.LAYOUTS_OF_NDIM.items() for label in labels]
        ),
        "pipeline": st.sampled_from(kernels.PIPELINES),
        "epilogue": st.sampled_from(kernels.EPILOGUES),
        "scheduler": st.sampled_from(kernels.SCHEDULERS),
        "specialization": st.sampled_from(kernels.SPECIALIZATIONS),
        "streamk": st.sampled_from([(word, False) for word in kernels.STREAMK] + [("tree", True), ("linear", True)]),
    }
    by_type = {"int": st.integers(1, 4096), "bool": st.booleans()}
    for field, kind in field_types(KernelConfig).items():
        if kind in by_type and field not in ("ndim", "streamk_persistent"):
            fields[field] = by_type[kind]

    def built(values):
        ndim, layout = values.pop("layout")
        streamk, persistent = values.pop("streamk")
        return KernelConfig(**values, ndim=ndim, layout=layout, streamk=streamk, streamk_persistent=persistent)

    return st.fixed_dictionaries(fields).map(built)


@given(configs())
def test_every_kernel_is_the_one_that_its_name_says(kernel):
    assert parse(kernel.name) == kernel


STEM = "grouped_conv_fwd_bf16_nhwgc_2d_compv3_cshuffle_intrawave_64x128x64_2x2x1_32x32x16"


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("", "", "grouped_conv_ is expected, the name ends"),
        ("conv_fwd", "", "grouped_conv_ is expected, found 'conv'"),
        (STEM.replace("fwd", "forward"), "grouped_conv_", "a direction (fwd, bwd_data, bwd_weight) is expected"),
        (STEM.replace("bf16", "fp8"), "grouped_conv_fwd_", "a data type (fp16, bf16, fp32) is expected, found 'fp8'"),
        (STEM.replace("2d", "4d"), "grouped_conv_fwd_bf16_nhwgc_", "the dimensionality (1d, 2d, 3d) is expected"),
        (STEM.replace("compv3", "compv9"), STEM[:31], "basic_async_v1, wavelet) is expected, found 'compv9'"),
        (STEM.replace("64x128x64", "64x0x64"), STEM[:57], "the block tile (m x n x k, as 64x128x64) is expected"),
        (STEM.replace("2x2x1", "2x2"), STEM[:67], "the waves per block"),
        (STEM[:70], STEM[:67], "the waves per block"),
        (STEM.replace("32x32x16", "32x32x16a"), STEM[:73], "the warp tile"),
        (STEM + "_fast", STEM, "no further part is allowed here, found '_fast'"),
        (STEM + "_dsb_gm2", STEM + "_dsb", "_gmN comes after a part that must follow it, found '_gm2'"),
        (STEM + "_streamk_ring", STEM, "no further part is allowed here, found '_streamk'"),
    ],
)  # fmt: skip
def test_a_broken_name_is_shown_where_it_breaks(text, place, told):
    with pytest.raises(UserError) as caught:
        parse(text)
    first, shown, caret, _ = str(caught.value).splitlines()
    assert told in first and f"at character {len(place) + 1} " in first
    assert (shown, caret) == (f"  {text}", f"  {' ' * len(place)}^")


@given(configs(), st.data())
def test_a_damaged_name_is_refused_or_names_another_kernel_exactly(kernel, data):
    text = kernel.name
    position = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:position] + data.draw(st.characters(codec="ascii")) + text[position + 1 :]
    try:
        assert parse(damaged).name == damaged
    except UserError as error:
        assert "kernel" in str(error)


@pytest.mark.parametrize("suffix", ["_vec4_8_8", "_wg1", "_pad111"])
def test_a_second_way_to_write_a_kernel_is_refused(suffix):
    with pytest.raises(UserError, match="not canonical"):
        parse(STEM + suffix)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"pipeline": "compv9"}, "pipeline"),
        ({"tile_m": 0}, "tile_m"),
        ({"wave_k": True}, "wave_k"),
        ({"layout": "ndhwgc"}, "layout"),
        ({"streamk_persistent": True}, "streamk_persistent"),
        ({"dtype": "fp8"}, "dtype"),
    ],
)
def test_a_field_out_of_range_is_refused_by_name(changes, field):
    with pytest.raises(UserError, match=field):
        a_kernel(**changes)


def test_blocks_per_cu_follow_pipeline_and_buffering():
    assert a_kernel(pipeline="compv4", double_smem_buffer=True).blocks_per_cu == 1
    assert a_kernel(pipeline="basic_v1", double_smem_buffer=True).blocks_per_cu == 2
    assert a_kernel(double_smem_buffer=True).blocks_per_cu == 1
    assert a_kernel().blocks_per_cu == 2
