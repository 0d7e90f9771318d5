"""The table of kernels that a level of CK Tile's API lacks: what was compiled, and the rules made of it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tileseer.cli.main import main
from tileseer.families.ck_tile import api

ROOT = Path(__file__).parents[2]
LEVEL = "2025.11"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("compile_matrix", ROOT / "tools/compile_matrix.py")
    made = sys.modules["compile_matrix"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def verdicts(tool):
    return tool.read_verdicts(ROOT / tool.TRIED.format(level=LEVEL))


@pytest.fixture(scope="module")
def table():
    return api.load(ROOT / "config/ck_api.yaml", LEVEL)


def test_the_table_says_of_every_kernel_what_the_compiler_said(verdicts, table):
    assert len(verdicts) > 100
    for case, error in verdicts.items():
        assert bool(error) == bool(table.not_built(case.kernel, case.arch)), case


def test_the_table_is_the_one_that_follows_from_the_verdicts(tool, verdicts, table):
    assert tool.lacks(verdicts) == table.not_compiled


def test_the_newest_level_lacks_nothing_that_was_not_compiled():
    assert not api.load(ROOT / "config/ck_api.yaml").not_compiled


TRUTH = (
    lambda arch, k: k.double_smem_buffer and k.pipeline in ("mem", "compv5"),
    lambda arch, k: k.variant == "bwd_weight" and arch == "gfx90a" and k.warp_tile_k == 32,
    lambda arch, k: k.variant == "bwd_data" and k.pipeline == "compv3",
)
"""What a compiler of this test's own refuses."""


def test_rules_are_found_by_compiling_few_kernels(tool, monkeypatch):
    """Rules of the pool of two archs, without what the compiler of the test refuses being known."""
    monkeypatch.chdir(ROOT)
    refused = lambda case: any(rule(case.arch, case.kernel) for rule in TRUTH)  # noqa: E731
    cases = [case for case in tool.Pools(LEVEL).cases(True) if case.arch != "gfx942" and case.kernel.ndim == 2]
    made: dict = {}
    while batch := tool.wanted(cases, made, True):
        assert len({case.arch for case in batch}) == 1
        made |= {case: "no" if refused(case) else "" for case in batch}
    assert len(made) < len(cases) / 3
    rules = tool.lacks(made)
    for case in cases:
        found = any((not row.arch or case.arch in row.arch) and row.holds(case.kernel) for row in rules)
        assert found == refused(case), (case, rules)


NAME = "grouped_conv_fwd_bf16_nhwgc_2d_mem_cshuffle_intrawave_64x64x64_4x1x1_16x16x16_dsb"


@pytest.mark.parametrize(("level", "code"), [(LEVEL, 1), (api.NEWEST, 0)])
def test_explain_says_what_a_level_lacks(capsys, level, code):
    main(["explain", "config", NAME, "--arch", "gfx950", "--ck-api", level])
    told = capsys.readouterr().out
    (line,) = [line for line in told.splitlines() if "unsupported_by_ck" in line]
    assert ("FAIL" in line) == bool(code)
    assert ("CK Tile 2025.11: it does not compile: " in told) == bool(code)


def test_a_kernel_that_a_level_lacks_is_not_emitted(tmp_path, capsys):
    asked = ["codegen", "--arch", "gfx950", "--variant", "forward", "--datatype", "bf16", "--ndim", "2"]
    asked += ["--pipeline", "compv3", "--double-smem-buffer", "--output", str(tmp_path / "out")]
    assert main([*asked, "--ck-api", LEVEL]) == 2
    assert "the level 2025.11 of the CK Tile API has none of 1 kernels" in capsys.readouterr().err
    assert main(asked) == 0
