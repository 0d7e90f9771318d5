from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileseer.core.errors import UserError
from tileseer.facts.operations import VARIANTS
from tileseer.problems import layers
from tileseer.problems.problem import DIMS

POINTWISE = dict.fromkeys(DIMS, 1) | {"pad_d": 0, "pad_h": 0, "pad_w": 0}


def row(**changes):
    dims = POINTWISE | changes
    return ",".join(["net", "layer", *(str(dims[name]) for name in DIMS)])


def table(path, *rows, columns=("network", "layer", *DIMS)):
    path.write_text("\n".join([",".join(columns), *rows]) + "\n")
    return path


def layer(**changes):
    return layers.Layer("net", "run", "layer", tuple((POINTWISE | changes)[name] for name in DIMS))


PLAIN = ("network", "layer", *DIMS)


@pytest.mark.parametrize(
    ("line", "columns", "told"),
    [
        (row(N="x"), PLAIN, "line 3: N is 'x'"),
        (row(G=2), PLAIN, "line 3: .*not a multiple"),
        (row(Y=3), PLAIN, "line 3: .*larger than the padded input"),
        ("net,layer,1", PLAIN, "line 3: 3 fields, but the header has 21"),
        (row() + ",1", PLAIN, "line 3: 22 fields, but the header has 21"),
        (row().replace("layer", ""), PLAIN, "line 3: layer is ''; network and layer"),
        (row().replace("net", "\x1b]0;owned\x07"), PLAIN, r"line 3: network is '\\x1b\]0;owned\\x07'"),
        (row().replace("layer", "\u202eabc"), PLAIN, r"line 3: layer is '\\u202eabc'"),
        (row() + ",sideways", (*PLAIN, "directions"), "line 3: directions is 'sideways'"),
        (row() + ",exam", (*PLAIN, "split"), "line 3: split is 'exam'"),
        (row() + ",0", (*PLAIN, "occurrences"), "line 3: occurrences is '0'; it must be a whole number from 1"),
        (row() + ",CHWN", (*PLAIN, "layout"), "line 3: layout is 'CHWN'"),
        (row() + ",red", (*PLAIN, "colour"), "line 1: 'colour' is not one of them; the columns must be"),
        ("1,1", ("network", "layer"), "line 1: 'N' is missing; the columns must be"),
        ("Text, more", ("# Page",), "line 1: '# Page' names no column; write a header with the columns network,layer"),
        ("1,1", ("a", "layer"), "line 1: 'network' is missing; the columns must be .* crawl --problems"),
    ],
)
def test_a_wrong_table_is_refused_with_the_line(tmp_path, line, columns, told):
    values = {"directions": "forward", "split": "test", "occurrences": "1", "layout": "NCHW"}
    right = ",".join([row(), *(values.get(name, "") for name in columns[21:])]) if len(columns) > 2 else line
    with pytest.raises(UserError, match=told):
        layers.read_layers(table(tmp_path / "n.csv", right, line, columns=columns))


def test_a_plain_table_stands_for_one_run_in_all_directions(tmp_path):
    (read,) = layers.read_layers(table(tmp_path / "n.csv", row(C=8, K=4)))
    assert (read.run, read.occurrences, read.directions, read.split) == ("", 1, VARIANTS, "test")
    assert read.flop == 2 * 8 * 4


@given(
    n=st.integers(1, 512), c=st.integers(1, 64), image=st.integers(3, 99), occurrences=st.integers(1, 50),
    directions=st.lists(st.sampled_from(VARIANTS), min_size=1, unique=True), split=st.sampled_from(layers.LAYER_SPLITS),
)  # fmt: skip
def test_what_is_written_is_read_again(tmp_path_factory, n, c, image, occurrences, directions, split):
    dims = tuple((POINTWISE | {"N": n, "C": c, "Hi": image, "Wi": image, "Y": 3, "X": 3})[name] for name in DIMS)
    wanted = layers.Layer("a,b", "train 1", 'x"y', dims, occurrences, tuple(directions), "NCHW", split, "family")
    path = tmp_path_factory.mktemp("layers") / "n.csv"
    path.write_text(layers.layers_csv([wanted]))
    assert layers.read_layers(path) == [wanted]


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1+1", "@SUM(A1)"])
def test_what_a_spreadsheet_would_compute_is_written_as_text(tmp_path, name):
    path = tmp_path / "n.csv"
    path.write_text(layers.layers_csv([replace(layer(), network=name)]))
    (found,) = layers.read_layers(path)
    assert found.network == f"'{name}"
    assert layers.layers_csv([found]) == path.read_text()


def test_the_shares_of_a_run_add_up_and_follow_occurrences():
    one, two = layer(C=8), layers.Layer("net", "run", "other", layer(C=8, K=3).dims, occurrences=2)
    (run,) = layers.runs_of([one, two], "forward")
    assert run.share(one) == pytest.approx(1 / 7) and run.share(two) == pytest.approx(6 / 7)


def test_a_layer_at_two_batch_sizes_in_two_splits_stops_the_workflow():
    one = layer(N=1)
    other = layers.Layer("other", "run", "conv", layer(N=8).dims, split="train")
    with pytest.raises(
        UserError, match="other conv is in split train, but the same layer is in split test as net layer"
    ):
        layers.assert_splits([one, other], "table")
