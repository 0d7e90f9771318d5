import pytest
import yaml

from tileseer.core.errors import UserError
from tileseer.facts.inputs import ProblemsSettings
from tileseer.facts.operations import VARIANTS
from tileseer.problems import layers, problem_sets, problem_table
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS

FORWARD = Operation("forward", "bf16")


@pytest.fixture
def generate(tmp_path):
    """Problems of a generator file."""

    def problems(*sections, seed=1):
        path = tmp_path / "p.yaml"
        path.write_text(yaml.safe_dump({"sections": sections}))
        return problem_sets.generate_problems(path, FORWARD, (2,), seed)

    return problems


def grid(name="grid", **more):
    return {"name": name, "choices": {"N": [1, 2], "C": [8, 16], "K": [8], "Hi,Wi": [[7, 7], [14, 10]]}, **more}


def dims_of(entries):
    return [tuple(getattr(entry.problem, name) for name in ("N", "C", "Hi", "Wi")) for entry in entries]


def test_a_section_without_count_is_the_whole_product(generate):
    entries = generate(grid())
    assert sorted(dims_of(entries)) == sorted(
        (n, c, *size) for n in (1, 2) for c in (8, 16) for size in ((7, 7), (14, 10))
    )


def test_drawing_is_repeatable_and_sections_do_not_touch_each_other(generate):
    alone = generate(grid(count=5))
    other = {"name": "more", "choices": {"C": [32], "K": [32], "Hi,Wi": [[28, 28]]}}
    both = generate(other, grid(count=5))
    assert len(alone) == 5
    assert both[1:] == alone
    assert dims_of(generate(grid(count=5), seed=2)) != dims_of(alone)


def test_derived_fields(generate):
    choices = {"G": [4], "C/G,K/G": [[8, 16]], "Y,X": [[3, 5]], "dilation_h": [2], "Hi,Wi": [[9, 9]]}
    section = {"name": "s", "pad": "same", "choices": choices}
    (entry,) = generate(section)
    p = entry.problem
    assert (p.C, p.K, p.G, p.pad_h, p.pad_w) == (32, 64, 4, 2, 2)
    assert p.output == (1, 9, 9)
    depthwise = {"name": "d", "depthwise": True, "choices": {"C": [24], "Hi,Wi": [[5, 5]]}}
    (entry,) = generate(depthwise)
    assert (entry.problem.C, entry.problem.K, entry.problem.G) == (24, 24, 24)


def test_what_is_too_large_to_be_measured_is_left_out(generate):
    choices = {"N": [1, 4096], "C": [2**10, 2**14], "K": [2**14], "Hi,Wi": [[7, 7], [100, 100]]}
    assert dims_of(generate({"name": "large", "choices": choices})) == [
        (1, 2**10, 7, 7), (1, 2**14, 7, 7), (1, 2**10, 100, 100),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("section", "told"),
    [
        (grid() | {"choices": {"Q": [1]}}, "unknown dimension 'Q'"),
        (grid() | {"choices": {"N": []}}, "N: the list of values is empty"),
        (grid() | {"choices": {"N": ["1"]}}, "N: '1' must be"),
        (grid() | {"choices": {"Hi,Wi": [[1, 2, 3]]}}, "must be 2 whole number"),
        (grid(count=99), "count is 99, but only 8"),
        (grid() | {"colour": 1}, "colour"),
        (grid(pad="some"), "pad"),
    ],
)
def test_a_wrong_generator_file_is_refused_with_file_and_field(generate, section, told):
    with pytest.raises(UserError, match=rf"p\.yaml.*{told}"):
        generate(section)


def layer(network="net", run="infer", name="layer", split="test", occurrences=1, directions=VARIANTS, **changes):
    dims = dict.fromkeys(DIMS, 1) | {"pad_d": 0, "pad_h": 0, "pad_w": 0} | changes
    return layers.Layer(network, run, name, tuple(dims[n] for n in DIMS), occurrences, directions, "", split, network)


def sample_runs(table, size):
    return problem_sets.sample_runs(table, ProblemsSettings(validation_problems=size), FORWARD, (2,))


def test_whole_runs_of_the_split_are_sampled_in_turn_over_families_up_to_the_size():
    table = [
        layer(f"net{n}", f"run{r}", C=8 * (n + 1), Hi=r + 1, Wi=w + 1)
        for n in range(5)
        for r in range(2)
        for w in range(2)
    ]
    table.append(layer("net0", "run0", split="train", C=999))
    table.append(layer("net9", "run0", directions=("bwd_data",), C=2))
    runs = sample_runs(table, 0)
    assert len(runs) == 9  # net0's run0 is not whole
    assert not sample_runs(table, 10)  # each run is more than a tenth of ten problems
    assert len({run.network for run in runs[:5]}) == 5
    assert sample_runs(table, 20) == runs


def test_sampled_train_layers_come_from_every_family_and_never_twice_at_two_batch_sizes():
    table = [
        layer(f"net{n}", split="train", N=batch, C=8 * c) for n in range(3) for c in range(n, 9) for batch in (1, 8)
    ]
    chosen = problem_sets.sample_layers(table, FORWARD, 6, 1)
    assert len({one.layer_family for one in chosen}) == len(chosen) == 6
    assert {one.network for one in chosen} == {"net0", "net1", "net2"}
    assert chosen == problem_sets.sample_layers(table[::-1], FORWARD, 6, 1)


def test_a_validation_problem_is_not_trained_on_at_any_batch_size(generate):
    entries = generate(grid())
    assert entries[0] not in problem_sets.hold_out(entries, entries[:1])
    ones, twos = ([e for e in entries if n == e.problem.N] for n in (1, 2))
    assert ones and twos and problem_sets.hold_out(ones, twos) == []


def test_the_table_of_problems_does_not_depend_on_the_order_of_the_sections(generate):
    one, two = grid("one"), {"name": "two", "choices": {"C": [32], "K": [32]}}
    first = generate(one, two)
    second = generate(two, one)
    assert problem_table.problem_table(first, []) == problem_table.problem_table(second, [])


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
    return problem_sets.choose_problems(ProblemsSettings(**settings, **changes), Operation("forward", "bf16"), (2, 3))


def test_too_few_problems_to_judge_on_are_told_with_the_way_out(settings):
    with pytest.raises(UserError, match=r"fewer than the 300 that problems\.validation_problems: 800 needs; .* to 0"):
        chosen(settings)
    assert len(chosen(settings, validation_problems=0).validation) == 3
    with pytest.raises(UserError, match=r"nothing is left to train forward_bf16 on; raise problems\.design"):
        chosen(settings | {"training_layers": 0}, validation_problems=0)


def test_a_run_with_a_layer_that_a_user_trains_on_is_no_whole_network(settings, tmp_path):
    assert chosen(settings, validation_problems=0).runs
    layer = ("train", {"N": 4, "C": 128, "K": 8})
    (tmp_path / "own.csv").write_text(table({"train": "own"}, [layer]))
    split = chosen(settings, validation_problems=0, training=["own.csv"])
    assert len(split.validation) == 2 and not split.runs
    assert layer[1].items() <= vars(split.training[0].problem).items()
