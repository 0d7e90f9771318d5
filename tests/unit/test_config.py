import json
from pathlib import Path

import pytest
import yaml

from tileseer.core.errors import UserError
from tileseer.settings.benchmark import BenchmarkSettings
from tileseer.settings.config import Config, check, json_schema

ROOT = Path(__file__).parents[2]


def test_the_shipped_config_is_valid_and_says_the_defaults():
    shipped = check(yaml.safe_load((ROOT / "config/config.yaml").read_text()))
    # The one thing that the shipped config asks for beyond the defaults.
    asked = shipped.configs.model_copy(update={"include_flagged": []})
    assert shipped.configs.include_flagged == ["half_zero_output"]
    assert shipped.model_copy(update={"configs": asked}) == Config()


def test_the_committed_schema_is_that_of_the_code():
    assert (ROOT / "config/schema/config.schema.json").read_text() == json_schema(), "run: make schema"


def test_every_field_says_what_it_means():
    schema = json.loads(json_schema())
    for name, section in [("Config", schema), *schema["$defs"].items()]:
        for field, content in section.get("properties", {}).items():
            assert "description" in content or "$ref" in str(content), f"{name}.{field}"


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"arhc": "gfx950"}, "config: arhc: unknown field"),
        ({"arch": "mi300"}, "config: arch: .*'mi300'"),
        ({"operations": ["forward"]}, "config: operations: .*'forward'"),
        ({"operations": []}, "config: operations: "),
        ({"operations": ["forward_bf16", "forward_bf16"]}, "listed twice"),
        ({"configs": {"chunks": "8"}}, "config: configs.chunks: .*'8'"),
        ({"configs": {"ndims": [1]}}, "config: configs.ndims.0: "),
        ({"benchmark": {"device": "hopes"}}, "config: benchmark.device: .*'hopes'"),
        ({"benchmark": {"products": {"gfx950": "a b"}}}, "config: benchmark.products.gfx950: "),
        ({"benchmark": {"trace": "logs/../../use.txt"}}, "config: benchmark.trace: .*leaves the workflow"),
        ({"model": {"folds": 1}}, "config: model.folds: .*1"),
        ({"problems": {"training": ["/etc/passwd; rm"]}}, "config: problems.training.0: "),
        ({"compile": {"toolchain": None}}, "config: compile.toolchain: .*None"),
    ],
)
def test_each_wrong_field_gets_one_clear_line(config, told):
    with pytest.raises(UserError, match=told) as error:
        check(config)
    assert len(str(error.value).splitlines()) == 1


def test_several_wrong_fields_are_all_told():
    with pytest.raises(UserError) as error:
        check({"arhc": 1, "model": {"folds": 1, "seed": -1}})
    assert len(str(error.value).splitlines()) == 3


def test_settings_survive_the_way_through_a_command_line():
    settings = BenchmarkSettings(seed=7, trace="logs/use.txt")
    assert BenchmarkSettings.from_json(settings.to_json()) == settings
    with pytest.raises(UserError, match="--settings: seed"):
        BenchmarkSettings.from_json('{"seed": "7"}')
    with pytest.raises(UserError, match="no JSON"):
        BenchmarkSettings.from_json("{")
