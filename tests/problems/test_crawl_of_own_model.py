"""A user's own model, with the real torch and onnx: `make crawltest` sets up an environment that has them."""

import importlib.util

import pytest
from help_examples import words
from hypothesis import given
from hypothesis import strategies as st

from tileseer.cli import main
from tileseer.core.errors import UserError
from tileseer.problems import layers
from tileseer.problems.crawl import user_model
from tileseer.problems.problem import DIMS

MODEL = """
from torch import nn

def net():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1, groups=4),
        nn.Conv2d(16, 16, 3, 1, 1, groups=4), nn.ConvTranspose2d(16, 8, 2, 2),
    )

def reads_values():
    class Net(nn.Module):
        def forward(self, x):
            return x if x.sum().item() > 0 else -x
    return Net()

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 8)

    def forward(self, x, ids):
        return self.words(ids)
"""


def dims(layer):
    return {name: value for name, value in zip(DIMS, layer.dims, strict=True) if value not in (0, 1)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_net_of_the_test.py").write_text(MODEL)
    (tmp_path / "my_broken_net_of_the_test.py").write_text("1 / 0")
    (tmp_path / "my_script_of_the_test.py").write_text("import argparse; a = argparse.ArgumentParser(); a.error('x')")
    return tmp_path


def crawl(*arguments):
    return main.main(["crawl", *arguments, "--output", "found.csv"])


def test_a_list_of_problems_becomes_a_table_of_layers(folder, capsys):
    lines = ["conv -n 8 -c 16 -H 9 -W 9 -k 32 -y 3 -x 3 -F 1", "conv -n 8 -c 16 -H 9 -W 9 -k 32 -y 3 -x 3 -F 2"]
    key = "16-9-9-3x3-32-7-7-4-0x0-1x1-1x1-0-NHWC-NHWC-NHWC-BF16-F"
    (folder / "list.txt").write_text("\n".join([*lines, "['MIOpenDriver', 'convint8', '-n', '8']", key]))
    assert crawl("--problems", "list.txt") == 0
    assert "left out: 1 convolutions: MIOpenDriver 'convint8'" in capsys.readouterr().err
    first, second = layers.read_layers(folder / "found.csv")
    assert first.directions == ("forward", "bwd_data") and second.directions == ("forward",)
    assert (first.network, dims(first)["N"], dims(second)["N"]) == ("list", 8, 4)


def test_a_torch_model_becomes_a_table_of_layers(folder):
    pytest.importorskip("torch")
    assert crawl("--torch", "my_net_of_the_test:net", "--input", "8x3x64x64", "--train") == 0
    stem, grouped, up = layers.read_layers(folder / "found.csv")
    assert dims(stem) == {"N": 8, "C": 3, "K": 16, "Hi": 64, "Wi": 64, "Y": 3, "X": 3, "stride_h": 2, "stride_w": 2}
    assert stem.directions == ("forward", "bwd_weight")
    assert (grouped.occurrences, dims(grouped)["G"], grouped.directions[1]) == (2, 4, "bwd_data")
    # The partner of the transposed convolution reads its output.
    assert dims(up) == {"N": 8, "C": 8, "K": 16, "Hi": 64, "Wi": 64, "Y": 2, "X": 2, "stride_h": 2, "stride_w": 2}


def test_a_model_of_torchvision_becomes_a_table_of_layers(folder):
    pytest.importorskip("torch")
    # The wheel of another build of torch has no operators: it can be imported all the same, after a first attempt.
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    assert main.main(words("tileseer crawl --torch")) == 0
    assert sum(layer.occurrences for layer in layers.read_layers(folder / "my_model.csv")) == 53


def test_inference_of_a_transposed_convolution_is_backward_data(folder):
    pytest.importorskip("torch")
    assert crawl("--torch", "my_net_of_the_test:net", "--input", "8x3x64x64") == 0
    assert [layer.directions for layer in layers.read_layers(folder / "found.csv")] == [
        ("forward",), ("forward",), ("bwd_data",),
    ]  # fmt: skip


def test_a_crawl_replaces_the_table_of_a_crawl_alone(folder, capsys):
    (folder / "list.txt").write_text("conv -n 8 -c 16 -H 9 -W 9 -k 32 -y 3 -x 3 -F 1")
    (folder / "found.csv").touch()
    assert crawl("--problems", "list.txt") == crawl("--problems", "list.txt", "--network", "other") == 0
    one = (folder / "found.csv").read_text()
    for content in ("a,b\n1,2\n", one + one.splitlines()[1].replace("other", "another") + "\n"):
        (folder / "found.csv").write_text(content)
        assert crawl("--problems", "list.txt") == 2 and (folder / "found.csv").read_text() == content
        assert "found.csv is there, and is not the table of one network; name another" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "shape", "told"),
    [
        ("my_net_of_the_test:nothing", "8x3x64x64", "has no nothing"),
        ("no_such_module_here:net", "8x3x64x64", "No module named"),
        ("my_net_of_the_test", "8x3x64x64", "must be MODULE:CALLABLE"),
        ("my_broken_net_of_the_test:net", "8x3x64x64", "importing my_broken_net_of_the_test: ZeroDivisionError"),
        ("my_script_of_the_test:net", "8x3x64x64", "SystemExit: 2; what ends the program belongs below if"),
        ("./my_net_of_the_test.py:net", "8x3x64x64", "a module is no path: write my_net_of_the_test:net"),
        ("a b/net.py:net", "8x3x64x64", "a module is no path: go to the folder a b, and write net:net"),
        ("my_net_of_the_test:Need(8)", "8x3x64x64", "name a function without arguments that returns Need(8)"),
        ("m.onnx", "8x3x64x64", "is a file of ONNX; write --onnx m.onnx"),
        (
            "my_net_of_the_test:net",
            "8x4x64x64",
            "--input: the layer 0 gets an image of 4 channels, 8 x 4 x 64 x 64, and has wei",
        ),
        ("my_net_of_the_test:net", "3x64x64", "the layer 0 gets 3x64x64, without a batch; give 8x3x64x64 for one of 8"),
        (
            "my_net_of_the_test:net",
            "8x3x64",
            "gets an image of 8 channels, 8 x 3 x 64, and has weights for 3; give N x C",
        ),
        ("my_net_of_the_test:reads_values", "8x4", "(N x C x H x W), floating point without values"),
        ("my_net_of_the_test:Two", "8x3x64x64", "forward(x, ids): missing a required argument: 'ids'; give an --input"),
        ("my_net_of_the_test:net", "8x3xa", "is no shape such as"),
    ],
)
def test_a_model_that_does_not_run_is_one_message(folder, capsys, target, shape, told):
    pytest.importorskip("torch")
    assert crawl("--torch", target, "--input", shape) == 2
    said = capsys.readouterr().err
    # What a program of the user's says of its own arguments is not said in our name.
    assert told in said and "usage: tileseer" not in said and "usage: pytest" not in said
    assert not (folder / "found.csv").exists()


