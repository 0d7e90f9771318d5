import json
import runpy
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tileseer.core.errors import UserError
from tileseer.facts.arch import ArchSpecs
from tileseer.libraries.ck_tile.sweep import CkTileSweep
from tileseer.libraries.enumeration import filter_kernels
from tileseer.problems.operation import Operation

SPECS = ArchSpecs.load("config/arch_specs.json")
FORWARD = Operation("forward", "bf16")


@pytest.fixture
def found():
    sweep = CkTileSweep.read_file("config/rule_sets/sweep.yaml")
    return sweep.enumerate(SPECS, "gfx950", FORWARD, [2, 3])


def test_what_is_left_out_is_listed_as_refused(found):
    kept = filter_kernels(found, "pipeline == mem and ndim == 2", "configs.filter")
    assert kept.kernels == [one for one in found.kernels if one.pipeline == "mem" and one.ndim == 2] != []
    assert kept.split_k == found.split_k
    new = {row.kernel for row in kept.rejected} - {row.kernel for row in found.rejected}
    assert len(new) == len(found.kernels) - len(kept.kernels)
    assert {row.rule for row in kept.rejected if row.kernel in new} == {"filter"}
    assert [row.kernel for row in kept.rejected] == sorted(row.kernel for row in kept.rejected)


def test_an_expression_that_keeps_nothing_is_an_error(found):
    with pytest.raises(UserError, match=r"configs.filter: 'tile_m > 9999' keeps none of \d+ kernels"):
        filter_kernels(found, "tile_m > 9999", "configs.filter")


def test_the_stage_writes_what_is_kept_and_lists_the_rest(tmp_path):
    names = ("kernels", "rejected")
    words = [word for name in names for word in (f"--{name}", str(tmp_path / name))]
    settings = json.dumps({"configs": {"filter": "pipeline == mem and tile_k <= 64"}})
    specs = tmp_path / "arch_specs.json"
    specs.write_text(Path("config/arch_specs.json").read_text())
    stage = runpy.run_path("workflow/scripts/configs.py")["main"]
    given = f"--arch gfx950 --operation forward_bf16 --arch-specs {specs} --tables config/rule_sets".split()
    stage([*given, "--settings", settings, *words])
    table = pq.read_table(tmp_path / "kernels")
    assert set(table["pipeline"].to_pylist()) == {"mem"} and max(table["tile_k"].to_pylist()) <= 64
    assert "\tfilter\tpipeline == mem and tile_k <= 64\n" in (tmp_path / "rejected").read_text()
