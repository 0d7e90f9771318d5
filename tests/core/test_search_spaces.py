"""The reader of Kernel Tuner's search spaces, and the rounds that are tried on them."""

import json

import numpy as np
import pytest
import tool_modules

from tileseer.core.errors import UserError

spaces = tool_modules.load("search_spaces", "benchmarks")


def file_of(folder, cache, **more):
    path = folder / "space.json"
    path.write_text(json.dumps({"cache": cache, **more}))
    return path


def test_a_space_has_its_parameters_and_mean_times(tmp_path):
    cache = {
        "16,row": {"block": 16, "order": "row", "times": [1.0, 3.0], "GFLOP/s": 5},
        "32,col": {"block": 32, "order": "col", "times": "RuntimeFailedConfig"},
        "48,col": {"block": 48, "order": "col", "time": "CompilationFailedConfig"},
        "64,row": {"block": 64, "order": "row", "times": [0.5, "InvalidConfig", -1]},
    }
    parameters, times = spaces.read(file_of(tmp_path, cache, tune_params_keys=["block", "order"]))
    assert parameters.tolist() == [[16, 1], [32, 0], [48, 0], [64, 1]]
    np.testing.assert_array_equal(times, [2.0, np.nan, np.nan, 0.5])


@pytest.mark.parametrize("content", ["{", "{}", '{"cache": {}}', '{"cache": [1]}'])
def test_a_file_of_another_form_is_refused(tmp_path, content):
    path = tmp_path / "space.json"
    path.write_text(content)
    with pytest.raises(UserError, match="no search space of Kernel Tuner's hub"):
        spaces.read(path)


@pytest.mark.parametrize("entry", [{"x": 1}, {"x": 1, "times": "CompilationFailedConfig"}])
def test_a_space_without_a_time_is_refused(tmp_path, entry):
    with pytest.raises(UserError, match="no configuration has a time"):
        spaces.read(file_of(tmp_path, {"a": entry}))


def test_rounds_keep_the_budget_and_find_what_a_rule_hides():
    x = np.stack(np.meshgrid(np.arange(20.0), np.arange(20.0)), axis=-1).reshape(-1, 2)
    speed = np.exp(-((x[:, 0] - 13) ** 2 + (x[:, 1] - 4) ** 2) / 50)
    found = [spaces.rounds(x, speed, 60, seed) for seed in range(3)]
    assert all(len(set(one.tolist())) == len(one) <= 60 for one in found)
    drawn = [spaces.best(speed, spaces.draw(400, 60, seed)) for seed in range(3)]
    assert np.mean([spaces.best(speed, one) for one in found]) > np.mean(drawn)