def onnx_model(path, size=64, **attributes):
    onnx = pytest.importorskip("onnx")
    h, floats = onnx.helper, onnx.TensorProto.FLOAT
    weight = h.make_tensor("w", floats, [16, 3, 3, 3], [0.0] * 432)
    graph = h.make_graph(
        [h.make_node("Conv", ["x", "w"], ["y"], name="conv", **attributes)],
        "graph",
        [h.make_tensor_value_info("x", floats, ["N", 3, size, size])],
        [h.make_tensor_value_info("y", floats, None)],
        [weight],
    )
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)]), path)


@pytest.mark.parametrize(
    ("attributes", "image", "pad"),
    [
        ({"pads": [1, 1, 1, 1]}, 64, 1),
        # One more row at the end only: the image is padded first, as frameworks do.
        ({"pads": [0, 0, 1, 1], "strides": [2, 2]}, 65, 0),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, 65, 0),
        ({"auto_pad": "SAME_LOWER"}, 64, 1),
        ({"auto_pad": "VALID"}, 64, 0),
    ],
)
def test_an_onnx_model_becomes_a_table_of_layers(folder, attributes, image, pad):
    onnx_model(folder / "m.onnx", **attributes)
    assert crawl("--onnx", "m.onnx", "--input", "4x3x64x64") == 0
    (layer,) = layers.read_layers(folder / "found.csv")
    found = dict(zip(DIMS, layer.dims, strict=True))
    assert (found["N"], found["Hi"], found["Wi"], found["pad_h"]) == (4, image, image, pad)


def test_the_directions_of_training_are_asked_for(folder):
    onnx_model(folder / "my_model.onnx", size=224, pads=[1, 1, 1, 1])
    assert main.main(words("tileseer crawl --onnx")) == 0
    (layer,) = layers.read_layers(folder / "my_model.csv")
    assert "bwd_weight" in layer.directions


