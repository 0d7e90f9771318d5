"""The family cutlass: names, rule set, emitted text, support rules, and the recording that is replayed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dataset_files import part_of_recording
from hypothesis import given
from hypothesis import strategies as st
from repository import COEFFICIENTS, H200, MI355X, ROOT, SPECS

from tileseer.core import parquet
from tileseer.core.errors import UserError
from tileseer.data import dataset_files
from tileseer.data.dataset import Dataset
from tileseer.learn import features
from tileseer.libraries.cutlass import cost as simulated
from tileseer.libraries.cutlass import emit, rules
from tileseer.libraries.cutlass.kernel import (
    CUTLASS_VECTOR_WIDTHS,
    GROUPS,
    HALF_TYPES,
    ITERATORS,
    LAYOUT_OF_NDIM,
    SWIZZLES,
    VARIANTS,
    CutlassKernel,
)
from tileseer.libraries.cutlass.sweep import CutlassSweep
from tileseer.libraries.registry import check_support
from tileseer.libraries.rules import broken_rules
from tileseer.measure.device import STATUSES
from tileseer.measure.simulated_device import SimulatedDevice
from tileseer.problems import problem as problem_tables
from tileseer.problems.operation import Operation
from tileseer.problems.problem import Problem

parse, frame = CutlassKernel.parse, CutlassKernel.frame
SWEEP = CutlassSweep.read_file(ROOT / "config/rule_sets/cutlass.yaml")
OPERATIONS = ("forward_bf16", "bwd_data_bf16", "bwd_weight_bf16")
RECORDED = ROOT / "config/recorded/sm_90"

counts = st.integers(1, 512)


@st.composite
def kernels(draw):
    variant = draw(st.sampled_from(list(VARIANTS)))
    return CutlassKernel(
        variant, draw(st.sampled_from(HALF_TYPES)), draw(st.sampled_from(list(LAYOUT_OF_NDIM))),
        draw(st.sampled_from(ITERATORS)), *draw(st.tuples(*[counts] * 9)), stages=draw(st.integers(1, 12)),
        swizzle=draw(st.sampled_from(SWIZZLES)), vec_a=draw(st.sampled_from(CUTLASS_VECTOR_WIDTHS)),
        vec_b=draw(st.sampled_from(CUTLASS_VECTOR_WIDTHS)), vec_c=draw(st.sampled_from(CUTLASS_VECTOR_WIDTHS)),
        strides=draw(st.sampled_from(("unity", "strided"))) if variant == "bwd_data" else "any",
        group_mode=draw(st.sampled_from(GROUPS)),
    )  # fmt: skip


def enumerated(operation: str) -> list[CutlassKernel]:
    return SWEEP.enumerate(SPECS, "sm_90", Operation.parse(operation), [2, 3]).kernels


@given(kernels())
def test_a_name_says_the_whole_kernel(kernel):
    assert parse(kernel.name) == kernel


def test_a_name_that_is_not_canonical_is_refused():
    text = enumerated("forward_bf16")[0].name
    with pytest.raises(UserError):
        parse(text.replace("_s", "_s0", 1))
    with pytest.raises(UserError, match="strides"):
        parse(f"{text}_unity")


def changed(**fields):
    base = next(k for k in enumerated("forward_bf16") if k.ndim == 2 and k.group_mode == "none")
    return replace(base, **fields)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"warp_tile_k": 8}, "instruction_on_arch"),
        ({"tile_m": 100}, "tile_divides"),
        ({"wave_m": 8, "wave_n": 8, "tile_m": 128, "tile_n": 128}, "threads_fit"),
        ({"stages": 12, "tile_m": 256, "tile_n": 128, "tile_k": 64}, "shared_memory_fits"),
        ({"vec_a": 1}, "copies_are_asynchronous"),
        ({"ndim": 3, "vec_a": 4}, "volumes_load_fully"),
        ({"variant": "bwd_data", "ndim": 3, "strides": "strided", "iterator": "optimized"}, "gradient_has_form"),
        ({"ndim": 3, "group_mode": "single"}, "groups_have_form"),
        ({"group_mode": "multiple", "iterator": "optimized"}, "groups_have_form"),
    ],
)
def test_an_illegal_kernel_is_refused_by_the_rule_that_says_why(fields, rule):
    parts = rules.RULES.parts([changed(**fields)], "sm_90", SPECS)
    name, reason = broken_rules(rules.RULES.legality, parts)[0][0]
    assert name == rule and reason and "{" not in reason


def test_an_unknown_group_of_tiles_is_named(tmp_path):
    text = (ROOT / "config/rule_sets/cutlass.yaml").read_text().replace("tiles: [grouped]", "tiles: [huge]", 1)
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match="no group 'huge' of tiles"):
        CutlassSweep.read_file(path).enumerate(SPECS, "sm_90", Operation("forward", "bf16"), [2])


def test_the_header_is_the_kernel():
    emitter = emit.CutlassEmitter(ROOT / "workflow/templates", ROOT)
    for kernel in enumerated("bwd_data_bf16"):
        text = emitter.header(kernel, "sm_90")
        assert f"cutlass::gemm::GemmShape<{', '.join(map(str, kernel.tile))}>" in text
        strided = kernel.strides == "strided"
        assert ("StrideSupport::kStrided" in text) == strided
        assert ("StridedDgradIdentityThreadblockSwizzle" in text) == (strided and kernel.ndim == 2)
        assert f"namespace {kernel.name} {{" in text


@pytest.mark.parametrize("arch", ["gfx950", "", 'sm_90"; evil', "sm_90\n"])
def test_only_cuda_targets_are_emitted(arch):
    with pytest.raises(UserError, match="no CUDA target"):
        emit.CutlassEmitter(ROOT / "workflow/templates", ROOT).header(enumerated("forward_bf16")[0], arch)


def verdicts(operation: str, **dims: int) -> dict[str, str]:
    """Return for each kernel of an operation the support rule that refuses one problem, or an empty text."""
    found = [kernel.name for kernel in enumerated(operation)]
    pool = frame([parse(name) for name in found]).assign(split_k=1)
    variant = Operation.parse(operation).variant
    problem = problem_tables.problem_frame([Problem.from_dims(variant, "bf16", **dims)])
    codes = check_support(problem, pool, variant)[0]
    names = rules.RULES.names
    return dict(zip(found, (names[code] for code in codes), strict=True))


def test_channels_decide_which_vectors_can_run():
    found = verdicts("forward_bf16", N=1, C=12, K=36, Hi=14, Wi=14, Y=3, X=3, pad_h=1, pad_w=1)
    runs = {parse(kernel).vectors for kernel, rule in found.items() if not rule}
    assert runs == {(4, 4, 4), (2, 2, 2)}


def test_groups_need_their_kernels():
    found = verdicts("forward_bf16", N=1, G=4, C=256, K=256, Hi=14, Wi=14, Y=3, X=3, pad_h=1, pad_w=1)
    runs = {(parse(kernel).group_mode, parse(kernel).tile_n) for kernel, rule in found.items() if not rule}
    assert runs == {("single", 64), ("single", 32), ("multiple", 64)}
    assert not any(rule == "" for rule in verdicts("bwd_data_bf16", N=1, G=4, C=256, K=256, Hi=14, Wi=14).values())


def test_a_strided_input_gradient_needs_a_kernel_for_strides():
    found = verdicts("bwd_data_bf16", N=1, C=64, K=64, Hi=14, Wi=14, Y=3, X=3, stride_h=2, stride_w=2)
    assert {parse(kernel).strides for kernel, rule in found.items() if not rule} == {"strided"}
    dilated = verdicts("bwd_data_bf16", N=1, C=64, K=64, Hi=14, Wi=14, Y=3, X=3, dilation_h=2, dilation_w=2)
    assert {parse(kernel).strides for kernel, rule in dilated.items() if not rule} == {"unity"}


def test_split_k_needs_a_step_for_each_slice():
    pool = frame(enumerated("bwd_weight_bf16"))
    problem = problem_tables.problem_frame([Problem.from_dims("bwd_weight", "bf16", N=1, C=64, K=64, Hi=16, Wi=16)])
    runs = check_support(problem, pool.assign(split_k=16), "bwd_weight")[0] == 0
    assert not runs[pool["tile_k"] == 32].any()
    assert not runs.any()
    assert (check_support(problem, pool.assign(split_k=8), "bwd_weight")[0] == 0)[pool["tile_k"] == 32].any()


def test_features_of_a_candidate_mean_what_they_say():
    pool = frame(enumerated("forward_bf16")).assign(split_k=1, vgprs=200.0, lds_bytes=65536, occupancy=2.0)
    problem = problem_tables.problem_frame(
        [Problem.from_dims("forward", "bf16", N=2, C=64, K=96, Hi=28, Wi=28, Y=3, X=3)]
    )
    names = ("fill_m", "stages", "fill_n", "loads_a")
    index = np.zeros(len(pool), int), np.arange(len(pool))
    table = features.Features.of("cutlass", H200, names).matrix(problem, pool, *index)
    fill = 96 / (np.ceil(96 / pool["tile_n"]) * pool["tile_n"])
    loads = np.ceil(pool["tile_m"] * pool["tile_k"] / (32 * pool["wave_m"] * pool["wave_n"] * pool["vec_a"]))
    rows = 2 * 26 * 26
    expected = [rows / (np.ceil(rows / pool["tile_m"]) * pool["tile_m"]), pool["stages"], fill, loads]
    np.testing.assert_allclose(table.T, expected, rtol=1e-6)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_recording_holds_every_pair_that_the_rules_allow(operation):
    own = RECORDED / operation
    problems = parquet.read_table(own / "problems.parquet").to_pandas()
    kernels = parquet.read_table(own / "kernels.parquet").to_pandas()
    pairs = parquet.read_table(own / "pairs.parquet").to_pandas()
    assert kernels["kernel"].tolist() == [kernel.name for kernel in enumerated(operation)]
    splits = sorted(pairs["split_k"].unique())
    pool = frame([parse(name) for name in kernels["kernel"]])
    variant = Operation.parse(operation).variant
    for split in splits:
        allowed = check_support(problems, pool.assign(split_k=split), variant) == 0
        have = np.zeros_like(allowed)
        mine = pairs[pairs["split_k"] == split]
        have[mine["problem"], mine["kernel"]] = True
        assert (allowed == have).all()
    assert set(pairs["status"]) == {"ok"}
    assert (pairs["p10_us"] <= pairs["median_us"]).all() and (pairs["median_us"] <= pairs["p90_us"]).all()
    solved = problems.iloc[pairs["problem"].unique()]["split"].value_counts()
    assert solved["train"] >= 1000 and solved["validation"] >= 300


def test_a_recording_is_a_dataset_with_its_times():
    data = Dataset.read(RECORDED / "forward_bf16")
    assert (data.device_kind, data.device) == ("recorded", "sm_90_h200")
    pairs = parquet.read_table(RECORDED / "forward_bf16/pairs.parquet").to_pandas()
    assert data.ok.all() and len(data.problem) == len(pairs)
    # One pair, looked up by hand.
    problems = parquet.read_table(RECORDED / "forward_bf16/problems.parquet").to_pandas()
    names = parquet.read_table(RECORDED / "forward_bf16/kernels.parquet")["kernel"].to_pylist()
    pair = pairs.iloc[1234]
    of_problem = (data.problems["problem_key"] == problems["problem_key"][pair["problem"]]).to_numpy()
    of_kernel = (data.candidates["kernel"] == names[pair["kernel"]]).to_numpy()
    (row,) = np.flatnonzero(of_problem[data.problem] & of_kernel[data.candidate])
    assert data.latency_ms[row] == pytest.approx(pair["median_us"] / 1000)


@pytest.fixture
def part(tmp_path):
    """One in 16 problems of the forward recording, as a dataset that a test may change."""
    return part_of_recording(tmp_path / "part", "sm_90", "forward_bf16", 16)


def test_a_recorded_sentinel_is_in_the_dataset_and_an_old_recording_has_none(part):
    path = part / "pairs.parquet"
    pairs = pq.read_table(path).drop_columns(["sentinel"])
    pq.write_table(pairs, path)
    assert np.isnan(Dataset.read(part).sentinel).all()
    drift = 1 + np.arange(pairs.num_rows, dtype=np.float32) / pairs.num_rows
    pq.write_table(pairs.append_column("sentinel", pa.array(drift)), path)
    assert np.sort(Dataset.read(part).sentinel) == pytest.approx(drift)


def test_the_noise_between_runs_of_a_recording_is_the_least_error_of_its_times(part):
    def read(relative):
        runs = {"forward_bf16": {"relative": relative, "pairs": 200, "source": "two machines"}}
        about = json.loads((part / "recording.json").read_text()) | {"between_runs": runs}
        (part / "recording.json").write_text(json.dumps(about))
        return Dataset.read(part)

    found = read(0.0125)
    assert found.between_runs == found.relative_error[found.ok].min() == 0.0125
    with pytest.raises(UserError, match="relative"):
        read(0)


def test_what_is_wrong_with_a_recording_is_said(part):
    with pytest.raises(UserError, match="bwd_data_fp16 was not recorded"):
        dataset_files.check_recording(RECORDED, "bwd_data_fp16", H200)
    with pytest.raises(UserError, match="is no dataset of one operation; give the folder of one of bwd_data_bf16"):
        Dataset.read(RECORDED / "bwd_data_fp16")
    # Copied without what it says of itself, under another name.
    (part / "recording.json").rename(part.parent / "own.json")
    (part.parent / "recording.json").write_bytes((RECORDED / "recording.json").read_bytes())
    with pytest.raises(UserError, match="part: is no dataset of one operation; rename it as its operation, or give"):
        Dataset.read(part)
    with pytest.raises(UserError, match=r"forward_bf16: there is no such folder, but .*recording\.json lists forward"):
        Dataset.read(part.parent / "forward_bf16")
    (part.parent / "own.json").rename(part / "recording.json")
    with pytest.raises(UserError, match=r"of gfx950_mi355x \(benchmark\.products\)"):
        dataset_files.check_recording(RECORDED, "forward_bf16", MI355X)
    (part / "recording.json").write_text("{")
    with pytest.raises(UserError, match="is not JSON"):
        Dataset.read(part)
    with pytest.raises(UserError, match="there is no dataset"):
        Dataset.read(part.parent / "nowhere/forward_bf16")


def test_the_simulated_device_times_every_pair_that_ran_and_is_no_blind_guess(part):
    recorded = Dataset.read(part)
    assert len(recorded.problems) > 50
    few = recorded.only(recorded.ok)
    device = SimulatedDevice(H200, COEFFICIENTS, seed=1)
    times = device.measure(few.problems, few.candidates, few.problem, few.candidate)
    outcomes = {STATUSES[status] for status in times.status}
    assert outcomes <= {"ok", "crash"}
    reached = few.efficiency
    latency = pd.Series(np.where(np.isnan(times.latency_ms), np.inf, times.latency_ms))
    picks = latency.groupby(few.problem).idxmin().to_numpy()
    by_chance = pd.Series(reached).groupby(few.problem).mean().mean()
    assert reached[picks].mean() > by_chance + 0.1


def test_stages_take_the_room_of_other_blocks():
    pool = frame([changed(tile_m=64, tile_n=64, tile_k=64, stages=stages) for stages in (2, 8)]).assign(split_k=1)
    problem = problem_tables.problem_frame(
        [Problem.from_dims("forward", "bf16", N=8, C=64, K=64, Hi=56, Wi=56, Y=3, X=3)]
    )
    blocks = simulated.terms(problem, pool, "forward", H200, COEFFICIENTS).columns["occupancy"]
    # Of 227 KiB a block takes 16 KiB for each stage.
    assert blocks[1] == 1 < blocks[0]
