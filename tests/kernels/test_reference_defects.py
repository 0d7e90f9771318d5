"""What needs the whole rule set of the reference to be shown: known defects and what we make of them."""

import re
from pathlib import Path

from tileseer.cli.main import main
from tileseer.config.operations import DTYPES, VARIANTS
from tileseer.gpus.arch import ArchSpecs
from tileseer.kernels.ck_tile import api as ck_api
from tileseer.kernels.ck_tile import kernel, registry_key
from tileseer.kernels.ck_tile.depthwise import DepthwiseConfig
from tileseer.kernels.ck_tile.upstream.named import Enumerator, RuleTables

ROOT = Path(__file__).parents[2]
SPECS = ArchSpecs.load(ROOT / "config/arch_specs.json")
ENUMERATOR = Enumerator(SPECS, RuleTables.read_folder(ROOT / "config/rule_sets"))
API = ck_api.read_api(ROOT / "config/ck_api.yaml")


def test_the_filter_of_the_reference_decides_nothing():
    items = ENUMERATOR.enumerate("full", "gfx950", ["bwd_data"], [2, 3], DTYPES)
    assert len(items) == 624
    assert all(item.rule for item in items) and not any(item.flags for item in items)


def test_no_two_kernels_share_a_registry_key():
    items = ENUMERATOR.enumerate("full", "gfx950", VARIANTS, [2, 3], DTYPES)
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
