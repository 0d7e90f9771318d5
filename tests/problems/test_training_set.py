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


def chosen(settings, **changes):
    return training_set.choose_problems(ProblemsSettings(**settings, **changes), Operation("forward", "bf16"), (2, 3))


def test_too_few_problems_to_judge_on_are_told_with_the_way_out(settings):
    with pytest.raises(UserError, match=r"fewer than the 300 that problems\.validation_problems: 800 needs; .* to 0"):
        chosen(settings)
    assert len(chosen(settings, validation_problems=0).validation) == 3


def test_a_run_with_a_layer_that_a_user_trains_on_is_no_whole_network(settings, tmp_path):
    assert chosen(settings, validation_problems=0).runs
    layer = ("train", {"N": 4, "C": 128, "K": 8})
    (tmp_path / "own.csv").write_text(table({"train": "own"}, [layer]))
    split = chosen(settings, validation_problems=0, training=["own.csv"])
    assert len(split.validation) == 2 and not split.runs
    assert layer[1].items() <= vars(split.training[0].problem).items()
