"""The page of known defects is complete, and what needs the whole rule set to be shown is shown here."""

import re
from pathlib import Path

import pytest

from tileseer.cli.main import main
from tileseer.config.operations import DTYPES, VARIANTS
from tileseer.gpus.arch import ArchSpecs
from tileseer.kernels.ck_tile import api as ck_api
from tileseer.kernels.ck_tile import kernel, registry_key
from tileseer.kernels.ck_tile.depthwise import DepthwiseConfig
from tileseer.kernels.ck_tile.upstream.named import Enumerator, RuleTables

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/internals/reference.md").read_text()
SPECS = ArchSpecs.load(ROOT / "config/arch_specs.json")
ENUMERATOR = Enumerator(SPECS, RuleTables.read_folder(ROOT / "config/rule_sets"))
API = ck_api.read_api(ROOT / "config/ck_api.yaml")


def rows():
    return [line.strip("|").split("|") for line in PAGE.splitlines() if re.match(r"\| B\d", line)]


def test_every_defect_has_one_line_with_a_test():
    assert [row[0].strip() for row in rows()] == [f"B{number}" for number in range(1, 33)]
    for row in rows():
        assert len(row) == 4 and all(cell.strip() for cell in row), row[0]
        assert re.search(r"`test_\w+`", row[3]), row[0]


def test_the_filter_of_the_reference_decides_nothing():
    items = ENUMERATOR.enumerate("full", "gfx950", ["bwd_data"], [2, 3], DTYPES)
    assert len(items) == 624
    assert all(item.rule for item in items) and not any(item.flags for item in items)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_no_two_kernels_share_a_registry_key(arch):
    items = ENUMERATOR.enumerate("full", arch, VARIANTS, [2, 3], DTYPES)
    keys = {
        tuple((registry_key.depthwise_key if isinstance(k, DepthwiseConfig) else registry_key.gemm_key)(k, API).items())
        for k in (item.kernel.built_as for item in items)
    }
    assert len(keys) == len(items) == 14048


def test_emitted_kernels_have_their_true_layout(tmp_path):
    request = ["--arch", "gfx950", "--rule-set", "tiny", "--ndim", "1", "3", "--output", str(tmp_path)]
    paths = ["--config", str(ROOT / "config"), "--templates", str(ROOT / "workflow/templates")]
    assert main(["codegen", *request, *paths]) == 0
    names = {path.stem for path in (tmp_path / "gfx950").glob("grouped_conv_*.cpp")}
    assert names
    for name in names:
        config = kernel.parse(name)
        assert config.layout == {1: "nwgc", 3: "ndhwgc"}[config.ndim]
        if config.ndim == 3:
            wrapper = tmp_path / f"gfx950/dispatcher_wrappers/dispatcher_wrapper_{name}.hpp"
            assert re.search(r'key\.layout +(\S+ )?= "ndhwgc";', wrapper.read_text())
