"""What of the crawl needs neither torch nor onnx; test_crawl_of_own_model.py has the rest."""

import dataclasses

import pytest
import yaml
from damage import HOSTILE
from hypothesis import given
from hypothesis import strategies as st

from tileseer.core.errors import UserError
from tileseer.problems import layers
from tileseer.problems.crawl import user_model
from tileseer.problems.crawl.observed import Observed, tabulate_layers
from tileseer.problems.problem import DIMS
from zoo import entries, tables

CONV = Observed("conv", 8, 1, 16, 32, (28, 20), (3, 3), (2, 2), (1, 1), (1, 1))


def dims(conv):
    return dict(zip(DIMS, conv.dims(), strict=True))


def test_a_transposed_convolution_is_the_one_that_it_reverses():
    up = Observed("up", 8, 1, 32, 16, (14, 10), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1), transposed=True)
    assert up.dims() == CONV.dims()
    assert (CONV.directions, up.directions) == (("forward",), ("bwd_data",))
    trained = dataclasses.replace(up, trained=True, input_grad=True)
    assert trained.directions == ("forward", "bwd_data", "bwd_weight")
    first = dataclasses.replace(CONV, trained=True)
    assert first.directions == ("forward", "bwd_weight")


def test_a_signal_is_an_image_of_height_one_and_a_dilation_of_one_pixel_is_none():
    signal = Observed("conv", 2, 1, 4, 4, (100,), (1,), (1,), (0,), (3,))
    found = dims(signal)
    assert (found["Hi"], found["Wi"], found["Y"], found["dilation_w"]) == (1, 100, 1, 1)
    (layer,), _ = tabulate_layers("net", "run", [signal])
    assert layer.layout == "NCL"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"batch": 2**10, "image": (1024, 1024)}, "2 GiB or more"),
        ({"batch": 2**20, "image": (1024, 1024)}, "too large, since N Di Hi Wi is"),
        ({"image": (1, 1), "pad": (0, 0)}, "larger than the padded input"),
        ({"filter": (1, 1)}, "a pad exceeds the reach"),
        ({"batch": 2**40}, "N is 1099511627776"),
    ],
)
def test_what_cannot_stand_in_the_table_is_counted_with_its_reason(changes, told):
    found, left_out = tabulate_layers("net", "run", [CONV, dataclasses.replace(CONV, **changes), CONV])
    assert [layer.occurrences for layer in found] == [2]
    ((reason, count),) = left_out.items()
    assert told in reason and count == 1


def test_shared_layers_belong_to_test_and_all_batch_sizes_go_together():
    names = {tables.split_of(f"family{n}"): f"family{n}" for n in range(200)}
    assert set(names) == set(layers.LAYER_SPLITS)
    family_of = {split: names[split] for split in layers.LAYER_SPLITS}
    (layer,), _ = tabulate_layers("train", "run", [CONV])
    (batch,), _ = tabulate_layers("test", "run", [dataclasses.replace(CONV, batch=1)])
    (own,), _ = tabulate_layers("validation", "run", [dataclasses.replace(CONV, channels=24)])
    found = tables.with_splits([layer, batch, own], family_of)
    assert [one.split for one in found] == ["test", "test", "validation"]
    layers.assert_splits(found, "table")
    assert tables.with_splits([own, batch, layer], family_of) == found[::-1]


def write(path, **changes):
    group = {"package": "p", "family": "f", "task": "speech", "call": "m:f", "networks": {"n": ["train 8@3x4"]}}
    path.write_text(yaml.safe_dump({"packages": {"p": {"licence": "MIT"}}, "groups": [group | changes]}))
    return path


def test_a_zoo_file_is_read(tmp_path):
    (entry,) = entries.load(write(tmp_path / "zoo.yaml"))
    assert (entry.name, entry.runs[0].trained, entry.runs[0].shape) == ("n", True, (8, 3, 4))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"networks": {"n": ["train 8@3xx4"]}}, "is no run such as"),
        ({"networks": {"n": ["train 0@3x4"]}}, "has an extent of 0"),
        ({"task": "chess"}, "task is 'chess'"),
        ({"package": "q"}, "package 'q' is not listed"),
        ({"call": "m"}, "call"),
        ({"colour": 1}, "colour"),
    ],
)
def test_a_wrong_zoo_file_is_refused(tmp_path, changes, told):
    with pytest.raises(UserError, match=told):
        entries.load(write(tmp_path / "zoo.yaml", **changes))


@given(HOSTILE.map(str) | st.just("8x" + "9" * 5000))
def test_a_hostile_input_is_understood_or_told(text):
    try:
        name, shape = user_model.parse_input(text)
    except UserError as error:
        assert str(error).startswith("--input: ") and len(str(error)) < 300
    else:
        assert all(0 < extent < 2**31 for extent in shape) and (not name or text.startswith(name + "="))
