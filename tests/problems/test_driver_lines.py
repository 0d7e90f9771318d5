"""Lines of other programs say the same problem, there and back."""

import argparse
import json
import random
import re

import pytest

from tileseer.cli import options
from tileseer.core.errors import UserError
from tileseer.facts.operations import VARIANTS
from tileseer.libraries import program_lines
from tileseer.libraries.miopen.driver_lines import driver_line
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
def test_a_line_gives_the_problem_and_its_layout_back(problem):
    for own, layout in (("", ""), ("NHWC", {2: "NHWC", 3: "NDHWC"}[problem.ndim])):
        read = program_lines.parse_line(driver_line(problem.with_layout(own)))
        assert (problem_of(read), read.layout, read.assumed) == (problem, layout, "")


def test_the_profiler_counts_by_group_and_has_pads_of_both_sides():
    # Of 3D with two groups: filter, image, strides, dilations, pads on the left and on the right.
    line = "ckProfiler grouped_conv_bwd_data 2 1 1 1 0 1 3 2 4 16 8 3 4 5 20 30 40 1 2 3 3 2 1 1 2 3 1 2 3"
    extents = {"Di": 20, "Hi": 30, "Wi": 40, "Z": 3, "Y": 4, "X": 5}
    steps = {"stride_h": 2, "stride_w": 3, "pad_d": 1, "pad_h": 2, "pad_w": 3, "dilation_d": 3, "dilation_h": 2}
    expected = Problem.from_dims("bwd_data", "bf16", N=4, G=2, C=16, K=32, **extents, **steps)
    assert problem_of(program_lines.parse_line(line)) == expected


def problem_of(line):
    return Problem.from_dims(line.directions[0], line.dtype, **line.dims)


FLAGS = "-n 128 -c 192 -H 71 -W 71 -k 256 -y 3 -x 3 -p 1 -q 1 -u 2 -v 2"
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
        ("ckProfiler grouped_conv_bwd_weight 5 2 1 1 0 1 2 1 128 256 192 3 3 71 71 2 2 1 1 1 1 1 1 -1",
         ("bwd_weight", "bf16")),
        # As people paste them.
        (f"C:\\rocm\\bin\\MIOpenDriver.exe convbfp16 {FLAGS} -F 1", ("forward", "bf16")),
        (f"'./bin/MIOpenDriver conv {FLAGS} --conv_stride_d 0 --dilation_d 0 -F 2'", ("bwd_data", "fp32")),
        (f"$ MIOPEN_FIND_ENFORCE=4 MIOPEN_LOG='a b' ./MIOpenDriver conv {FLAGS} -F 4 2>&1 | tee log",
         ("bwd_weight", "fp32")),
        (f"MIOpenDriver conv {FLAGS} -F 1 -V 0 -t 1 -i 100 -w 1 --gpualloc 1 -m conv -z default;", ("forward", "fp32")),
        (f"`MIOpenDriver conv {FLAGS} -F 1`", ("forward", "fp32")),
        (f"(MIOpenDriver conv {FLAGS} -F 1)", ("forward", "fp32")),
        (f'"cmd": "./bin/MIOpenDriver conv {FLAGS} -F 1",', ("forward", "fp32")),
        (f'./bin/MIOpenDriver conv {FLAGS} -F 1",', ("forward", "fp32")),
        (f"it's ./MIOpenDriver conv {FLAGS} -F 1", ("forward", "fp32")),
        (f"MIOpenDriver conv {FLAGS} -F 1 \\\n -t 1", ("forward", "fp32")),
        (f"MIOpenDriver: conv {FLAGS} -F 1 -w 2", ("forward", "fp32")),
        (f"MIOpenDriver convbfp16 {FLAGS} -F 4 -in_layout=NHWC  # model:x.8", ("bwd_weight", "bf16")),
        (f'run `generate.py -c "convbfp16 {FLAGS} -F 1"` for the IR', ("forward", "bf16")),
        ("ckProfiler grouped_conv_fwd 1 1 0 1 1 0 1 2 1 128 256 192 3 3 71 71 2 2 1 1 1 1 1 1 --instance 4",
         ("forward", "fp16")),
        # Without the program's name, as lists of layers have them; as a list of words of Python or JSON.
        (f"convbfp16 {FLAGS} -F 2", ("bwd_data", "bf16")),
        (f"conv -F 1 -f GNC01 -I NGC01 -O NGC01 {FLAGS} -l 1 -m conv -g 1 -perf_priority 2", ("forward", "fp32")),
        (f"12:00 tune: convfp16 {FLAGS} -F 4 2>&1 | tee log", ("bwd_weight", "fp16")),
        (str(["./bin/MIOpenDriver", "convfp16", *FLAGS.split(), "-F", 1]), ("forward", "fp16")),
        (json.dumps({"cmd": ["convfp16", *FLAGS.split(), "-F", "1"]}), ("forward", "fp16")),
        (f"subprocess.run({['MIOpenDriver', 'conv', *FLAGS.split(), '-F', '2']}, check=True)", ("bwd_data", "fp32")),
        # Keys of a find-db, of which a gradient begins with the output.
        ("192-71-71-3x3-256-36-36-128-1x1-2x2-1x1-0-NCHW-FP16-F", ("forward", "fp16")),
        ("256-36-36-3x3-192-71-71-128-1x1-2x2-1x1-0-NHWC-NHWC-NHWC-BF16-B=GemmBwdRest:0.25,4096,x;fft:1,2,x",
         ("bwd_data", "bf16")),
        ('Find-db: "256-36-36-3x3-192-71-71-128-1x1-2x2-1x1-0-NCHW-FP32-W", loaded', ("bwd_weight", "fp32")),
    ],
)  # fmt: skip
def test_lines_that_others_write_are_read(line, operation):
    read = program_lines.parse_line(line)
    assert (read.directions, read.dtype) == ((operation[0],), operation[1])
    assert problem_of(read) == Problem.from_dims(*operation, **RESNET)


