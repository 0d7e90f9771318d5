"""Lines of other programs say the same problem, there and back."""

import json
import random

import pytest

from tileseer.cli import main
from tileseer.core.errors import UserError
from tileseer.problems import driver_lines
from tileseer.problems.problem import DIMS, Problem

RANDOM = random.Random(1)


def drawn(ndim, variant, dtype):
    groups = RANDOM.choice([1, 2, 4])
    dims = {"N": RANDOM.randint(1, 9), "G": groups, "C": 8 * groups, "K": 16 * groups}
    for axis in "dhw"[3 - ndim :]:
        dims |= {f"{axis.upper()}i": RANDOM.randint(20, 90), {"d": "Z", "h": "Y", "w": "X"}[axis]: RANDOM.randint(2, 5)}
        dims |= {f"{name}_{axis}": RANDOM.randint(1, 3) for name in ("stride", "pad", "dilation")}
    return Problem.from_dims(variant, dtype, **dims)


PROBLEMS = [
    drawn(ndim, variant, dtype)
    for ndim in (2, 3) for variant in ("forward", "bwd_data", "bwd_weight") for dtype in ("fp16", "bf16", "fp32")
]  # fmt: skip


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_line_of_miopen_driver_names_the_layout(problem):
    line = driver_lines.lines_of(problem.with_layout("NHWC"))["MIOpenDriver"]
    assert driver_lines.layout_of(line) == {2: "NHWC", 3: "NDHWC"}[problem.ndim]
    assert driver_lines.layout_of(driver_lines._driver_line(problem)) == ""


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_line_gives_the_problem_back(problem):
    for line in driver_lines.lines_of(problem).values():
        variant, dtype, dims = driver_lines.parse_line(line)
        assert Problem.from_dims(variant, dtype, **dims) == problem, line


RESNET = dict(zip(DIMS, (128, 192, 256, 1, 1, 71, 71, 1, 3, 3, 1, 2, 2, 0, 1, 1, 1, 1, 1), strict=True))


@pytest.mark.parametrize(
    ("line", "operation"),
    [
        # A line of a public list of layers, with layouts that mean nothing here.
        ("MIOpenDriver convfp16 -F 1 -f GNC01 -I NGC01 -O NGC01 -n 128 -c 192 -H 71 -W 71 -k 256 -y 3 -x 3 -p 1 -q 1 "
         "-u 2 -v 2 -l 1 -j 1 -g 1", ("forward", "fp16")),
        ("./bin/MIOpenDriver conv --forw 4 --batchsize 128 --in_channels 192 --in_h 71 --in_w 71 --out_channels 256 "
         "--fil_h 3 --fil_w 3 --pad_h 1 --pad_w 1 --conv_stride_h 2 --conv_stride_w 2", ("bwd_weight", "fp32")),
        # The figures of ckProfiler's own example.
        ("ckProfiler grouped_conv_fwd 1 1 0 1 1 0 1 2 1 128 256 192 3 3 71 71 2 2 1 1 1 1 1 1", ("forward", "fp16")),
        ("ckProfiler grouped_conv_fwd 2 1 1 1 0 1 2 1 128 256 192 3 3 71 71 2 2 1 1 1 1 1 1", ("forward", "bf16")),
        ("ckProfiler grouped_conv_bwd_weight 5 2 1 1 0 1 2 1 128 256 192 3 3 71 71 2 2 1 1 1 1 1 1 4",
         ("bwd_weight", "bf16")),
    ],
)  # fmt: skip
def test_lines_that_others_write_are_read(line, operation):
    variant, dtype, dims = driver_lines.parse_line(line)
    assert (variant, dtype) == operation
    assert Problem.from_dims(variant, dtype, **dims) == Problem.from_dims(variant, dtype, **RESNET)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("conv2d -n 8", "a line of 'conv2d': use one of miopendriver, ckprofiler"),
        ("MIOpenDriver convint8 -n 8", "MIOpenDriver 'convint8': use one of conv, convfp16, convbfp16"),
        ("MIOpenDriver conv -n eight", "-n 'eight': this is no whole number"),
        ("MIOpenDriver conv -n 8 -c", "-c has no value"),
        ("ckProfiler grouped_conv_fwd 1 1 0 1 1 0 1 2 1 128", "10 numbers fit no 2D or 3D convolution"),
        ("ckProfiler grouped_conv_fwd 1 1 0 1 1 0 1 2 1 8 8 8 3 3 9 9 2 2 1 1 1 1 1 2", "pad_w is 1 on the left and 2"),
        ("MIOpenDriver conv -n 8 -c 8 -k 8 -H 9 -W 9 --in_d 1 --fil_d 1 --spatial_dim 3", "a 3D problem without depth"),
        ("MIOpenDriver conv -n 8 -c 8 -k 8 -H 9 -W 9 -_ 3", "a 3D problem without depth"),
        (
            "ckProfiler grouped_conv_fwd 1 1 0 1 1 0 1 3 1 8 8 8 1 3 3 1 9 9 1 1 1 1 1 1 0 1 1 0 1 1",
            "a 3D problem without depth",
        ),
    ],
)
def test_what_is_wrong_with_a_line_is_told(line, told):
    with pytest.raises(UserError, match=told.replace("(", "\\(")):
        driver_lines.parse_line(line)


def test_a_command_takes_a_line_and_prints_the_lines_of_the_others(capsys):
    line = driver_lines.lines_of(Problem.from_dims("bwd_data", "bf16", N=8, C=64, K=64, Hi=14, Wi=14))["ckProfiler"]
    assert main.main(["bench", "--problem", line, "--kernels", "1", "--json", "--replay"]) == 0
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert (told["variant"], told["dtype"], told["problem"]["Hi"]) == ("bwd_data", "bf16", 14)
    replay = printed.err[printed.err.index("replay:") :].splitlines()
    assert replay[2] == line and replay[1].startswith("MIOpenDriver convbfp16 ") and replay[1].endswith(" -F 2")
    assert main.main(["bench", "--problem", line, "--variant", "forward", "--kernels", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["variant"] == "forward"
