"""The table of kernels that a level of CK Tile's API lacks, or computes wrong results with: what tools made it from."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml
from repository import ROOT

import compile_matrix
import emulated_matrix
from tileseer.build import build
from tileseer.build.base import CompileResult, Resources
from tileseer.cli.main import main
from tileseer.libraries.ck_tile import api
from tileseer.libraries.ck_tile.emit import CkTileEmitter
from tileseer.libraries.ck_tile.kernel import KernelConfig

LEVEL = "2025.11"
PLAIN = KernelConfig.parse("grouped_conv_fwd_bf16_nhwgc_2d_compv3_cshuffle_intrawave_64x64x64_2x2x1_16x16x16")


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def verdicts():
    """What the compiler said."""
    return compile_matrix.read_verdicts(ROOT / compile_matrix.TRIED.format(level=LEVEL))


@pytest.fixture(scope="module")
def executed():
    """What the emulated GPU found."""
    return emulated_matrix.read_verdicts(ROOT / emulated_matrix.KEPT.format(level=LEVEL))


@pytest.fixture(scope="module")
def table():
    return api.read_api(ROOT / "config/ck_api.yaml", LEVEL)


@pytest.fixture(scope="module")
def pools():
    return compile_matrix.Pools(LEVEL)


def test_the_table_says_of_every_kernel_what_the_compiler_said(verdicts, table):
    assert len(verdicts) > 100
    for case, error in verdicts.items():
        assert bool(error) == bool(table.not_built(case.kernel, case.arch)), case


def test_the_table_is_the_one_that_follows_from_the_verdicts(verdicts, table):
    assert compile_matrix.lacks(verdicts) == table.not_compiled


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("fwd_bf16_nhwgc_2d_mem_cshuffle_intrawave_64x64x64_4x1x1_16x16x16_vec1_1_1", True),  # nothing is transposed
        ("bwd_data_bf16_nhwgc_2d_mem_cshuffle_intrawave_64x64x64_4x1x1_16x16x16_vec1_8_8", True),  # 16 bytes of B
        ("bwd_data_bf16_nhwgc_2d_mem_cshuffle_intrawave_64x64x64_4x1x1_16x16x16_vec8_4_8", False),
        ("bwd_weight_bf16_nhwgc_2d_mem_cshuffle_intrawave_16x64x64_1x4x1_16x16x16", True),  # 4 a thread of A
        ("bwd_weight_bf16_nhwgc_2d_mem_cshuffle_intrawave_64x64x64_4x1x1_16x16x16", False),
    ],
)
def test_vectors_of_transposed_tensors_that_ck_tile_would_choose_itself(name, own):
    kernel = KernelConfig.parse(f"grouped_conv_{name}")
    assert api.field_word(kernel, api.OWN_VECTORS) == own
    assert api.field_word(api.with_own_vectors(kernel), api.OWN_VECTORS)


def test_the_newest_level_lacks_nothing_that_was_not_compiled():
    assert not api.read_api(ROOT / "config/ck_api.yaml").not_compiled


@pytest.mark.parametrize(
    ("change", "level", "said"),
    [
        ({"pipeline": "mem", "double_smem_buffer": True}, LEVEL, "it does not compile: "),
        ({"pipeline": "mem", "double_smem_buffer": True}, api.NEWEST, ""),
        ({"pipeline": "basic_v1"}, LEVEL, "its results are wrong: no step reads the LDS"),
        ({}, LEVEL, ""),
    ],
)
def test_it_is_said_what_a_level_lacks(change, level, said):
    emitter = CkTileEmitter(ROOT / "workflow/templates", ROOT / "config/ck_api.yaml", level)
    lack = emitter.lack(replace(PLAIN, **change), "gfx950")
    assert lack.startswith(f"CK Tile {LEVEL}: {said}") if said else not lack


@pytest.mark.parametrize(
    ("change", "level", "splits"),
    [
        ({"two_stage": True, "vec_c": 8}, LEVEL, [1]),
        ({"two_stage": True, "vec_c": 4}, LEVEL, [1, 2, 4]),
        ({"two_stage": True, "vec_c": 8}, api.NEWEST, [1, 2, 4]),
        ({"vec_c": 8}, LEVEL, [1, 2, 4]),
        ({"vec_c": 1}, LEVEL, [1]),
        ({"vec_c": 1}, api.NEWEST, [1]),
        ({"vec_c": 1, "dtype": "fp32"}, api.NEWEST, [1, 2, 4]),
        ({"vec_c": 1, "two_stage": True}, api.NEWEST, [1, 2, 4]),
    ],
)
def test_a_kernel_that_refuses_slices_is_not_offered_with_them(change, level, splits):
    kernel = replace(PLAIN, variant="bwd_weight", **change)
    emitter = CkTileEmitter(ROOT / "workflow/templates", ROOT / "config/ck_api.yaml", level)
    headers = {name: text.encode() for name, text in emitter.files([kernel], "gfx950").items()}
    units = build.compile_units([kernel], headers, "gfx950", "here")
    rows = build.build_kernels(units, [[1, 2, 4]], toolchain=SimpleNamespace(
        identity=lambda: "none", compile=lambda units: [CompileResult("ok", "", Resources("estimated"), "")]
    ))  # fmt: skip
    assert rows["split_k"].to_pylist() == [splits]


def test_a_kernel_that_a_level_lacks_is_not_emitted(tmp_path, capsys):
    rules = yaml.safe_load((ROOT / "config/rule_sets/smoke.yaml").read_text())
    options = [{"pipeline": "compv3", "schedulers": ["intrawave"], "double_smem_buffer": [True]}]
    one = {"tiles": rules["tiles"][:1], "variants": {"forward": {"options": options}}}
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(rules | one))
    asked = ["codegen", "--arch", "gfx950", "--variant", "forward", "--dtype", "bf16", "--ndim", "2"]
    asked += ["--rule-set", str(tmp_path / "one.yaml"), "--output", str(tmp_path / "out")]
    assert main([*asked, "--ck-api", LEVEL]) == 2
    assert "the level 2025.11 of the CK Tile API has none of 1 kernels" in capsys.readouterr().err
    assert main(asked) == 0


def test_kernels_that_are_not_right_are_lacking_and_no_others(executed, table):
    assert len(executed) > 30
    wrong = {"wrong_result", "unwritten_load", "race", "crash", "hang", "run_timeout"}
    for case, verdict in executed.items():
        assert any(row.holds(case.kernel, case.arch) for row in table.wrong) == (verdict.status in wrong), case
    assert all(any(row.holds(case.kernel, case.arch) for case in executed) for row in table.wrong)


def test_the_default_rule_set_has_no_kernel_that_is_wrong(pools, table):
    pool = pools.cases("sweep.yaml")
    assert len(pool) > 1000
    assert not [case for case in pool if any(row.holds(case.kernel, case.arch) for row in table.wrong)]


def test_the_readme_says_how_much_was_executed(executed):
    told = f"executed {len(executed)} ({emulated_matrix.executed_text(executed)} of their instructions)"
    assert told in " ".join((ROOT / "README.md").read_text().split())
