"""What emitted C++ says about its kernel: fields, argument lists, registry keys, refusals; the same bytes always."""

import itertools
import json
import re
import shutil
from dataclasses import replace
from operator import attrgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_samples import a_kernel
from repository import ROOT, edited
from stages_by_hand import main_of

from tileseer.core import bundle, parquet
from tileseer.core.errors import UserError
from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.libraries import kernel_table
from tileseer.libraries.ck_tile.api import read_api
from tileseer.libraries.ck_tile.depthwise import DepthwiseConfig
from tileseer.libraries.ck_tile.emit import CHUNK_SIZE, CkTileEmitter
from tileseer.libraries.ck_tile.kernel import (
    EPILOGUES,
    LAYOUTS_OF_NDIM,
    PIPELINES,
    SCHEDULERS,
    SPECIALIZATIONS,
    STREAMK,
)
from tileseer.libraries.emitter import ONE_SLICE

TEMPLATES = ROOT / "workflow/templates"
API = ROOT / "config/ck_api.yaml"
EMITTER = CkTileEmitter(TEMPLATES, API)
OTHER_EMITTER = CkTileEmitter(TEMPLATES, API)
TABLE = read_api(API)

FORWARD = a_kernel(tile_m=32, tile_k=128, wave_m=2, warp_tile_k=32)
WEIGHT = replace(FORWARD, variant="bwd_weight")
TWO_STAGE = replace(WEIGHT, two_stage=True)
STREAM_K = replace(WEIGHT, streamk="tree")
BASE = {"forward": FORWARD, "bwd_data": replace(FORWARD, variant="bwd_data"), "bwd_weight": WEIGHT}

LAYOUT_TAGS = {1: "NWGC GKXC NWGK", 2: "NHWGC GKYXC NHWGK", 3: "NDHWGC GKZYXC NDHWGK"}
LAUNCHER = {
    "forward": "SelectedConvKernelLauncher",
    "bwd_data": "SelectedConvBwdDataLauncher",
    "bwd_weight": "SelectedConvBwdWeightLauncher",
}
KINDS = [
    replace(BASE[variant], pipeline=pipeline, ndim=ndim, layout=LAYOUTS_OF_NDIM[ndim][0])
    for variant, pipeline, ndim in itertools.product(VARIANTS, PIPELINES, LAYOUTS_OF_NDIM)
    if variant == "forward" or pipeline != "compv5"
]


def aliases(text):
    """Return every ``using X = Y;``; later ones (outside the launcher) do not replace earlier ones."""
    found = {}
    for alias, value in re.findall(r"\busing (\w+)\s*=\s*([^;]+);", text):
        found.setdefault(alias, value)
    return found


def arguments(text, template):
    """Return the template arguments of the first use of ``template``."""
    start = re.search(rf"\b{template}<", text).end()
    depth, given_arguments, begin = 1, [], start
    for end in range(start, len(text)):
        if text[end] in "<(":
            depth += 1
        elif text[end] in ">)":
            depth -= 1
        if depth == 0 or (text[end] == "," and depth == 1):
            given_arguments.append(" ".join(text[begin:end].split()))
            begin = end + 1
        if depth == 0:
            return given_arguments
    raise AssertionError(f"{template} is not closed")


def constants(text):
    return dict(re.findall(r"static constexpr [\w:]+(?: char\*| ) ?(\w+)\s*= (.+);", text))


def wrapper_of(kernel, arch="gfx950"):
    return EMITTER.kernel_files(kernel, arch)[f"dispatcher_wrappers/dispatcher_wrapper_{kernel.name}.hpp"]


def key_of(kernel, arch="gfx950"):
    return dict(re.findall(r"key\.(\w+)\s*= (.+);", wrapper_of(kernel, arch)))


