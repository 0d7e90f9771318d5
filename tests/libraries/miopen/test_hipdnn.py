"""Rules for hipDNN: golden files, and a reader made from the published form alone that chooses engines by them."""

import json

import pytest
from help_examples import words
from repository import ROOT

from tileseer.cli import main
from tileseer.core.errors import UserError
from tileseer.libraries.miopen import hipdnn
from tileseer.libraries.miopen.hipdnn import Decision, Engine, Rules
from tileseer.problems.problem import Problem

GOLDEN = ROOT / "tests/data/hipdnn_rules.json"
DIMS = {"N": 8, "C": 64, "K": 32, "Hi": 56, "Wi": 28, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}
LINE = "MIOpenDriver conv -n {} -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 1"


def problem(variant="forward", dtype="bf16", layout="", **changed):
    return Problem.from_dims(variant, dtype, **DIMS | changed).with_layout(layout)


def choose(text, op, tensors):
    """The engine of the first rule that fits, as hipDNN's reader of version 2 finds it; None without one.

    ``tensors``: sizes and strides by the name of the tensor.
    """
    content = json.loads(text)
    assert content["version"] == 2
    for rule in content["engine_overrides"]:
        ids = [one["tensor_id"] for one in rule["tensors"]]
        assert len(set(ids)) == len(ids) and not rule.get("criteria")
        fits = rule["op"] == op and len(ids) == len(tensors)
        for one in rule["tensors"]:
            assert len(one["dim"]) == len(one["stride"])
            sizes, strides = tensors.get(one["tensor_id"], ((), ()))
            for expected, actual in ((one["dim"], sizes), (one["stride"], strides)):
                fits = fits and len(expected) == len(actual)
                fits = fits and all(own in (-1, value) for own, value in zip(expected, actual, strict=True))
        if fits:
            return rule["engine_name"]
    return None


def test_the_file_is_the_golden_one():
    rules = Rules()
    rules.add(problem(), Decision("MIOPEN_ENGINE", 0.0123456789), any_batch=True)
    rules.add(problem(layout="NHWC", N=16), Decision("MIOPEN_ENGINE", 0.25), any_batch=False)
    rules.add(problem("bwd_data", G=2, stride_h=2), Decision("FUSILLI_ENGINE", 1.5), any_batch=False)
    rules.add(problem("bwd_weight", Di=9, Z=3, layout="NHWC"), Decision("MIOPEN_ENGINE", 2.0), any_batch=False)
    assert rules.text() == GOLDEN.read_text()


def test_a_reader_of_the_published_form_finds_the_engine():
    text = GOLDEN.read_text()
    w = {"w_tensor_uid": ((32, 64, 3, 3), (576, 9, 3, 1))}
    for batch, engine in ((8, "MIOPEN_ENGINE"), (999, "MIOPEN_ENGINE")):
        x = {"x_tensor_uid": ((batch, 64, 56, 28), (100352, 1568, 28, 1))}
        assert choose(text, "conv_fprop", x | w) == engine
    assert choose(text, "conv_fprop", {"x_tensor_uid": ((8, 64, 56, 29), (1, 1, 1, 1))} | w) is None
    last = {
        "x_tensor_uid": ((16, 64, 56, 28), (100352, 1, 1792, 64)),
        "w_tensor_uid": ((32, 64, 3, 3), (576, 1, 192, 64)),
    }
    assert choose(text, "conv_fprop", last) == "MIOPEN_ENGINE"
    data = {
        "dy_tensor_uid": ((8, 32, 28, 28), (25088, 784, 28, 1)),
        "w_tensor_uid": ((32, 32, 3, 3), (288, 9, 3, 1)),
    }
    assert choose(text, "conv_dgrad", data) == "FUSILLI_ENGINE" and choose(text, "conv_wgrad", data) is None


