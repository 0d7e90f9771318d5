import json

import pytest
import yaml
from repository import ROOT, SPECS
from stages_by_hand import main_of

from configuration_page import json_schema
from tileseer.core.errors import UserError
from tileseer.facts.benchmark import BenchmarkSettings
from tileseer.facts.config import Config, check
from tileseer.facts.model import ModelSettings
from tileseer.libraries.rule_sets import RuleSet
from tileseer.problems.operation import Operation


def test_the_shipped_config_is_valid_and_says_the_defaults():
    shipped = check(yaml.safe_load((ROOT / "config/config.yaml").read_text()))
    assert shipped == Config()


def test_trials_and_other_learners_publish_beside_the_models_of_a_plain_run():
    names = [
        check(settings).published_as("gfx950")
        for model in ({}, {"model": {"learner": "nearest"}})
        for settings in (model, {"publish": {"name": "smoke"}, **model})
    ]
    assert names == ["gfx950", "gfx950-smoke", "gfx950-nearest", "gfx950-smoke-nearest"]


DEVICES = ("hip", "cuda", "emulated")


@pytest.mark.parametrize("names", [("smoke",), *((name,) for name in DEVICES), *((name, "smoke") for name in DEVICES)])
def test_the_overlays_fit_each_other(names):
    merged: dict = {}
    for name in ("config", *names):
        for key, value in yaml.safe_load((ROOT / f"config/{name}.yaml").read_text()).items():
            both = isinstance(value, dict) and isinstance(merged.get(key), dict)
            merged[key] = merged[key] | value if both else value
    config = check(merged)
    assert config.benchmark.device == ("simulated" if names[0] == "smoke" else names[0])
    for name in (config.problems.validation, config.configs.rule_set):
        assert (ROOT / name).is_file()


@pytest.mark.parametrize("arch", ["gfx950", "gfx942", "gfx90a"])
def test_the_smallest_run_has_ten_kernels_and_problems(arch):
    asked = yaml.safe_load((ROOT / "config/smoke.yaml").read_text())
    rule_set = RuleSet((ROOT / asked["configs"]["rule_set"]).as_posix(), ROOT / "config/rule_sets", None, SPECS)
    pool = rule_set.enumerate_kernels(arch, Operation.parse(asked["operations"][0]), check(asked).configs)
    assert len(pool.kernels) == 10
    assert len((ROOT / asked["problems"]["validation"]).read_text().splitlines()) == 1 + asked["problems"]["design"]


def test_every_field_says_what_it_means():
    schema = json.loads(json_schema())
    for name, section in [("Config", schema), *schema["$defs"].items()]:
        for field, content in section.get("properties", {}).items():
            assert "description" in content or "$ref" in str(content), f"{name}.{field}"


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"arhc": "gfx950"}, "config: arhc: unknown field, .*; is it arch\\?"),
        ({"model": {"num_leafs": 9}}, "model.num_leafs: .*is it num_leaves\\?"),
        ({"arch": "mi300"}, "config: arch: .*'mi300'"),
        ({"operations": ["forward"]}, "config: operations.0: .*'forward'"),
        ({"operations": []}, "config: operations: "),
        ({"operations": ["forward_bf16", "forward_bf16"]}, "should be no repetition"),
        ({"configs": {"chunks": "eight"}}, "config: configs.chunks: .*'eight'"),
        ({"configs": {"ndims": [1]}}, "config: configs.ndims.0: "),
        ({"benchmark": {"device": "hopes"}}, "config: benchmark.device: .*'hopes'"),
        ({"benchmark": {"products": {"gfx950": "a b"}}}, "config: benchmark.products.gfx950: "),
        ({"model": {"prior": "logs/../../use.txt"}}, "config: model.prior: .*leaves the workflow"),
        ({"model": {"folds": 1}}, "config: model.folds: .*1"),
        ({"problems": {"training": ["/etc/passwd; rm"]}}, "config: problems.training.0: "),
        ({"compile": {"toolchain": None}}, "config: compile.toolchain: .*None"),
    ],
)
def test_each_wrong_field_gets_one_clear_line(config, told):
    with pytest.raises(UserError, match=told) as error:
        check(config)
    assert len(str(error.value).splitlines()) == 1


def test_texts_of_braces_on_a_command_line_are_yaml_also_in_lists():
    found = check({"model": {"seed": "3"}, "configs": {"ndims": ["2", "3"]}})
    assert (found.model.seed, list(found.configs.ndims)) == (3, [2, 3])


def test_several_wrong_fields_are_all_told():
    with pytest.raises(UserError) as error:
        check({"arhc": 1, "model": {"folds": 1, "seed": -1}})
    assert len(str(error.value).splitlines()) == 3


def test_settings_survive_the_way_through_a_command_line(capsys):
    settings = ModelSettings(seed=7, folds=3)
    written = json.dumps({"model": settings.model_dump(mode="json")})
    assert ModelSettings.of(json.loads(written), "model") == settings
    with pytest.raises(UserError, match="--settings: benchmark: seed"):
        BenchmarkSettings.of({"benchmark": {"seed": "7"}}, "benchmark")
    main = main_of("problems")
    assert main(["--operation", "forward_bf16", "--ndims", "2", "--problems", "p", "--uses", "u", "--settings", "{"])
    assert "no JSON" in capsys.readouterr().err
