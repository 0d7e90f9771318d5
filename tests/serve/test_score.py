"""``tileseer score``: any kernels on any problems, or an error that names file and line."""

import numpy as np
import pytest

from tileseer.cli import main
from tileseer.core import parquet
from tileseer.libraries.ck_tile import kernel
from tileseer.problems.problem import DIMS, Problem
from tileseer.serve import scoring

HEADER = (
    "problem_idx,N,C,K,G,Di,Hi,Wi,Z,Y,X,stride_d,stride_h,stride_w,pad_d,pad_h,pad_w,dilation_d,dilation_h,dilation_w"
)
PLAIN = "7,8,64,128,1,1,28,28,1,3,3,1,1,1,0,1,1,1,1,1"
VOLUME = "9,2,64,64,1,8,28,28,3,3,3,1,1,1,1,1,1,1,1,1"
SHORT = "grouped_conv_forward_bf16_2d_64x128x64_compv3_intrawave"
DEPTHWISE = "grouped_conv_fwd_depthwise_fp16_ngchw_2d_16x16_f3_s2x2_p1x1_nb1_sub2x2_vec8_8"


@pytest.fixture
def score(models, tmp_path, capsys):
    """Run the command on two texts; return the status, the table and what was said."""

    def run(problems, kernels=None):
        (tmp_path / "P.csv").write_text(problems)
        arguments = ["score", "--model", str(models), "--problems", str(tmp_path / "P.csv")]
        if kernels is not None:
            (tmp_path / "K.txt").write_text(kernels)
            arguments += ["--kernels", str(tmp_path / "K.txt")]
        out = tmp_path / "S.parquet"
        status = main.main([*arguments, "--out", str(out)])
        table = parquet.read_table(out).to_pandas() if out.exists() else None
        return status, table, capsys.readouterr()

    return run


def test_pool_kernels_get_the_scores_of_a_selection(selector, score):
    status, table, said = score(f"{HEADER}\n{PLAIN}\n", "\n".join(selector.kernels))
    assert status == 0
    problem = Problem.from_dims("forward", "bf16", N=8, C=64, K=128, Hi=28, Wi=28, Y=3, X=3, pad_h=1, pad_w=1)
    ranked = selector.rank(problem)
    supported = table[table["supported"]].sort_values("rank")
    assert supported["candidate"].tolist() == [row["candidate"] for row in ranked]
    assert supported["score"].tolist() == [row["score"] for row in ranked]
    assert table["in_pool"].all() and set(table["problem_idx"]) == {7}
    assert set(table["device_kind"]) == {"simulated"} and "simulated" in said.out


def test_every_name_and_direction_gets_a_finite_score(score):
    kernels = [SHORT.replace("bf16", name) for name in ("bf16", "fp16", "fp32")]
    kernels += [SHORT.replace("compv3", name) for name in kernel.PIPELINES]
    kernels += [SHORT.replace("2d", "3d") + "_gm2_dsb_si"]
    kernels += ["libdispatcher_conv_forward_2d_bf16_64x64x64_4x1x1_16x16x16_compv4_intrawave_dsb.so"]
    status, table, said = score(f"{HEADER}\n{PLAIN}\n{VOLUME}\n", "# mine\n" + "\n".join([*kernels, "", DEPTHWISE]))
    assert status == 0
    assert set(table["kernel"]) == set(kernels)
    assert np.isfinite(table["score"]).all()
    assert (table["ndim"] == np.where(table["problem_idx"] == 9, 3, 2)).all()
    assert (table.loc[~table["supported"], "rule"] != "").all()
    assert set(table["model_operation"]) == {"forward_bf16"}
    assert "its kernels are scored by that of forward_bf16" in said.err
    assert "1 depthwise kernels are left out" in said.err
    assert "leave fields open" in said.err and "not in the model's pool" in said.err


def test_absent_columns_have_defaults_and_that_is_said(score):
    full = score(f"{HEADER}\n{PLAIN}\n", SHORT)[1]
    status, table, said = score("N,C,K,Hi,Wi,Y,X,pad_h,pad_w,note\n8,64,128,28,28,3,3,1,1,x\n", SHORT)
    assert status == 0
    assert table[[*DIMS, "score"]].equals(full[[*DIMS, "score"]])
    assert "stride_h=1" in said.err and "G=1" in said.err