@pytest.mark.parametrize(
    ("flags", "dims", "assumed"),
    [
        ("-n 8 -c 64 -k 64 -H 28 -W 28", {"N": 8, "C": 64, "K": 64, "Hi": 28, "Wi": 28, "Y": 3, "X": 3}, "-y 3 -x 3"),
        (
            "-y 1 -x 1 -g 0",
            {"N": 100, "C": 3, "K": 32, "Hi": 32, "Wi": 32, "Y": 1, "X": 1, "G": 1},
            "-n 100 -c 3 -k 32 -H 32 -W 32",
        ),
        (
            "--spatial_dim 3 -n 1 -c 8 -k 8 -H 16 -W 16 -y 3 -x 3 --fil_d 1",
            {"N": 1, "C": 8, "K": 8, "Di": 32, "Hi": 16, "Wi": 16, "Y": 3, "X": 3},
            "-! 32",
        ),
    ],
)
def test_what_a_line_leaves_out_is_what_the_driver_takes(flags, dims, assumed):
    read = program_lines.parse_line(f"MIOpenDriver conv {flags} -F 1")
    assert problem_of(read) == Problem.from_dims("forward", "fp32", **dims) and read.assumed == assumed


@pytest.mark.parametrize(
    ("flags", "pads"),
    [
        ("-z same -y 3 -x 5", (1, 2)),
        ("-z same -y 3 -x 5 -H 32 -u 2", (0, 2)),
        ("-z same -y 3 -x 5 -H 31 -u 2", (1, 2)),
        ("-z valid -p 2 -q 2", (0, 0)),
        ("-z default -p 2 -q 1", (2, 1)),
        ("-z same -p 2 -q 2 -l 2", (2, 2)),  # with a dilation the driver keeps the pads
    ],
)
def test_a_padding_mode_gives_the_pads_of_the_driver(flags, pads):
    dims = program_lines.parse_line(f"MIOpenDriver conv {flags}").dims
    assert (dims["pad_h"], dims["pad_w"]) == pads