def test_problems_that_a_rule_cannot_tell_apart_need_one_engine():
    rules = Rules()
    rules.add(problem(), Decision("A", 1.0), any_batch=False)
    rules.add(problem(dtype="fp16"), Decision("A", 2.0), any_batch=False)
    assert len(json.loads(rules.text())["engine_overrides"]) == 1
    rules.add(problem(stride_h=2), Decision("B", 1.0), any_batch=False)
    rules.add(problem(), Decision("A", 1.0), any_batch=False)
    assert json.loads(rules.text()) == {"version": 2, "engine_overrides": []}
    other = Rules()
    other.add(problem(), Decision("A", 1.0), any_batch=False)
    other.add(problem(dtype="fp16"), None, any_batch=False)
    assert json.loads(other.text())["engine_overrides"] == []


@pytest.mark.parametrize(
    "text",
    [
        "# of my machine\nMIOPEN_ENGINE\nFUSILLI_ENGINE\nMY_ENGINE ck_tile\n",
        '["MIOPEN_ENGINE", "FUSILLI_ENGINE", {"name": "MY_ENGINE", "library": "ck_tile"}]',
        '{"engines": [{"name": "MIOPEN_ENGINE"}, "FUSILLI_ENGINE", {"name": "MY_ENGINE", "library": "ck_tile"}]}',
    ],
)
def test_engines_are_those_that_the_machine_lists(tmp_path, text):
    (tmp_path / "engines").write_text(text)
    assert hipdnn.read_engines(tmp_path / "engines") == [
        Engine("MIOPEN_ENGINE", "miopen"), Engine("FUSILLI_ENGINE", ""), Engine("MY_ENGINE", "ck_tile")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no engine"),
        ("N,C,K\n8,64,64\n", "'N,C,K' names no engine; write one a line"),
        ("A nothing\n", "'nothing' is no library; there are"),
        ('{"engines": 3}', "list of names"),
    ],
)
def test_a_list_of_engines_that_is_none_is_told(tmp_path, text, message):
    (tmp_path / "engines").write_text(text)
    with pytest.raises(UserError, match=message):
        hipdnn.read_engines(tmp_path / "engines")


def test_the_example_of_the_help_text_writes_rules(solvers, tmp_path, monkeypatch, capsys):
    example = words("tileseer export hipdnn")
    (tmp_path / "results/models").mkdir(parents=True)
    (tmp_path / "results/models/gfx942_miopen").symlink_to(solvers)
    far = f"{LINE.format(8)} -g 4 -y 51 -H 900"
    (tmp_path / "training.log").write_text("\n".join([LINE.format(8), LINE.format(9), far]))
    (tmp_path / "engines.txt").write_text("FUSILLI_ENGINE\nMIOPEN_ENGINE\n")
    monkeypatch.chdir(tmp_path)
    assert main.main(example) == 0
    said = capsys.readouterr().out
    assert "2 rules (MIOPEN_ENGINE 2) of 3 problems" in said and f"left out 1: {hipdnn.OUTSIDE}" in said
    assert "no model knows the kernels of FUSILLI_ENGINE" in said
    assert f"export HIPDNN_HEUR_CONFIG_PATH={tmp_path}/hipdnn.json" in said
    text = (tmp_path / "hipdnn.json").read_text()
    tensors = {
        "x_tensor_uid": ((8, 64, 56, 56), (200704, 3136, 56, 1)),
        "w_tensor_uid": ((64, 64, 3, 3), (576, 9, 3, 1)),
    }
    assert choose(text, "conv_fprop", tensors) == "MIOPEN_ENGINE"
    assert main.main([*example, "--any-batch"]) == 0
    rules = json.loads((tmp_path / "hipdnn.json").read_text())["engine_overrides"]
    assert len(rules) <= 2 and all(rule["autotune_metadata"]["iterations_run"] == 0 for rule in rules)
    (tmp_path / "engines.txt").write_text("FUSILLI_ENGINE\n")
    assert main.main(example) == 1
    assert f"left out 3: {hipdnn.NO_ENGINE.format('miopen')}" in capsys.readouterr().out
