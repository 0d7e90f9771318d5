"""Instance files of a Composable Kernel checkout become the kernels that the reference makes of them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository import CONFIG, SPECS

from tileseer.core.errors import UserError
from tileseer.libraries.ck_tile.depthwise import DepthwiseConfig
from tileseer.libraries.ck_tile.upstream import builder_set
from tileseer.libraries.ck_tile.upstream.full_set import Cell
from tileseer.libraries.ck_tile.upstream.named import Enumerator, RuleTables

TABLES = RuleTables.read_folder(CONFIG / "rule_sets")
CONFIGS = Path("experimental/grouped_convolution_tile_instances/configs")
FOLDERS = {"forward": "forward", "bwd_data": "backward_data", "bwd_weight": "backward_weight"}


def line(kind, length, **values):
    """Return an instance with ``values`` (place to value, as p17=...) and a dummy at every other place."""
    places = {int(place[1:]): value for place, value in values.items()}
    return f"{kind}<{','.join(str(places.get(i, 'Seq(4,16,1)')) for i in range(length))}>"


def forward(
    spec="Default", block=256, tile=(128, 128, 32), ak1=8, matrix=(32, 32), repeats=(2, 2), vec=(8, 8, 8), groups=1
):
    return line(
        "DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle", 49, p14=spec, p17=block, p18=tile[0], p19=tile[1], p20=tile[2],
        p21=ak1, p23=matrix[0], p24=matrix[1], p25=repeats[0], p26=repeats[1], p31=vec[0], p38=vec[1], p44=vec[2],
        p48=groups,
    )  # fmt: skip


def forward_v3(
    scheduler, version, direct="false", tile=(128, 16, 64), repeats=(4, 1), vec=(8, 8, 2), groups=1, block=128
):
    return line(
        "DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle_V3", 50, p14="Filter1x1Pad0", p16=block, p17=tile[0], p18=tile[1],
        p19=tile[2], p20=8, p22=16, p23=16, p24=repeats[0], p25=repeats[1], p30=vec[0], p37=vec[1], p43=vec[2],
        p44=scheduler, p45=version, p48=direct, p49=groups,
    )  # fmt: skip


def weight(kind, length, tile_k, vec=(8, 8, 2), tile=(32, 128), **others):
    return line(
        kind, length, p11="Default", p12=64, p13=tile[0], p14=tile[1], p15=tile_k, p16=8, p17=32, p18=32, p19=1, p20=4,
        p25=vec[0], p32=vec[1], p38=vec[2], **others,
    )  # fmt: skip


def data(tile=(256, 128, 32), repeats=(4, 2), vec=(8, 8, 8), bk1=8, block=256):
    return line(
        "DeviceGroupedConvBwdDataMultipleD_Xdl_CShuffle", 51, p13="Default", p17=block, p18=tile[0], p19=tile[1],
        p20=tile[2], p21=8, p22=bk1, p23=32, p24=32, p25=repeats[0], p26=repeats[1], p31=vec[0], p38=vec[1], p44=vec[2],
        p46="Default",
    )  # fmt: skip


def native(direction, pipeline="BASIC_V1", vec=(8, 8, 4), dsb=0, streamk=(), groups=1, wave_groups=1):
    values = ["2", "Default", *["Layout"] * 4, *vec, groups, 0, 0, 64, 64, 64, 2, 2, 1, 16, 16, 16, "fp16", "fp16"]
    values += [pipeline, "Intrawave", dsb, wave_groups, "fp32", "fp16", "EmptyTuple", "PassThrough", *streamk]
    return f"GroupedConvolution{direction}Kernel<{','.join(map(str, values))}>"


def explicit(vec="8x8xSeq(4)", version="v5", k1="4x4"):
    return (
        "DeviceGroupedConvBwdWeight_Explicit_Xdl<Inner<Default, CRR> BlkSize: 256, BlkTile: 256x256x32, "
        f"WaveTile: 32x32, K1: {k1}, WaveMap: 4x4, VmemReadVec: {vec}, BlkGemmPipelineScheduler: Intrawave, "
        f"BlkGemmPipelineVersion: {version}, BlkGemmPipelinePrefetchStages: 3>"
    )


@pytest.fixture
def checkout(tmp_path):
    """Return a function that writes instance files; the others of the checkout are empty."""

    def write(variant, lines, suffix="", layout="nhwgc", dtype="fp16", rule_set="tests"):
        folder = tmp_path / CONFIGS / FOLDERS[variant] / rule_set
        folder.mkdir(parents=True, exist_ok=True)
        for name in (f"{layout}_{dtype}.conf", f"{layout}_{dtype}_streamk.conf"):
            if not (folder / name).exists():
                (folder / name).write_text("")
        (folder / f"{layout}_{dtype}{suffix}.conf").write_text("\n".join(lines) + "\n")
        return tmp_path

    return write


def names(root, variant, arch="gfx950", ndim=2, dtype="fp16"):
    built = builder_set.gemm_kernels(Cell(arch, variant, ndim, dtype), "tests", root, TABLES.builder, SPECS)
    return [kernel.name.removeprefix("grouped_conv_") for kernel in built]


def test_forward_lines(checkout):
    large = forward(tile=(64, 64, 32), block=64, vec=(1, 1, 1)).replace(
        "MultipleABD_Xdl_CShuffle<", "MultipleD_Xdl_CShuffle_Large_Tensor<"
    )
    root = checkout(
        "forward",
        [
            "# a comment",
            forward(),
            forward(spec="OddC", tile=(64, 16, 16), block=64, ak1=4, matrix=(16, 16), repeats=(4, 1), groups=32),
            large.replace(",1>", ">"),
            "",
            forward_v3("Interwave", "v1"),
            forward_v3("Intrawave", "v2"),
            forward_v3("Intrawave", "v4"),
            forward_v3("Intrawave", "v5"),
            forward_v3("Intrawave", "v3", groups=8),
            forward_v3("Intrawave", "v1", direct="true"),
            forward() + " ; not this one",
            forward(),
        ],
    )
    assert names(root, "forward") == [
        "fwd_fp16_nhwgc_2d_compv1_cshuffle_intrawave_128x128x32_2x2x1_32x32x16_vec8_8_8",
        "fwd_fp16_nhwgc_2d_compv1_cshuffle_intrawave_64x16x16_1x1x1_16x16x16_vec8_8_8_gm32",
        "fwd_fp16_nhwgc_2d_compv1_cshuffle_intrawave_64x64x32_1x1x1_32x32x16_vec1_1_1_large_tensor",
        "fwd_fp16_nhwgc_2d_compv1_cshuffle_interwave_128x16x64_2x1x1_16x16x32_vec8_8_2_filter1x1_pad0",
        "fwd_fp16_nhwgc_2d_mem_cshuffle_intrawave_128x16x64_2x1x1_16x16x32_vec8_8_2_filter1x1_pad0",
        "fwd_fp16_nhwgc_2d_compv4_cshuffle_intrawave_128x16x64_2x1x1_16x16x32_vec8_8_2_dsb_filter1x1_pad0",
        "fwd_fp16_nhwgc_2d_compv6_cshuffle_intrawave_128x16x64_2x1x1_16x16x32_vec8_8_2_filter1x1_pad0",
        "fwd_fp16_nhwgc_2d_compv3_cshuffle_intrawave_128x16x64_2x1x1_16x16x32_vec8_8_2_gm8_filter1x1_pad0",
        "fwd_fp16_nhwgc_2d_basic_async_v1_cshuffle_intrawave_128x16x64_2x1x1_16x16x32_vec8_8_2_filter1x1_pad0",
    ]


def test_backward_weight_lines(checkout):
    v3 = {"p39": "Intrawave", "p40": "v2", "p43": 0, "p44": 1}
    two_stage = {"p39": "Intrawave", "p40": "v5", "p41": 8}
    root = checkout(
        "bwd_weight",
        [
            weight("DeviceGroupedConvBwdWeight_Xdl_CShuffle", 43, 4),
            weight("DeviceGroupedConvBwdWeight_Xdl_CShuffleV3", 45, 32, **v3),
            weight("DeviceGroupedConvBwdWeight_Xdl_CShuffleV3", 45, 32, vec=(8, 5, 2), **v3),
            weight("DeviceGroupedConvBwdWeightTwoStage_Xdl_CShuffle", 46, 32, vec=(8, 8, 1), **two_stage),
            explicit(),
            explicit(vec="8x8xSeq(1)", version="v1", k1="2x8"),
            explicit(vec="2x8xSeq(4)"),
            native("BackwardWeight", vec=(8, 8, 1)),
        ],
    )  # fmt: skip
    checkout(
        "bwd_weight",
        [
            native("BackwardWeight", vec=(4, 1, 1), streamk=(1, 2, 0)),
            native("BackwardWeight", "MEMORY", streamk=(1, 1, 1)),
            native("BackwardWeight", "BASIC_ASYNC_V1", streamk=(1, 2, 0)),
        ],
        "_streamk",
    )
    assert [name.removeprefix("bwd_weight_fp16_nhwgc_2d_") for name in names(root, "bwd_weight")] == [
        "compv1_cshuffle_intrawave_32x128x32_1x1x1_32x32x16_vec8_8_2",
        "mem_cshuffle_intrawave_32x128x32_1x1x1_32x32x16_vec8_8_2",
        "compv6_cshuffle_intrawave_32x128x32_1x1x1_32x32x16_vec8_8_1_gm8_2stage",
        "compv6_cshuffle_intrawave_256x256x32_2x2x1_32x32x16_vec8_8_4_filter1x1_stride1_pad0_explicit_gemm",
        "compv1_cshuffle_intrawave_256x256x32_2x2x1_32x32x16_vec8_8_1_2stage_filter1x1_stride1_pad0_explicit_gemm",
        "compv1_cshuffle_intrawave_64x64x64_2x2x1_16x16x16_vec8_8_1_2stage",
        "compv1_cshuffle_intrawave_64x64x64_2x2x1_16x16x16_vec4_1_1_streamk_tree",
        "mem_cshuffle_intrawave_64x64x64_2x2x1_16x16x16_vec8_8_4_streamk_linear_persistent",
        "basic_async_v1_cshuffle_intrawave_64x64x64_2x2x1_16x16x16_vec8_8_4_streamk_tree",
    ]


def test_backward_data_lines_and_what_is_left_out(checkout):
    lines = [
        data(),
        data(vec=(8, 1, 1)),
        data(vec=(16, 64, 8)),
        data(tile=(64, 128, 32), repeats=(1, 2), vec=(16, 8, 8)),
    ]
    root = checkout("bwd_data", lines)
    assert names(root, "bwd_data") == [
        "bwd_data_fp16_nhwgc_2d_compv1_cshuffle_intrawave_256x128x32_2x2x1_32x32x16_vec8_8_8"
    ]


def test_waves_follow_the_arch(checkout):
    root = checkout("forward", [forward_v3("Intrawave", "v2"), forward(ak1=16)])
    assert names(root, "forward", arch="gfx1201") == [
        "fwd_fp16_nhwgc_2d_mem_cshuffle_intrawave_128x16x64_2x1x2_16x16x32_vec8_8_2_filter1x1_pad0"
    ]


def test_fp32_has_matrix_instructions_of_its_own(checkout):
    root = checkout("forward", [forward(ak1=1), forward_v3("Intrawave", "v1")], dtype="fp32", layout="ndhwgc")
    assert [name.split("_intrawave_")[1] for name in names(root, "forward", ndim=3, dtype="fp32")] == [
        "128x128x32_2x2x1_32x32x2_vec8_8_8", "128x16x64_2x1x1_16x16x8_vec8_8_2_filter1x1_pad0",
    ]  # fmt: skip
    assert names(root, "forward", ndim=3, dtype="fp32")[0].startswith("fwd_fp32_ndhwgc_3d_")
    # Stream-K with asynchronous loads has none.
    async_loads = [native("BackwardWeight", "BASIC_ASYNC_V1", streamk=(1, 2, 0))]
    assert names(checkout("bwd_weight", async_loads, "_streamk", dtype="fp32"), "bwd_weight", dtype="fp32") == []


def test_depthwise_lines_are_shared_by_the_data_types_and_asked_for_by_name(checkout, tmp_path):
    checkout("forward", [forward()])
    (tmp_path / CONFIGS / "forward/tests/ngchw_depthwise.conf").write_text(
        "GroupedConvolutionForwardDepthwise<16,16,3,2,2,1,1,2,1,4,8,8>\n# GroupedConvolutionForwardDepthwise<8>\n"
    )
    enumerator = Enumerator(SPECS, TABLES, tmp_path)
    found = enumerator.enumerate("tests", "gfx950", ["forward_depthwise"], [2, 3], ["fp16", "fp32"])
    stem = "ngchw_2d_16x16_f3_s2x2_p1x1_nb2_sub1x4_vec8_8"
    assert [item.name for item in found] == [f"grouped_conv_fwd_depthwise_{dtype}_{stem}" for dtype in ("fp16", "fp32")]
    assert [DepthwiseConfig.parse(item.name) for item in found] == [item.kernel for item in found]
    assert [item.name for item in enumerator.enumerate("tests", "gfx950", ["forward"], [2], ["fp16"])] == [
        "grouped_conv_fwd_fp16_nhwgc_2d_compv1_cshuffle_intrawave_128x128x32_2x2x1_32x32x16_vec8_8_8"
    ]


def test_a_pipeline_that_the_reference_replaces_is_flagged(checkout):
    root = checkout("forward", [native("Forward", "COMPUTE_ASYNC"), forward_v3("Intrawave", "v4", direct="1")])
    items = Enumerator(SPECS, TABLES, root).enumerate("tests", "gfx950", ["forward"], [2], ["fp16"])
    assert [item.kernel.pipeline for item in items] == ["mem", "mem"]
    reasons = [{flag.name: flag.reason for flag in item.flags}["pipeline_replaced"] for item in items]
    assert "comp_async" in reasons[0] and "compv4" in reasons[1]


@pytest.mark.parametrize(
    ("variant", "text", "told"),
    [
        ("forward", forward().replace(",1>", ">"), "48 values, 49 expected"),
        ("forward", forward(spec="Filter9x9"), "specialization 'Filter9x9' is unknown"),
        ("forward", forward(block="many"), "block is 'many'; a number of at least 1"),
        ("forward", forward_v3("Intrawave", "v9"), "pipeline 'v9' is unknown"),
        ("forward", forward_v3("Intrawave", "v1", direct="maybe"), "direct 'maybe' is unknown; known: 0, 1, false"),
        ("forward", "DeviceGroupedConvFwd_Wmma<1,2>", "no instance of a known class"),
        ("forward", "what is this", "no instance of a known class"),
        ("forward", data(), "an instance of bwd_data"),
        ("forward", native("Forward", "FAST"), "pipeline 'FAST' is unknown"),
        ("bwd_data", data(bk1=4), "AK1 is 8 and BK1 4"),
        ("bwd_weight", explicit(vec="8x8xSeq(4,2)"), "VmemReadVec is '8x8xSeq(4,2)'"),
        ("bwd_weight", explicit(k1="four"), "K1 is 'four'"),
        ("bwd_weight", native("BackwardWeight", streamk=(1, 3, 0)), "reduction '3' is unknown; known: 1, 2"),
    ],
)
def test_lines_that_cannot_be_read_are_named(checkout, variant, text, told):
    root = checkout(variant, ["# first", text])
    with pytest.raises(UserError, match=r"nhwgc_fp16\.conf:2: ") as caught:
        names(root, variant)
    assert told in str(caught.value)


def test_a_missing_file_and_a_missing_checkout_are_told(tmp_path):
    with pytest.raises(UserError, match=r"forward/tests/nhwgc_fp16.conf: there is no such.*ck\.root \(--ck-root DIR\)"):
        names(tmp_path, "forward")
    with pytest.raises(UserError, match=r"checkout.*--ck-root DIR"):
        Enumerator(SPECS, TABLES).enumerate("tests", "gfx950", ["forward"], [2], ["fp16"])


WORDS = st.sampled_from(["Default", "true", "Seq(1,2)", "", "-1", "0", "1.5", "17"])


@given(st.integers(0, 48), WORDS | st.integers(-2, 10**6).map(str))
def test_no_line_ends_in_another_error(tmp_path_factory, place, word):
    root = tmp_path_factory.getbasetemp() / "ck"
    folder = root / CONFIGS / "forward/tests"
    folder.mkdir(parents=True, exist_ok=True)
    kind, _, values = forward().replace("Seq(4,16,1)", "x").removesuffix(">").partition("<")
    changed = values.split(",")
    changed[place] = word
    (folder / "nhwgc_fp16.conf").write_text(f"{kind}<{','.join(changed)}>\n")
    try:
        found = names(root, "forward")
    except UserError as error:
        assert "nhwgc_fp16.conf:1" in str(error)
    else:
        assert len(found) <= 1
