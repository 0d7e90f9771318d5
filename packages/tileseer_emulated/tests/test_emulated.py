"""Kernels that were compiled for real are executed on the emulated GPU and compared with the direct convolution."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from test_hip_modules import FORWARD, NATIVE, WEIGHT

from tileseer.build import aliases, build
from tileseer.core import bundle, parquet
from tileseer.core.errors import UserError
from tileseer.facts import hardware
from tileseer.libraries.ck_tile.kernel import parse
from tileseer.measure.harness.supervisor import Supervisor, problem_numbers
from tileseer_emulated import kernels as emulated_kernels
from tileseer_emulated import verdicts as stage
from tileseer_emulated.kernels import supported_problems
from tileseer_emulated.tiny_problems import GRIDS, tiny_problems

HARDWARE = Path(__file__).parents[3] / "config/hardware.yaml"
GPU = hardware.read_hardware(HARDWARE, "gfx950_mi355x")
WIDE = "bf16_nhwgc_2d_compv3_cshuffle_intrawave_64x64x64_2x2x1_16x16x16"
KERNELS = {
    # Those of test_hip_modules: compiled once for both.
    "gfx950": [FORWARD, WEIGHT],
    "gfx942": [f"grouped_conv_fwd_{WIDE.replace('bf16', 'fp16')}", f"grouped_conv_bwd_data_{WIDE}"],
}

MENDED = [
    # Launched with a table that is ours to fill, with the longest of several tails, with the numbers of merged groups.
    f"grouped_conv_{words}"
    for words in (
        "fwd_bf16_nhwgc_2d_compv3_cshuffle_intrawave_16x64x64_1x4x1_16x16x16_large_tensor",
        "bwd_data_bf16_nhwgc_2d_mem_cshuffle_intrawave_64x64x64_2x2x1_16x16x16",
        "fwd_bf16_nhwgc_2d_compv3_cshuffle_intrawave_16x64x64_1x4x1_16x16x16_gm2",
    )
]


@pytest.fixture(scope="module", params=KERNELS)
def built(request):
    """Kernels and their arch."""
    return [parse(name) for name in KERNELS[request.param]], request.param


@pytest.fixture(scope="module")
def loaded(hip, built, tmp_path_factory):
    """Driver and library as files."""
    return hip.load(tmp_path_factory.mktemp("loaded"), KERNELS[built[1]], built[1])


def some(kernel):
    """Problems with one and with several steps, a grid, padding, stride, groups and split-K."""
    pairs = tiny_problems(kernel)
    words = dict.fromkeys(pair.shows for pair in pairs)
    chosen = {shows: next(pair for pair in pairs if pair.shows == shows) for shows in words}
    return [
        *(chosen[shows] for shows in ("1 steps", "3 steps", "4 steps", *GRIDS, "stride", "dilation", "groups")),
        *(pair for shows, pair in chosen.items() if shows.startswith("deep") or shows == "padding, slices"),
    ]


def test_compiled_kernels_compute_the_convolution(built, loaded):
    for kernel in built[0]:
        verdict = emulated_kernels.execute_kernel(kernel, *loaded, supported_problems(kernel, some(kernel)), GPU)
        assert (verdict.status, verdict.wrong, verdict.said) == ("ok", 0, "")
        assert verdict.right >= 6 and verdict.instructions > 20_000 < verdict.issue_cycles
        assert verdict.device_kind == "emulated"


def test_launches_that_were_mended_are_right(hip, tmp_path):
    paths = hip.load(tmp_path, MENDED)
    for kernel in map(parse, MENDED):
        filtered = supported_problems(kernel, [pair for pair in tiny_problems(kernel) if "step" not in pair.shows])
        verdict = emulated_kernels.execute_kernel(kernel, *paths, filtered, GPU)
        assert (verdict.status, verdict.wrong, verdict.said) == ("ok", 0, "")
        assert verdict.right >= 3


def test_a_kernel_that_the_library_lacks_is_no_verdict(built, loaded):
    other = replace(built[0][0], tile_m=128)
    with pytest.raises(UserError, match="no kernel has the name"):
        emulated_kernels.execute_kernel(other, *loaded, supported_problems(other, some(other))[:1], GPU)


def test_a_kernel_that_adds_no_slices_refuses_split_k(hip, built, loaded):
    for kernel in (one for one in built[0] if one.variant == "bwd_weight"):
        problem, split_k, _ = tiny_problems(kernel)[-1]
        with Supervisor(str(loaded[0])) as supervisor:
            able = [
                supervisor.supporting([str(loaded[1])], problem_numbers(vars(problem), problem.variant, slices))
                for slices in (1, split_k)
            ]
        assert [kernel.name in names for names in able] == [True, not hip.emitter.only_one_slice(kernel)]


def test_the_stage_executes_few_problems_of_each_kernel_and_keeps_the_verdicts(
    built, loaded, hip, tmp_path, monkeypatch
):
    kernels, arch = built
    bundle.write_bundle(tmp_path / "headers.tar", hip.emitter.files(kernels, arch))
    words = dict.fromkeys(build.SCHEMA.names) | {"split_k": [1], "build_status": "ok"}
    words |= dict.fromkeys(("kernel_id", "build_reason", "error_digest", "code_hash", "resources_from"), "")
    rows = [words | {"kernel": kernel.name} for kernel in kernels]
    parquet.write_table(pa.Table.from_pylist(rows, build.SCHEMA), tmp_path / "build.parquet")
    parquet.write_table(aliases.SCHEMA.empty_table(), tmp_path / "aliases.parquet")
    settings = {
        "compile": {"toolchain": "hipcc"},
        "cache": {"folder": str(tmp_path / "cache")},
        "benchmark": {"timing": "quick"},
    }
    tables = tmp_path / "build.parquet", tmp_path / "headers.tar", *loaded, tmp_path / "aliases.parquet"
    given = *tables, HARDWARE, NATIVE, settings
    table = stage.execute_chunk(arch, *given)
    assert {(row["status"], row["right"], row["device_kind"]) for row in table.to_pylist()} == {("ok", 6, "emulated")}
    assert all(row["launched"] == row["instances"] >= 3 and row["executed"] >= 0.97 for row in table.to_pylist())
    assert min(table["instructions"].to_pylist()) > 1000 and table.num_rows == len(kernels)
    # A run that was interrupted finds what it has executed.
    monkeypatch.setattr(emulated_kernels, "execute_kernel", None)
    assert stage.execute_chunk(arch, *given).equals(table)


KINDS = {"barrier", "wait", "store", "matrix register", "branch", "LDS", "argument", "carry", "division", "shift"}


def test_spoilt_machine_code_is_found(hip, tmp_path):
    program, paths = Path(__file__).with_name("mutations.py"), hip.load(tmp_path, KERNELS["gfx950"])
    run = subprocess.run([sys.executable, program, *paths, "1", FORWARD], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    rows = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    verdicts = Counter(row["verdict"] for row in rows)
    assert {row["kind"] for row in rows} >= KINDS
    assert verdicts["missed"] == 0 and verdicts["found"] > len(KINDS), rows
    how = {row["what"]: row["how"] for row in rows if row["verdict"] == "found"}
    assert "of the output c, which has" in how["output one element further"]
    assert "of the operand a, which is read-only" in how["the output is an operand"]
    assert "of the output c" in how["an operand is the output"] and "group offset doubled" in how
    # Behind the last change is the table of all.
    assert run.stdout.splitlines()[-len(KINDS)].startswith("|")
