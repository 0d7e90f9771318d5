"""The matrix of kinds that the emulated GPU executed: what it says, and what the API table makes of the verdicts."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import tool_modules

from tileseer.cli.main import main
from tileseer.kernels.ck_tile import api
from tileseer.kernels.ck_tile.emit import CkTileEmitter
from tileseer.kernels.ck_tile.kernel import KernelConfig
from tileseer.measure.emulated_kernels import KernelVerdict

ROOT = Path(__file__).parents[2]
LEVEL = "2025.11"
PLAIN = KernelConfig.parse("grouped_conv_fwd_bf16_nhwgc_2d_compv3_cshuffle_intrawave_64x64x64_2x2x1_16x16x16")


@pytest.fixture(scope="module")
def tool():
    tool_modules.load("compile_matrix")
    return tool_modules.load("emulated_matrix")


@pytest.fixture(scope="module")
def verdicts(tool):
    return tool.read_verdicts(ROOT / tool.KEPT.format(level=LEVEL))


@pytest.fixture(scope="module")
def table():
    return api.read_api(ROOT / "config/ck_api.yaml", LEVEL)


def test_kernels_that_are_not_right_are_lacking_and_no_others(verdicts, table):
    assert len(verdicts) > 30
    wrong = {"wrong_result", "race", "crash", "run_timeout"}
    for case, verdict in verdicts.items():
        assert any(row.holds(case.kernel, case.arch) for row in table.wrong) == (verdict.status in wrong), case
    assert all(any(row.holds(case.kernel, case.arch) for case in verdicts) for row in table.wrong)


def test_the_default_rule_set_has_no_kernel_that_is_wrong(tool, table, monkeypatch):
    monkeypatch.chdir(ROOT)
    pool = sys.modules["compile_matrix"].Pools(LEVEL).cases("sweep.yaml")
    assert len(pool) > 1000
    assert not [case for case in pool if any(row.holds(case.kernel, case.arch) for row in table.wrong)]


def test_the_page_shows_the_matrix_of_the_verdicts(tool, verdicts, monkeypatch):
    monkeypatch.chdir(ROOT)
    pools = sys.modules["compile_matrix"].Pools(LEVEL)
    shown = (ROOT / tool.SHOWN).read_text().partition(tool.MARKS[0])[2].partition(tool.MARKS[1])[0]
    assert shown == tool.matrix(pools, {*pools.cases(*chain(*tool.POOLS.values()))}, verdicts)


def test_kernels_are_executed_that_show_what_no_verdict_shows(tool):
    case = sys.modules["compile_matrix"].Case
    plain, deep = case("gfx950", PLAIN), case("gfx950", replace(PLAIN, ndim=3, layout="ndhwgc"))
    both, weight = (
        case("gfx950", replace(deep.kernel, epilogue="default")),
        case("gfx942", replace(PLAIN, dtype="fp16")),
    )
    pointwise = case("gfx950", replace(deep.kernel, specialization="filter1x1_pad0"))
    known = {plain: KernelVerdict(PLAIN.name, "ok", 15)}
    assert tool.most_informative([weight, plain], {}) in ([plain], [weight])
    assert tool.most_informative([plain, deep, both], known) == [both]
    assert set(tool.most_informative([plain, deep, pointwise], known)) == {deep, pointwise}
    assert tool.most_informative([plain], known) == []
    assert tool.read_verdicts(ROOT / "none.tsv") == {}
    assert tool.verdicts_text(known).splitlines()[1] == f"gfx950\t{PLAIN.name}\tok\t15\t0\t"


@pytest.mark.parametrize("pipeline, wrong", [("basic_v1", True), ("compv3", False)])
def test_explain_says_that_a_kernel_computes_wrong_results(pipeline, wrong, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    name = replace(PLAIN, pipeline=pipeline).name
    assert main(["explain", "config", name, "--arch", "gfx950", "--ck-api", LEVEL]) == int(wrong)
    assert ("CK Tile 2025.11: its results are wrong: no step reads the LDS" in capsys.readouterr().out) == wrong


@pytest.mark.parametrize("change, line", [
    ({"split_image": True}, "image.pieces[0]     = {0, static_cast<index_t>(grid.x), 0, 0, 0,"),
    ({"num_groups_to_merge": 2}, "kargs.GemmM *= Config::NumGroupsToMerge;"),
    ({"variant": "bwd_data", "pipeline": "mem"}, "LoopPipeline::BlockHasHotloop(num_loop), TailNumber::Full);"),
])  # fmt: skip
def test_launchers_pass_what_the_emulated_gpu_found_missing(change, line):
    emitter = CkTileEmitter(ROOT / "workflow/templates", ROOT / "config/ck_api.yaml", LEVEL)
    assert line in emitter.header(replace(PLAIN, **change), "gfx950")
    assert line not in emitter.header(PLAIN, "gfx950")