@pytest.mark.parametrize(("sum_of_bits", "names"), [(0, "FBW"), (1, "F"), (3, "FB"), (5, "FW"), (6, "BW"), (7, "FBW")])
def test_a_line_may_be_of_several_directions(sum_of_bits, names):
    letters = dict(zip("FBW", VARIANTS, strict=True))
    assert program_lines.parse_line(f"MIOpenDriver conv -F {sum_of_bits}").directions == tuple(map(letters.get, names))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("conv2d -n 8", "a line of 'conv2d': use one of miopendriver, ckprofiler"),
        ("MIOpenDriver convint8 -n 8", "MIOpenDriver 'convint8': use one of conv, convfp16, convbfp16"),
        ("MIOpenDriver conv -n eight", "--batchsize 'eight': this is no whole number"),
        ("MIOpenDriver conv -n 8 --fast 1", "MIOpenDriver has no flag '--fast'"),
        ("MIOpenDriver conv -F 8", "MIOpenDriver -F '8'"),
        (
            "MIOpenDriver conv -n 8 -z 3",
            "-z 3: -z is the padding mode .default, same, valid.; a filter's depth is --fil_d",
        ),
        ("MIOpenDriver conv --filter_d 3", "has no flag '--filter_d'; is it --fil_d"),
        ("./op_driver ${CONV} -n 8 -c 8 -m conv -g 1", "'${CONV}' is a variable of a shell; write its value"),
        ("MIOpenDriver conv -n 8 -I NHWC -O NCHW", "layouts NHWC, NCHW: give all tensors one of NCHW and NHWC"),
        ("convint8 -n 8 -c 8", "MIOpenDriver 'convint8': use one of conv, convfp16, convbfp16"),
        ("hello", "lines are such as MIOpenDriver convbfp16 -n 8 -c 64 ... -F 1, ckProfiler"),
        (
            "8-9-9-3x3-8-9-9-2-1x1-1x1-1x1-0-NCHW-INT8-F",
            "key of a find-db: data type INT8: problems here are FP32",
        ),
        ("8-9-9-3x3-8-5-9-2-1x1-1x1-1x1-0-NCHW-FP32-F", "the output's size does not follow from the input's"),
        ("MIOpenDriver conv -m trans", "--mode 'trans': use one of conv"),
        ("MIOpenDriver conv -z circular", "--pad_mode 'circular': use one of default, same, valid"),
        ("MIOpenDriver conv -r 1", "--pad_val '1': only 0 is a problem here"),
        ("MIOpenDriver conv -n 8 -c", "-c has no value"),
        ("ckProfiler grouped_conv_fwd 1 1 0 1 1 0 1 2 1 128", "10 numbers fit no 2D or 3D convolution"),
        ("ckProfiler grouped_conv_fwd 1 1 0 1 1 0 1 2 1 8 8 8 3 3 9 9 2 2 1 1 1 1 1 2", "pad_w is 1 on the left and 2"),
        ("MIOpenDriver conv -n 8 -c 8 -k 8 -H 9 -W 9 --in_d 1 --fil_d 1 --spatial_dim 3", "a 3D problem without depth"),
        ("MIOpenDriver conv -n 8 -c 8 -k 8 -H 9 -W 9 -_ 3 -! 1 -@ 1", "a 3D problem without depth"),
        (
            "ckProfiler grouped_conv_fwd 1 1 0 1 1 0 1 3 1 8 8 8 1 3 3 1 9 9 1 1 1 1 1 1 0 1 1 0 1 1",
            "a 3D problem without depth",
        ),
    ],
)
def test_what_is_wrong_with_a_line_is_told(line, told):
    with pytest.raises(UserError, match=re.sub(r"[($]", r"\\\g<0>", told)):
        program_lines.parse_line(line)


def test_the_words_of_another_program_for_layouts_say_the_order():
    last, first = ("conv -f GN01C -I N01GC -O N01GC -n 8", "conv -f GNC01 -I NGC01 -O NGC01 -n 8")
    assert [program_lines.parse_line(line).layout for line in (last, first)] == ["NHWC", ""]
    read = program_lines.parse_line(f"conv -F 1 -f N01GC -I 01NGC -O NGC01 {FLAGS}")
    assert (read.layout, read.assumed) == ("", "no layout, as 01NGC, N01GC, NGC01 are none of MIOpen's")
    read = program_lines.parse_line(f"MIOpenDriver conv {FLAGS} --out_layout NHWC")
    assert (read.layout, read.assumed) == ("NHWC", "NHWC of all tensors")
    key = "8-9-9-3x3-8-9-9-2-1x1-1x1-1x1-0-{}-FP32-F"
    assert program_lines.parse_line(key.format("NHWC-NHWC-NHWC")).layout == "NHWC"
    assert program_lines.parse_line(key.format("NCHW")).layout == "NCHW"


@pytest.mark.parametrize(
    "text",
    ["N=8,C=64,Hi=56", "hello", "conv -> relu", "conv1 - 8", "find-db regenerating", "3-4-5", "x -m conv -g 1"],
)
def test_what_is_no_line_is_none(text):
    assert program_lines.line_in(text) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("4GiB", 4 << 30), ("512MiB", 512 << 20), ("1.5 KiB", 1536), ("1048576", 1 << 20), ("0B", 0)],
)
def test_sizes_have_units(text, size):
    assert options.size(text) == size


@pytest.mark.parametrize(("text", "told"), [("4", "write 4GiB or 4MiB"), ("4GB", "KiB, MiB or GiB"), ("-1", "no size")])
def test_what_is_no_size_is_told(text, told):
    with pytest.raises(argparse.ArgumentTypeError, match=told):
        options.size(text)


def test_an_option_takes_a_line():
    line = driver_line(Problem.from_dims("bwd_data", "bf16", N=8, C=64, K=64, Hi=14, Wi=14))
    parser = argparse.ArgumentParser()
    options.add_problem(parser)
    told = options.problem(parser.parse_args(["--problem", line]))
    assert (told.variant, told.dtype, told.Hi) == ("bwd_data", "bf16", 14)
    assert options.problem(parser.parse_args(["--problem", line, "--variant", "forward"])).variant == "forward"
