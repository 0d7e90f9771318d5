"""Files of problems: tables, lines of other programs, and logs that have such lines."""

import pytest

from tileseer.core.errors import UserError
from tileseer.libraries.problem_lists import read_problems
from tileseer.problems.problem import Problem

OPERATIONS = ("forward_bf16", "bwd_data_bf16", "forward_fp16")
SIZES = {"N": 8, "C": 64, "K": 32, "Hi": 28, "Wi": 14, "Y": 3, "X": 3}
HEADER = ",".join(SIZES)
ROW = ",".join(map(str, SIZES.values()))
LINE = "MIOpenDriver convbfp16 -n 8 -c 64 -H 28 -W 14 -k 32 -y 3 -x 3 -F {}"


def problem(variant, dtype, **changed):
    return Problem.from_dims(variant, dtype, **(SIZES | changed))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{HEADER}\n{ROW}\n{ROW}\n", OPERATIONS),
        ('"' + HEADER.replace(",", '","') + f'"\n{ROW}\n', OPERATIONS),
        (f"{HEADER},direction\n{ROW},forward\n", ("forward_bf16", "forward_fp16")),
        (f"{HEADER},variant,dtype\n{ROW},bwd_data,bf16\n{ROW},bwd_weight,bf16\n", ("bwd_data_bf16",)),
        (LINE.format(1), ("forward_bf16",)),
        (f"INFO run: 'C:\\bin\\MIOpenDriver.exe {LINE.format(3).partition(' ')[2]}'\n", OPERATIONS[:2]),
        (LINE.format(3).partition(" ")[2], OPERATIONS[:2]),
        (f"{LINE.format(1).split()!r},\n", ("forward_bf16",)),
        (LINE.format(1).replace(" -y", " \\\n   -y"), ("forward_bf16",)),
        ("64-28-14-3x3-32-26-12-8-0x0-1x1-1x1-0-NHWC-NHWC-NHWC-FP16-F=fft:0.5,0,x\nother=1\n", ("forward_fp16",)),
        (f"MIOpen(HIP): Command [LogCmdConvolution] ./bin/{LINE.format(0)}\nothers\n", OPERATIONS[:2]),
    ],
)
def test_the_operations_of_a_row_are_those_it_names_or_all(tmp_path, text, expected):
    path = tmp_path / "problems"
    path.write_text(text)
    assert read_problems(path, OPERATIONS) == {
        name: [problem(*name.rsplit("_", 1)).with_layout("NHWC" if "NHWC" in text else "")]
        for name in OPERATIONS
        if name in expected
    }


def test_lines_that_are_left_out_are_told(tmp_path, capsys):
    path = tmp_path / "problems"
    path.write_text(f"{LINE.format(1)}\nMIOpenDriver convbfp16 --bogus 3\n")
    assert list(read_problems(path, OPERATIONS)) == ["forward_bf16"]
    assert "left out 1 lines: MIOpenDriver has no flag '--bogus'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEADER},dtype\n{ROW},fp32\n", "so it has no problem of forward_bf16"),
        (f"{HEADER}\n8,64,0,28,14,3,3\n", "line 2"),
        ("N,C\n8,64\n", "column K, Hi, Wi, Y, X is missing"),
        ("n,c,k,h,w,R,s\n8,64,64,8,8,1,1\n", "n is written N; .*h is written Hi; .*R is written Y; s is written X$"),
        (f"{HEADER},direction\n{ROW},fwd\n", "line 2: direction is 'fwd'; use one of forward, bwd_data"),
        (f"{HEADER}\n{ROW.replace('64', '0')}\n", "line 2: C is '0'; it must be a whole number from 1"),
        (f"{HEADER}\n{ROW}\n".replace(",", ";"), "separated by ';'; write commas"),
        (f"{HEADER}\n{ROW}\n".lower(), "n is written N; c is written C"),
        ('{"N": 8}', "is JSON; write a CSV"),
        (LINE.format(8), "MIOpenDriver -F '8'"),
        ("Epoch 1, loss 0.5\nEpoch 2, loss 0.4\n", "has no line of MIOpenDriver or ckProfiler"),
        ("// saves w, h, c, n, k\nmake_tuple(7, 7, 512, 8, 512),\n", "has no line of MIOpenDriver or ckProfiler"),
        (f"{HEADER},layout\n{ROW},NCDHW\n", "line 2: layout NCDHW: a 3D problem without depth"),
    ],
)
def test_mistakes_name_the_file(tmp_path, text, message):
    path = tmp_path / "problems"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        read_problems(path, OPERATIONS)
    assert str(path) in str(error.value)
