"""Selection from a published directory, in Python and on the command line."""

import json
import shutil

import learning_samples as samples
import numpy as np
import pytest
from test_publish import make

from tileseer.cli import main
from tileseer.client.selection import Selector
from tileseer.conv import problem
from tileseer.conv.problem import Problem
from tileseer.core.errors import UserError
from tileseer.families import support_rules
from tileseer.model import index as published
from tileseer.model import model_files
from tileseer.model.model import read_trees
from tileseer.publish import model_folder
from tileseer.validation import ranking

LAYER = {"N": 8, "C": 64, "K": 64, "Hi": 56, "Wi": 56, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}
WORD = ",".join(f"{name}={value}" for name, value in LAYER.items())


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("selection")
    training, report, serving = make(folder, "forward")
    model_folder.publish([training], [report], [serving], folder / "models")
    return folder / "models"


@pytest.fixture(scope="module")
def selector(models):
    return Selector.load(models, "forward_bf16")


def test_ranks_supported_candidates_by_score(selector):
    wanted = Problem.from_dims("forward", "bf16", **LAYER)
    ranked = selector.rank(wanted)
    verdicts = support_rules.check(problem.frame([wanted]), selector.pool, "forward")[0]
    assert set(ranked["candidate"]) == set(selector.pool["candidate"][verdicts == 0])
    assert (ranked["score"].diff().dropna() <= 0).all()
    assert ranked["rank"].tolist() == list(range(1, len(ranked) + 1))
    np.testing.assert_allclose(ranked["predicted_efficiency"], np.minimum(100 * np.exp(ranked["score"]), 100))
    assert selector.rank(wanted, 3)["candidate"].tolist() == ranked["candidate"].tolist()[:3]


def test_serves_the_scores_that_validation_used(selector):
    data = samples.measured()
    row = int(np.flatnonzero(data.problems["split"] == "validation")[0])
    scores, _ = ranking.rank_pool(data, selector)
    ranked = selector.rank(problem.from_frame(data.problems.iloc[[row]])[0])
    by_name = dict(zip(data.candidates["candidate"], scores[row], strict=True))
    assert ranked["score"].tolist() == [by_name[name] for name in ranked["candidate"]]


def test_nothing_supported_is_an_empty_ranking(selector):
    odd = Problem.from_dims("forward", "bf16", N=1, C=3, K=5, Hi=9, Wi=9)
    assert selector.rank(odd).empty


def test_a_problem_of_another_operation_is_refused(selector):
    with pytest.raises(UserError, match="bwd_data"):
        selector.rank(Problem.from_dims("bwd_data", "bf16", **LAYER))


def test_the_selector_carries_the_kind_of_device(selector):
    assert (selector.spec.device_kind, selector.spec.device) == ("simulated", "gfx950_mi355x")


def test_a_model_that_is_not_there_is_a_user_error(models):
    with pytest.raises(UserError, match="bwd_data_bf16"):
        Selector.load(models, "bwd_data_bf16")


def test_a_damaged_model_text_is_a_user_error(selector, tmp_path):
    (tmp_path / "model").write_text("no model")
    with pytest.raises(UserError, match="LightGBM"):
        read_trees(tmp_path / "model", "tileseer", selector.spec.feature_names)
    with pytest.raises(UserError, match="features"):
        (tmp_path / "model").write_text(selector.booster.model_to_string())
        read_trees(tmp_path / "model", "tileseer", ["another"])


def test_the_command_prints_the_label_and_the_ranking(models, selector, capsys):
    assert main.main(["select", str(models), "--problem", WORD, "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "device kind: simulated" in lines[0]
    best = selector.rank(Problem.from_dims("forward", "bf16", **LAYER), 2)["kernel"].tolist()
    assert len(lines) == 4
    assert lines[2].endswith(best[0]) and lines[3].endswith(best[1])


def test_options_and_one_word_mean_the_same(models, capsys):
    options = [text for name, value in LAYER.items() for text in (f"--{name}", str(value))]
    assert main.main(["select", str(models), *options]) == 0
    apart = capsys.readouterr().out
    assert main.main(["select", str(models), "--problem", WORD]) == 0
    assert capsys.readouterr().out == apart


def test_json_output_carries_the_label(models, capsys):
    assert main.main(["select", str(models), "--problem", WORD, "--json", "--top", "4"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["device_kind"] == "simulated"
    assert printed["problem"]["Hi"] == 56
    assert len(printed["candidates"]) == 4


def test_the_command_names_a_kernel_by_all_of_its_names(models, selector, tmp_path, capsys):
    own = shutil.copytree(models, tmp_path / "models")
    path = own / "grouped_conv_forward_bf16_gfx950" / model_files.KERNELS
    content = json.loads(path.read_text())
    best = selector.rank(Problem.from_dims("forward", "bf16", **LAYER))["kernel"].tolist()
    next(entry for entry in content["kernels"] if entry["kernel"] == best[1])["aliases"] = ["other", "another"]
    path.write_text(json.dumps(content))
    told = json.loads((own / model_files.INDEX).read_text())
    (own / model_files.INDEX).write_text(json.dumps(told | {"sha256": published.hashes(own)}))
    assert main.main(["select", str(own), "--problem", WORD, "--top", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[4:] == [f"same machine code as {best[1]}: other, another"]
    assert main.main(["select", str(own), "--problem", WORD, "--top", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["candidates"]
    assert [row["aliases"] for row in told] == [[], ["other", "another"]]


def test_an_unsupported_problem_gives_status_1_and_says_so(models, capsys):
    assert main.main(["select", str(models), "--problem", "N=1,C=3,K=5,Hi=9,Wi=9"]) == 1
    said = capsys.readouterr().err
    assert "no candidate supports" in said and " candidates: " in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no problem given"),
        (["--problem", "N=8,C"], "NAME=NUMBER"),
        (["--problem", "N=8,N=9"], "twice"),
        (["--problem", "Q=8"], "unknown field 'Q'"),
        (["--problem", "N=8,C=7,G=2"], "not a multiple of G"),
        (["--variant", "bwd_weight", "--problem", WORD], "no model of operation 'bwd_weight_bf16'"),
    ],
)
def test_mistakes_are_one_line(models, capsys, arguments, message):
    assert main.main(["select", str(models), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_tampered_model_is_refused(models, tmp_path, capsys):
    import shutil

    changed = tmp_path / "models"
    shutil.copytree(models, changed)
    path = changed / "grouped_conv_forward_bf16_gfx950" / model_files.MODEL
    path.write_text(path.read_text().replace("leaf_value=", "leaf_value= ", 1))
    assert main.main(["select", str(changed), "--problem", WORD]) == 2
    assert "does not match index.json" in capsys.readouterr().err


def test_a_directory_without_models_is_refused(tmp_path, capsys):
    assert main.main(["select", str(tmp_path), "--problem", WORD]) == 2
    assert "index.json" in capsys.readouterr().err