def test_a_benchmark_csv_is_scored_row_by_row(score):
    other = SHORT.replace("64x128x64", "16x64x64")
    rows = [f"{SHORT},{PLAIN},0.1,33.0,5", f"{other},{PLAIN},0.2,20.0,5", f"{SHORT},{PLAIN},0.3,11.0,5"]
    status, table, _ = score("\n".join([f"kernel,{HEADER},latency_ms,tflops,non_zero", *rows]))
    assert status == 0
    assert table["kernel"].tolist() == [SHORT, other, SHORT]
    assert table["score"].iloc[0] == table["score"].iloc[2] != table["score"].iloc[1]


def test_problems_without_depth_are_2d_whatever_their_depth_columns_say(score):
    odd = PLAIN.split(",")
    odd[HEADER.split(",").index("stride_d")] = "2"
    _, table, said = score(f"{HEADER}\n{','.join(odd)}\n", SHORT)
    assert table["ndim"].tolist() == [2] and table["stride_d"].tolist() == [1]
    assert "taken as 2D" in said.err


@pytest.mark.parametrize(
    ("problems", "kernels", "message"),
    [
        (f"{HEADER}\n{PLAIN}\n", f"{SHORT}\n\nmy_kernel\n", "K.txt, line 3: kernel name 'my_kernel'"),
        (f"{HEADER}\n{PLAIN}\n", "# nothing\n", "no kernel name"),
        (f"{HEADER}\n", SHORT, "no row below the header"),
        ("N,C\n1,2\n", SHORT, "column K is missing"),
        (f"{HEADER}\n{PLAIN.replace('64', 'x', 1)}\n", SHORT, "P.csv, line 2: C is 'x'"),
        (f"{HEADER}\n{PLAIN}\n{PLAIN.replace(',1,1,28', ',3,1,28')}\n", SHORT, "P.csv, line 3: problem"),
        (f"{HEADER}\n{PLAIN}\n", SHORT.replace("forward", "bwd_data"), "there is no model of bwd_data"),
        (f"{HEADER}\n{PLAIN}\n", None, "column kernel is missing"),
        (f"kernel,{HEADER}\n{SHORT},{VOLUME}\n", None, "P.csv, line 2: kernel"),
    ],
)
def test_mistakes_name_file_and_line(score, problems, kernels, message):
    status, table, said = score(problems, kernels)
    assert status == 2 and table is None
    assert message in said.err and len(said.err.splitlines()) == 1


def test_scores_do_not_depend_on_company_or_order(models, tmp_path):
    names = [SHORT, f"{SHORT}_dsb", SHORT.replace("compv3", "mem"), SHORT.replace("64x128x64", "16x64x64")]
    (tmp_path / "P.csv").write_text(f"{HEADER}\n{PLAIN}\n{VOLUME}\n")
    found = {}
    for number, listed in enumerate((names, names[::-1], names[:1])):
        path = tmp_path / f"{number}.txt"
        path.write_text("\n".join(listed))
        table = scoring.score_pairs(models, scoring.read_pairs(tmp_path / "P.csv", path, "gfx950")[0])[0].to_pandas()
        for name, value in zip(table["kernel"], table["score"], strict=True):
            assert found.setdefault(name, value) == value


def test_channels_are_padded_for_names_whose_times_show_it_and_for_no_others(score):
    older = SHORT.removesuffix("_intrawave")
    odd, even = PLAIN.replace("64,128", "67,129"), PLAIN.replace("7,8,64,128", "8,8,80,144")
    status, table, _ = score(f"{HEADER}\n{odd}\n{even}\n", f"{older}\n{SHORT}\n")
    assert status == 0
    found = table.set_index(["kernel", "problem_idx"])
    assert found.loc[(older, 7), "score"] == found.loc[(older, 8), "score"] == found.loc[(SHORT, 8), "score"]
    assert found.loc[(older, 7), "supported"] and not found.loc[(SHORT, 7), "supported"]
    assert (found.loc[[(older, 7)], ["C", "K"]] == [67, 129]).all(axis=None)
    assert "channel_multiple=16" in found.loc[(older, 7), "assumed"]