@pytest.mark.parametrize("kernel", KINDS, ids=attrgetter("name"))
def test_config_struct(kernel):
    text = EMITTER.header(kernel, "gfx942")
    struct = text[text.index(f"struct {kernel.name}_Config\n") : text.index("namespace ns_")]
    using = aliases(struct)
    assert [using[f"{tensor}DataType"] for tensor in ("In", "Wei", "Out", "Acc")] == ["bf16_t"] * 3 + ["float"]
    tags = [using[f"{tensor}Layout"] for tensor in ("In", "Wei", "Out")]
    assert tags == [f"tensor_layout::convolution::{tag}" for tag in LAYOUT_TAGS[kernel.ndim].split()]
    expected = {
        "M_Tile": 32, "N_Tile": 64, "K_Tile": 128, "M_Warp": 2, "N_Warp": 1, "K_Warp": 1,
        "M_Warp_Tile": 16, "N_Warp_Tile": 16, "K_Warp_Tile": 32, "VectorSizeA": 4, "VectorSizeB": 8, "VectorSizeC": 8,
        "kPadM": "true", "kPadN": "true", "kPadK": "true",
        "Pipeline": f"GemmPipeline::{TABLE.pipelines[kernel.pipeline].enumerator}",
        "Scheduler": "GemmPipelineScheduler::Intrawave", "DoubleSmemBuffer": "false", "UseCShuffleEpilogue": "true",
        "kBlockPerCu": kernel.blocks_per_cu, "NumWaveGroups": 1, "NumGroupsToMerge": 1, "EnableSplitImage": "false",
        "ExplicitGemm": "false", "NDimSpatial": kernel.ndim, "TargetArch": '"gfx942"',
    }  # fmt: skip
    assert constants(struct) == {field: str(value) for field, value in expected.items()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_names_that_others_look_for(variant):
    kernel = BASE[variant]
    text, stem = EMITTER.header(kernel, "gfx950"), kernel.name
    prefix = {"forward": "FWD", "bwd_data": "BWD_DATA", "bwd_weight": "BWD_WEIGHT"}[variant]
    inside = text[text.index(f"namespace ns_{stem} {{") : text.index(f"}} // namespace ns_{stem}")]
    after = text[text.index(f"}} // namespace ns_{stem}") :]
    assert f"using Config = {stem}_Config;" in inside
    assert f'CONV_{prefix}_KERNEL_NAME = "{stem}";' in inside
    assert f"using SelectedConv{prefix.title()}Kernel = Config;" in inside
    assert f"struct {stem}_Launcher\n" in inside
    assert f"using {LAUNCHER[variant]} = {stem}_Launcher;" in inside
    assert f"using {stem}_Launcher = ns_{stem}::{stem}_Launcher;" in after
    guarded = after[after.index("#ifdef CK_TILE_SINGLE_KERNEL_INCLUDE") : after.index("#endif")]
    assert f"using {LAUNCHER[variant]} = ns_{stem}::{LAUNCHER[variant]};" in guarded
    assert f"CONV_{prefix}_KERNEL_NAME = ns_{stem}::CONV_{prefix}_KERNEL_NAME;" in guarded
    assert LAUNCHER[variant] not in after.replace(guarded, "")


@pytest.mark.parametrize(("strategy", "persistent"), list(itertools.product(STREAMK[1:], (False, True))))
def test_stream_k(strategy, persistent):
    text = EMITTER.header(replace(STREAM_K, streamk=strategy, streamk_persistent=persistent), "gfx950")
    assert '#include "ck_tile/ops/gemm/kernel/streamk_gemm/streamk_gemm_tile_partitioner.hpp"' in text
    assert arguments(text, "StreamKTilePartitioner") == [
        "BlockShape", f"StreamKReductionStrategy::{strategy.title()}", str(persistent).lower(),
    ]  # fmt: skip
    assert "using SelectedConvBwd_Weight_Kernel = Config;" in text
    assert "SetWorkSpacePointer(kargs, workspace)" in text
    assert "GetWorkSpaceSize(kargs)" in text
    assert "TailHandler" not in text and "k_split" not in text and "GetLoopNum" not in text


def test_epilogue_is_the_one_in_the_name():
    text = EMITTER.header(replace(FORWARD, epilogue="default"), "gfx950")
    assert constants(text)["UseCShuffleEpilogue"] == "false"
    assert aliases(text)["ConvEpilogue"].startswith("DefaultGemm2DEpilogue<")
    assert "CShuffleEpilogue<" not in text
    assert arguments(text, "DefaultGemm2DEpilogueProblem")[10:12] == ["Config::kPadM", "Config::kPadN"]
    assert key_of(replace(FORWARD, epilogue="default"))["epilogue"] == '"default"'


OPTIONS = {
    "pad_m": (False, "kPadM"), "pad_n": (False, "kPadN"), "pad_k": (False, "kPadK"), "vec_a": (2, "VectorSizeA"),
    "vec_b": (2, "VectorSizeB"), "vec_c": (2, "VectorSizeC"), "num_wave_groups": (2, "NumWaveGroups"),
    "num_groups_to_merge": (8, "NumGroupsToMerge"), "double_smem_buffer": (True, "DoubleSmemBuffer"),
    "split_image": (True, "EnableSplitImage"), "explicit_gemm": (True, "ExplicitGemm"),
    "scheduler": ("interwave", "Scheduler"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "constant", "text"),
    [
        *((field, value, constant, None) for field, (value, constant) in OPTIONS.items()),
        ("specialization", "filter1x1_pad0", "ConvSpec", "Filter1x1Pad0"),
        ("specialization", "filter1x1_stride1_pad0", "ConvSpec", "Filter1x1Stride1Pad0"),
        ("specialization", "filter3x3", "ConvSpec", "Filter3x3"),
    ],
)
def test_options_reach_the_config_and_nothing_else_changes(field, value, constant, text):
    before = constants(EMITTER.header(FORWARD, "gfx950"))
    after = constants(EMITTER.header(replace(FORWARD, **{field: value}), "gfx950"))
    assert after[constant].split("::")[-1].lower() == str(text or value).lower()
    hint = {"kBlockPerCu"} if field == "double_smem_buffer" else set()
    assert {key for key in before if before[key] != after[key]} == {constant} | hint


def test_registry_key_is_the_kernel():
    kernel = replace(WEIGHT, epilogue="default", layout="nhwgc", ndim=3, split_image=True, vec_a=2, pipeline="basic_v1")
    assert key_of(kernel) == {
        "dtype_in": '"bf16"', "dtype_wei": '"bf16"', "dtype_out": '"bf16"', "layout": '"ndhwgc"', "ndim_spatial": "3",
        "op": "GroupedConvOp::BackwardWeight", "tile_m": "32", "tile_n": "64", "tile_k": "128", "wave_m": "2",
        "wave_n": "1", "wave_k": "1", "warp_m": "16", "warp_n": "16", "warp_k": "32", "pipeline": '"basic_v1"',
        "scheduler": '"intrawave"', "epilogue": '"default"', "vector_size_a": "2", "vector_size_b": "8",
        "vector_size_c": "8", "block_per_cu": "2", "num_wave_groups": "1", "num_groups_to_merge": "1",
        "specialization": '"default"', "large_tensor": "true", "streamk_enabled": "false",
        "streamk_reduction": '"none"', "streamk_persistent": "false", "arch": "gfx_arch",
    }  # fmt: skip


CONFIGS = st.builds(
    replace,
    st.sampled_from([FORWARD, BASE["bwd_data"], WEIGHT, TWO_STAGE, STREAM_K]),
    dtype=st.sampled_from(DTYPES), scheduler=st.sampled_from(SCHEDULERS), epilogue=st.sampled_from(EPILOGUES),
    pipeline=st.sampled_from([p for p in PIPELINES if p not in ("compv5", "basic_async_v1")]),
    specialization=st.sampled_from(SPECIALIZATIONS), tile_m=st.integers(1, 512), vec_c=st.sampled_from([1, 2, 8]),
    double_smem_buffer=st.booleans(), split_image=st.booleans(), explicit_gemm=st.booleans(), pad_k=st.booleans(),
)  # fmt: skip


@settings(max_examples=30)
@given(st.sets(CONFIGS, max_size=6))
def test_texts_differ_between_kernels_and_not_between_runs(kernels):
    every = EMITTER.files(sorted(kernels), "gfx950")
    files = {name: text for name, text in every.items() if not name.endswith(ONE_SLICE)}
    assert len(files) == 3 * len(kernels) == len(set(files.values()))
    assert list(files) == sorted(files)
    again = OTHER_EMITTER.files(sorted(kernels, reverse=True), "gfx950")
    assert list(again.items()) == list(every.items())
    forms = [json.dumps(key_of(kernel)) for kernel in kernels]
    assert len(set(forms)) == len(forms)


def test_arch_changes_only_the_target():
    texts = [EMITTER.files([WEIGHT], arch) for arch in ("gfx942", "gfx950")]
    assert texts[0] != texts[1]
    assert {path: text.replace("gfx942", "gfx950") for path, text in texts[0].items()} == texts[1]


def test_names_of_the_files_and_first_lines():
    stem = TWO_STAGE.name
    files = EMITTER.files([TWO_STAGE], "gfx950")
    assert list(files) == sorted([f"{stem}.hpp", f"{stem}.cpp", f"dispatcher_wrappers/dispatcher_wrapper_{stem}.hpp"])
    for path, text in files.items():
        lines = text.splitlines()
        assert lines[0] == "// SPDX-License-Identifier: MIT"
        assert stem in lines[1]
        assert ("#pragma once" in lines[:5]) == path.endswith(".hpp")
        assert text.endswith("\n") and "{{" not in text.replace("{{}", "") and "{%" not in text
        assert not re.search(r"[ \t]+$", text, re.MULTILINE)
    assert f"volatile bool _{stem}_loaded" in files[f"{stem}.cpp"]


def test_one_dimensional_kernels_have_no_wrapper():
    kernel = replace(FORWARD, ndim=1, layout="nwgc")
    assert list(EMITTER.files([kernel], "gfx950")) == [f"{kernel.name}.cpp", f"{kernel.name}.hpp"]
    assert not any("chunk" in path for path in EMITTER.collection_files([kernel], "gfx950"))


DEPTHWISE = DepthwiseConfig("fp16", 16, 28, 5, 2, 4, 1, 7, 8, 2, 4)


def test_depthwise_header():
    text, stem = EMITTER.header(DEPTHWISE, "gfx942"), DEPTHWISE.name
    struct = text[text.index(f"struct {stem}_Config\n") : text.index("namespace ns_")]
    assert constants(struct) == {
        "BlockSize": "64", "TileH": "16", "TileW": "28", "SubTileH": "1", "SubTileW": "7", "NBatch": "8", "Filter": "5",
        "StrideH": "2", "StrideW": "4", "Dilation": "1", "Pad": "2", "VectorSizeIn": "2", "VectorSizeOut": "4",
        "NDimSpatial": "2", "TargetArch": '"gfx942"',
    }  # fmt: skip
    assert [aliases(struct)[f"{tensor}DataType"] for tensor in ("In", "Wei", "Out", "Acc")] == ["half_t"] * 3 + [
        "float"
    ]
    assert arguments(text, "DepthwiseConvFwdTraits") == [
        f"Config::{field}" for field in (
            "InDataType", "WeiDataType", "AccDataType", "OutDataType", "BlockSize", "TileH", "TileW", "Filter",
            "Filter", "StrideH", "StrideW", "Dilation", "Dilation", "Pad", "Pad", "NBatch", "SubTileH", "SubTileW",
            "VectorSizeIn", "VectorSizeOut",
        )
    ]  # fmt: skip
    assert arguments(text, "GroupedConvTraits") == [
        "Config::NDimSpatial", "ConvolutionSpecialization::Default", "void", "void", "ck_tile::tuple<>", "void",
        "Config::VectorSizeIn", "Config::VectorSizeIn", "Config::VectorSizeOut", "1", "false", "false",
        "DepthwiseTraits",
    ]  # fmt: skip
    assert arguments(text, "GroupedConvolutionForwardKernel") == ["ConvTraits", "void", "ConvPipeline", "ConvEpilogue"]
    assert "make_kernel(Kernel{}" in text and "std::runtime_error" in text
    for header in ("core", "host/kernel_launch", "ops/gemm", "ops/grouped_convolution"):
        assert f'#include "ck_tile/{header}.hpp"' in text
    assert "pipeline/grouped_convolution_forward_depthwise_pipeline.hpp" in text


def test_depthwise_registry_key_encodes_the_kernel():
    assert key_of(DEPTHWISE) == {
        "dtype_in": '"fp16"', "dtype_wei": '"fp16"', "dtype_out": '"fp16"', "layout": '"ngchw"', "ndim_spatial": "2",
        "op": "GroupedConvOp::Forward", "tile_m": "16", "tile_n": "28", "tile_k": "5", "wave_m": "2", "wave_n": "4",
        "wave_k": "0", "warp_m": "2", "warp_n": "2", "warp_k": "8", "pipeline": '"depthwise"', "scheduler": '"none"',
        "epilogue": '"none"', "vector_size_a": "2", "vector_size_b": "2", "vector_size_c": "4", "block_per_cu": "2",
        "num_wave_groups": "1", "num_groups_to_merge": "1", "specialization": '"sub1x7"', "large_tensor": "false",
        "streamk_enabled": "false", "streamk_reduction": '"none"', "streamk_persistent": "false", "arch": "gfx_arch",
    }  # fmt: skip


def test_depthwise_kernels_are_collected_with_the_forward_ones():
    files = EMITTER.files([DEPTHWISE], "gfx950") | EMITTER.collection_files([FORWARD, DEPTHWISE], "gfx950")
    stem = DEPTHWISE.name
    assert {f"{stem}.hpp", f"{stem}.cpp", f"dispatcher_wrappers/dispatcher_wrapper_{stem}.hpp"} <= set(files)
    assert f'#include "{stem}.hpp"' in files["include_all_grouped_conv_fwd_kernels.hpp"]
    assert f"add(generated::make_{stem}(arch));" in files["register_fwd_chunk_0.cpp"]


def many(count, variant):
    return [replace(BASE[variant], tile_m=16 * (number + 1)) for number in range(count)]


def test_collections_hold_exactly_the_given_kernels():
    kernels = many(2 * CHUNK_SIZE + 3, "forward") + many(2, "bwd_weight")
    files = EMITTER.collection_files(kernels, "gfx950")
    assert files == EMITTER.collection_files([*reversed(kernels), kernels[3]], "gfx950")
    assert list(files) == [
        "dispatcher_wrappers/register_all_grouped_conv_kernels.hpp",
        "include_all_grouped_conv_bwd_data_kernels.hpp",
        "include_all_grouped_conv_bwd_weight_kernels.hpp",
        "include_all_grouped_conv_fwd_kernels.hpp",
        "register_all_grouped_conv_bwd_weight_kernels.cpp",
        "register_all_grouped_conv_fwd_kernels.cpp",
        "register_bwd_weight_chunk_0.cpp",
        "register_fwd_chunk_0.cpp",
        "register_fwd_chunk_1.cpp",
        "register_fwd_chunk_2.cpp",
    ]
    chunks = [
        re.findall(r"add\(generated::make_(\w+)\(arch\)\)", files[f"register_fwd_chunk_{i}.cpp"]) for i in range(3)
    ]
    assert [len(chunk) for chunk in chunks] == [CHUNK_SIZE, CHUNK_SIZE, 3]
    forward = sorted(kernel.name for kernel in kernels if kernel.variant == "forward")
    assert [stem for chunk in chunks for stem in chunk] == forward
    together = files["include_all_grouped_conv_fwd_kernels.hpp"]
    assert re.findall(r'#include "(\w+)\.hpp"', together) == forward
    assert f"using SelectedConvKernelLauncher = ns_{forward[0]}::SelectedConvKernelLauncher;" in together
    assert "using" not in files["include_all_grouped_conv_bwd_data_kernels.hpp"]
    every = files["dispatcher_wrappers/register_all_grouped_conv_kernels.hpp"]
    included = re.findall(r'#include "dispatcher_wrapper_(\w+)\.hpp"', every)
    assert included == sorted(kernel.name for kernel in kernels)
    counts = re.findall(r"std::size_t grouped_conv_(\w+)_kernel_count\(\)\n{\n    return (\d+);", every)
    assert counts == [("fwd", "53"), ("bwd_data", "0"), ("bwd_weight", "2")]
    assert "std::size_t grouped_conv_kernel_count()" in every


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (replace(FORWARD, two_stage=True), "two_stage does not exist for forward"),
        (replace(BASE["bwd_data"], streamk="tree"), "streamk does not exist for bwd_data"),
        (replace(WEIGHT, pipeline="compv5"), "compv5 exists for forward only"),
        (replace(STREAM_K, two_stage=True), "no second stage"),
        (replace(WEIGHT, explicit_gemm=True, num_groups_to_merge=2), "num_groups_to_merge is 2"),
        (replace(FORWARD, epilogue="default", num_wave_groups=2), "no wave groups"),
    ],
)
def test_kernels_without_a_form_are_refused_by_name(kernel, reason):
    for emit in (EMITTER.header, EMITTER.kernel_files):
        with pytest.raises(UserError, match=reason) as caught:
            emit(kernel, "gfx950")
        assert kernel.name in str(caught.value)