def test_a_dynamic_shape_is_left_out_with_the_reason(folder, capsys):
    onnx_model(folder / "m.onnx")
    assert crawl("--onnx", "m.onnx") == 1
    assert "the shape is dynamic" in capsys.readouterr().err


def test_a_file_that_is_no_onnx_model_is_one_message(folder, capsys):
    pytest.importorskip("onnx")
    (folder / "m.onnx").write_text("junk")
    assert crawl("--onnx", "m.onnx") == 2
    assert "m.onnx: is no ONNX model" in capsys.readouterr().err
    onnx_model(folder / "m.onnx")
    for shapes, told in (
        (["2x3x32x32"], "m.onnx: input x is Nx3x64x64, but --input gives 2x3x32x32; give Nx3x64x64"),
        (["2x3x64x64", "2x3"], "m.onnx: the model has fewer than 2 inputs; its inputs are: x"),
    ):
        assert crawl("--onnx", "m.onnx", *(word for shape in shapes for word in ("--input", shape))) == 2
        assert told in capsys.readouterr().err


NUMBERS = st.lists(st.sampled_from((-1, 0, 1, 2, 3, 2**31, 2**63 - 1)), min_size=1, max_size=5)
ATTRIBUTES = {
    **dict.fromkeys(("strides", "dilations", "pads", "output_padding", "kernel_shape"), NUMBERS),
    "group": st.sampled_from((-1, 0, 1, 2, 3, 2**40)) | st.just("x"),
    "auto_pad": st.sampled_from(("", "VALID", "SAME_UPPER", "SAME_LOWER", "NOTSET", "junk")) | st.just(1),
}


@given(data=st.data())
def test_odd_attributes_of_a_convolution_are_left_out_or_told(data, tmp_path_factory):
    names = data.draw(st.sets(st.sampled_from([*ATTRIBUTES]), min_size=1, max_size=2))
    path = tmp_path_factory.mktemp("onnx") / "m.onnx"
    onnx_model(path, **{name: data.draw(ATTRIBUTES[name]) for name in sorted(names)})
    try:
        found, left_out = user_model.onnx_layers(path, ["4x3x64x64"], False, None)
    except UserError as error:
        assert str(error).startswith(str(path))
    else:
        assert len(found) + sum(left_out.values()) == 1


EXTENTS = st.lists(st.sampled_from((-1, 0, 1, 3, 16, 2**40)), max_size=6)


@given(
    names=st.lists(st.sampled_from(("x", "w", "", "f")), max_size=4),
    outputs=st.lists(st.sampled_from(("y", "")), max_size=2),
    operator=st.sampled_from(("Conv", "ConvTranspose", "f")),
    image=EXTENTS,
    weight=EXTENTS,
    strides=NUMBERS,
)
def test_an_odd_graph_is_read_or_told_with_its_name(names, outputs, operator, image, weight, strides, tmp_path_factory):
    onnx = pytest.importorskip("onnx")
    h, floats = onnx.helper, onnx.TensorProto.FLOAT
    path = tmp_path_factory.mktemp("onnx") / "m.onnx"
    domain = "own" if operator == "f" else ""
    node = h.make_node(operator, names, outputs, strides=strides, auto_pad="SAME_UPPER", domain=domain)
    graph = h.make_graph(
        [node],
        "graph",
        [h.make_tensor_value_info("x", floats, image), h.make_tensor_value_info("w", floats, weight)],
        [h.make_tensor_value_info("y", floats, None)],
    )
    own = h.make_opsetid("own", 1)
    calls_itself = h.make_function("own", "f", ["a"], ["b"], [h.make_node("f", ["a"], ["b"], domain="own")], [own])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17), own], functions=[calls_itself]), path)
    try:
        user_model.onnx_layers(path, [], False, None)
    except UserError as error:
        assert str(error).startswith(str(path)) and str(error).count("\n") == 0


@given(data=st.data())
def test_a_damaged_onnx_file_is_read_or_told_with_its_name(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "m.onnx"
    onnx_model(path, pads=[1, 1, 1, 1])
    content = bytearray(path.read_bytes())
    # Between the beginning and the end are the weights, which are not looked at.
    start = data.draw(st.integers(0, 99) | st.integers(len(content) - 150, len(content) - 1))
    content[start : start + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    path.write_bytes(content)
    try:
        user_model.onnx_layers(path, ["4x3x64x64"], False, None)
    except UserError as error:
        assert str(error).startswith((str(path), "--onnx"))
