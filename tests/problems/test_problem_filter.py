import pytest

from tileseer.core.errors import UserError
from tileseer.facts.inputs import ProblemsSettings
from tileseer.problems import training_set
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS


def table(network, shapes):
    lines = [",".join(("network", "layer", "split", *DIMS))]
    for number, (split, changes) in enumerate(shapes):
        dims = {name: 0 if name.startswith("pad") else 1 for name in DIMS} | {"Hi": 14, "Wi": 14} | changes
        lines.append(",".join([network[split], f"layer{number}", split, *map(str, dims.values())]))
    return "\n".join(lines) + "\n"


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = [("test", 1, 64), ("test", 8, 64), ("test", 1, 128), ("train", 1, 32), ("train", 8, 24)]
    shapes = [(split, {"N": n, "C": c, "K": 8}) for split, n, c in sizes]
    (tmp_path / "mine.csv").write_text(table({"test": "judged", "train": "learnt"}, shapes))
    return {"networks": "mine.csv", "validation": "mine.csv", "design": 0, "training_layers": 10}


def collect(settings, text):
    every = ProblemsSettings(**settings, filter=text, validation_problems=0)
    return training_set.choose_problems(every, Operation("forward", "bf16"), (2, 3))


def test_training_and_validation_keep_what_the_expression_holds_for(settings):
    every = collect(settings, "")
    kept = collect(settings, "N <= 4 and C <= 64")

    def wanted(entries):
        return [e for e in entries if e.problem.N <= 4 and e.problem.C <= 64]

    assert kept.training == wanted(every.training) != []
    assert kept.validation == wanted(every.validation) != []
    assert len(every.validation) > len(kept.validation) and len(every.training) > len(kept.training)
    # The run has layers that are left out: it is no whole network any more.
    assert every.runs and not kept.runs


def test_a_wrong_expression_names_the_setting(settings):
    with pytest.raises(UserError, match=r"problems.filter: 'N <= four', character 6: there is no field or word four"):
        collect(settings, "N <= four")


def test_too_few_problems_to_judge_on_are_told_with_the_way_out(settings):
    few = ProblemsSettings(**settings)
    with pytest.raises(UserError, match=r"fewer than the 300 that problems\.validation_problems: 800 needs; .* to 0"):
        training_set.choose_problems(few, Operation("forward", "bf16"), (2, 3))
    assert len(collect(settings, "").validation) == 3