@pytest.mark.parametrize("arch", ["", "GFX950", 'gfx950"; evil', "sm_90", "gfx950\n"])
def test_arch_has_to_be_a_target(arch):
    for emit in (lambda: EMITTER.files([FORWARD], arch), lambda: EMITTER.collection_files([FORWARD], arch)):
        with pytest.raises(UserError, match="gfx950"):
            emit()


@pytest.fixture
def room(tmp_path):
    """Return copies of the templates and the table, to be changed by a test."""
    shutil.copytree(TEMPLATES, tmp_path / "templates")
    shutil.copy(API, tmp_path / "ck_api.yaml")
    return tmp_path / "templates", tmp_path / "ck_api.yaml"


def test_a_misspelt_name_in_a_template_is_an_error(room):
    path = room[0] / "kernel_config.hpp.j2"
    path.write_text(path.read_text().replace("k.tile_m", "k.tile_mm"))
    with pytest.raises(UserError, match=r"kernel\.hpp\.j2.*tile_mm"):
        CkTileEmitter(*room).header(FORWARD, "gfx950")


def test_broken_missing_and_absent_templates_are_named(room):
    for template in ("kernel.cpp.j2", "kernel_types.hpp.j2"):
        path = room[0] / template
        text = path.read_text()
        path.write_text("{% if %}")
        with pytest.raises(UserError, match=rf"{template}:1: broken"):
            CkTileEmitter(*room)
        path.unlink()
        with pytest.raises(UserError, match=template):
            CkTileEmitter(*room).kernel_files(FORWARD, "gfx950")
        path.write_text(text)
    with pytest.raises(UserError, match="no C"):
        CkTileEmitter(room[0] / "nowhere", room[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table["pipelines"].pop("mem"), "pipelines has to have a row.*mem"),
        (lambda table: table["pipelines"].update(memory=table["pipelines"]["mem"]), "pipelines.*memory"),
        (lambda table: table["pipelines"]["mem"].update(tail="both"), r"pipelines\.mem\.tail: .*'both'"),
        (lambda table: table["pipelines"]["mem"].update(base="Base; evil"), r"pipelines\.mem\.base"),
        (lambda table: table["variants"]["forward"].update(a="X"), r"variants\.forward\.a: .*'X'"),
        (lambda table: table["layouts"].pop(2), "layouts has to have a row"),
        (lambda table: table.update(colour="red"), "colour"),
    ],
)
def test_wrong_table_is_named(room, change, message):
    edited(API, room[1], change)
    with pytest.raises(UserError, match=message) as caught:
        CkTileEmitter(*room)
    assert str(room[1]) in str(caught.value)


def run_script(configs, chunk, output):
    named = {"configs": configs, "chunk": chunk, "arch": "gfx950", "templates": TEMPLATES, "api": API}
    named["bundle"] = output
    return main_of("headers")([text for option, value in named.items() for text in (f"--{option}", str(value))])


def test_script_bundles_the_kernels_of_its_chunk(tmp_path):
    kernels = many(12, "forward")
    table = kernel_table.tabulate_kernels(kernels, [1], 3)
    parquet.write_table(table, tmp_path / "forward_bf16.parquet")
    chunks = dict(zip((kernel.name for kernel in kernels), table["chunk"].to_pylist(), strict=True))
    bundles = []
    for chunk in (0, 0, 1):
        output = tmp_path / f"{len(bundles)}.tar"
        assert run_script(tmp_path / "forward_bf16.parquet", chunk, output) == 0
        own = [kernel for kernel in kernels if chunks[kernel.name] == chunk]
        assert own
        expected = {path: text.encode() for path, text in EMITTER.files(own, "gfx950").items()}
        assert bundle.read_bundle(output) == expected
        bundles.append(output.read_bytes())
    assert bundles[0] == bundles[1] != bundles[2]
