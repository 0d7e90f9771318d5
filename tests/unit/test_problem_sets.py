from pathlib import Path

import pytest
import yaml

from tilewright import problem_sets, problem_table
from tilewright.errors import UserError
from tilewright.operation import VARIANTS, Operation
from tilewright.problem import DIMS

ROOT = Path(__file__).parents[2]
FORWARD = Operation("forward", "bf16")


def write(path, sections, **limits):
    path.write_text(yaml.safe_dump({"sections": sections, **({"limits": limits} if limits else {})}))
    return path


def grid(name="grid", **more):
    return {"name": name, "choices": {"N": [1, 2], "C": [8, 16], "K": [8], "Hi,Wi": [[7, 7], [14, 10]]}, **more}


def dims_of(entries):
    return [tuple(getattr(entry.problem, name) for name in ("N", "C", "Hi", "Wi")) for entry in entries]


def test_a_section_without_count_is_the_whole_product(tmp_path):
    entries = problem_sets.generate(write(tmp_path / "p.yaml", [grid()]), FORWARD, (2,), 1)
    assert sorted(dims_of(entries)) == sorted(
        (n, c, *size) for n in (1, 2) for c in (8, 16) for size in ((7, 7), (14, 10))
    )


def test_drawing_is_repeatable_and_sections_do_not_touch_each_other(tmp_path):
    alone = problem_sets.generate(write(tmp_path / "a.yaml", [grid(count=5)]), FORWARD, (2,), 1)
    other = {"name": "more", "choices": {"C": [32], "K": [32], "Hi,Wi": [[28, 28]]}}
    both = problem_sets.generate(write(tmp_path / "b.yaml", [other, grid(count=5)]), FORWARD, (2,), 1)
    assert len(alone) == 5
    assert both[1:] == alone
    assert dims_of(problem_sets.generate(tmp_path / "a.yaml", FORWARD, (2,), 2)) != dims_of(alone)


def test_derived_fields(tmp_path):
    section = {
        "name": "s", "pad": "same",
        "choices": {"G": [4], "C/G,K/G": [[8, 16]], "Y,X": [[3, 5]], "dilation_h": [2], "Hi,Wi": [[9, 9]]},
    }  # fmt: skip
    (entry,) = problem_sets.generate(write(tmp_path / "p.yaml", [section]), FORWARD, (2,), 1)
    p = entry.problem
    assert (p.C, p.K, p.G, p.pad_h, p.pad_w) == (32, 64, 4, 2, 2)
    assert p.output == (1, 9, 9)
    depthwise = {"name": "d", "depthwise": True, "choices": {"C": [24], "Hi,Wi": [[5, 5]]}}
    (entry,) = problem_sets.generate(write(tmp_path / "d.yaml", [depthwise]), FORWARD, (2,), 1)
    assert (entry.problem.C, entry.problem.K, entry.problem.G) == (24, 24, 24)


def test_limits_leave_out_what_is_too_large(tmp_path):
    path = write(tmp_path / "p.yaml", [grid()], max_gflop=0.00001)
    assert dims_of(problem_sets.generate(path, FORWARD, (2,), 1)) == [(1, 8, 7, 7)]


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
def test_a_wrong_generator_file_is_refused_with_file_and_field(tmp_path, section, told):
    path = write(tmp_path / "p.yaml", [section])
    with pytest.raises(UserError, match=told) as error:
        problem_sets.generate(path, FORWARD, (2,), 1)
    assert str(path) in str(error.value)


def row(**changes):
    dims = dict.fromkeys(DIMS, 1) | {"pad_d": 0, "pad_h": 0, "pad_w": 0} | changes
    return ",".join(["net", "layer", *(str(dims[name]) for name in DIMS)])


def table(path, *rows):
    path.write_text("\n".join([",".join(("network", "layer", *DIMS)), *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (row(N="x"), "line 3: N is 'x'"),
        (row(G=2), "line 3: .*not a multiple"),
        ("net,layer,1", "line 3: 3 fields"),
        (row().replace("layer", ""), "line 3: network and layer"),
    ],
)
def test_a_wrong_row_of_the_table_is_refused_with_its_line(tmp_path, line, told):
    path = table(tmp_path / "n.csv", row(), line)
    with pytest.raises(UserError, match=told):
        problem_sets.read_networks(path, FORWARD, (2, 3))


def test_a_table_with_other_columns_is_refused(tmp_path):
    path = tmp_path / "n.csv"
    path.write_text("network,layer\n")
    with pytest.raises(UserError, match="line 1: the columns must be"):
        problem_sets.read_networks(path, FORWARD, (2,))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_shipped_sets_are_large_and_disjoint(variant):
    operation = Operation(variant, "bf16")
    validation = problem_sets.read_networks(ROOT / "config/problems/networks.csv", operation, (2, 3))
    generated = problem_sets.generate(ROOT / "config/problems/training.yaml", operation, (2, 3), 1)
    training = problem_sets.hold_out(generated, validation)
    problem_sets.assert_disjoint(training, validation)
    assert len(validation) >= 300
    assert len({entry.origin for entry in validation}) >= 15
    assert {entry.problem.ndim for entry in validation} == {entry.problem.ndim for entry in training} == {2, 3}
    families = {entry.problem.layer_family for entry in validation}
    assert not families & {entry.problem.layer_family for entry in training}


def test_a_shared_problem_stops_the_workflow(tmp_path):
    entries = problem_sets.generate(write(tmp_path / "p.yaml", [grid()]), FORWARD, (2,), 1)
    with pytest.raises(UserError, match="1 problems are both in the training and the validation set"):
        problem_sets.assert_disjoint(entries, entries[:1])


def test_the_table_of_problems_does_not_depend_on_the_order_of_the_sections(tmp_path):
    one, two = grid("one"), {"name": "two", "choices": {"C": [32], "K": [32]}}
    first = problem_sets.generate(write(tmp_path / "a.yaml", [one, two]), FORWARD, (2,), 1)
    second = problem_sets.generate(write(tmp_path / "b.yaml", [two, one]), FORWARD, (2,), 1)
    assert problem_table.table(first, []) == problem_table.table(second, [])
