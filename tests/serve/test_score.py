"""``tileseer score``: any kernels on any problems, or an error that names file and line."""

import numpy as np
import pandas as pd
import pytest

from tileseer.cli import main
from tileseer.libraries.ck_tile import kernel
from tileseer.problems.problem import DIMS, Problem

HEADER = "N,C,K,G,Di,Hi,Wi,Z,Y,X,stride_d,stride_h,stride_w,pad_d,pad_h,pad_w,dilation_d,dilation_h,dilation_w"
PLAIN = "8,64,128,1,1,28,28,1,3,3,1,1,1,0,1,1,1,1,1"
VOLUME = "2,64,64,1,8,28,28,3,3,3,1,1,1,1,1,1,1,1,1"
SHORT = "grouped_conv_forward_bf16_2d_64x128x64_compv3_intrawave"
DEPTHWISE = "grouped_conv_fwd_depthwise_fp16_ngchw_2d_16x16_f3_s2x2_p1x1_nb1_sub2x2_vec8_8"


@pytest.fixture
def score(models, tmp_path, capsys):
    """Run the command on two texts; return the status, the table and what was said."""

    def run(problems, kernels):
        files = {name: tmp_path / name for name in ("P.csv", "K.txt", "S.csv")}
        files["P.csv"].write_text(problems)
        files["K.txt"].write_text(kernels)
        options = ["--problems", files["P.csv"], "--kernels", files["K.txt"], "--output", files["S.csv"]]
        status = main.main(["score", *map(str, [models, *options])])
        table = pd.read_csv(files["S.csv"], keep_default_na=False) if status == 0 else None
        return status, table, capsys.readouterr()

    return run


def test_pool_kernels_get_the_scores_of_a_selection(selector, score):
    _, table, said = score(f"{HEADER}\n{PLAIN}\n", "\n".join(selector.kernels))
    problem = Problem.from_dims("forward", "bf16", N=8, C=64, K=128, Hi=28, Wi=28, Y=3, X=3, pad_h=1, pad_w=1)
    ranked = selector.rank(problem)
    supported = table[table["supported"]].sort_values("rank")
    assert supported["candidate"].tolist() == [row["candidate"] for row in ranked]
    assert supported["score"].tolist() == [row["score"] for row in ranked]
    assert (table[list(DIMS)] == list(problem.dims)).all(axis=None)
    assert (table.loc[~table["supported"], "rank"] == 0).all()
    assert table["in_pool"].all() and set(table["device_kind"]) == {"simulated"} and "simulated" in said.out


def test_every_name_gets_a_finite_score_whatever_stands_beside_it(score):
    kernels = [SHORT.replace("compv3", name) for name in kernel.PIPELINES]
    kernels += [SHORT.removesuffix("_intrawave"), SHORT.replace("2d", "3d") + "_gm2_dsb_si"]
    kernels += ["libdispatcher_conv_forward_2d_bf16_64x64x64_4x1x1_16x16x16_compv4_intrawave_dsb.so"]
    others = [DEPTHWISE, SHORT.replace("bf16", "fp32")]
    _, table, said = score(f"{HEADER}\n{PLAIN}\n{VOLUME}\n", "# mine\n" + "\n".join([*kernels, "", *others]))
    assert set(table["kernel"]) == set(kernels) and np.isfinite(table["score"]).all()
    assert (table["ndim"] == np.where(table["Di"] == 8, 3, 2)).all()
    assert (table.loc[~table["supported"], "rule"] != "").all()
    for part in ("2 of 17 kernels are left out", "names leave fields open", "kernels are not in the model's pool"):
        assert part in said.err
    # A benchmark CSV is both files, and its order does not matter.
    rows = [f"{name},{row},0.1" for row in (VOLUME, PLAIN) for name in kernels[::-1]]
    benchmark = "\n".join([f"kernel,{HEADER},latency_ms", *rows])
    again = score(benchmark, benchmark)[1]
    key = ["kernel", *DIMS]
    both = [one.drop(columns="rank").sort_values(key, ignore_index=True) for one in (again, table)]
    assert both[0].equals(both[1])


def test_what_a_table_leaves_open_is_said(score):
    full = score(f"{HEADER}\n{PLAIN}\n", SHORT)[1]
    _, table, said = score("N,C,K,Hi,Wi,Y,X,pad_h,pad_w,note\n8,64,128,28,28,3,3,1,1,x\n", SHORT)
    assert table.equals(full) and "stride_h=1" in said.err and "G=1" in said.err
    _, table, said = score(f"{HEADER}\n{PLAIN.replace('3,3,1,', '3,3,2,')}\n", SHORT)
    assert table.equals(full) and "taken as 2D" in said.err


@pytest.mark.parametrize(
    ("problems", "kernels", "message"),
    [
        (f"{HEADER}\n{PLAIN}\n", f"{SHORT}\n\nmy_kernel\n", "K.txt, line 3: kernel name 'my_kernel'"),
        (f"{HEADER}\n{PLAIN}\n", "# nothing\n", "no kernel name"),
        (f"{HEADER}\n{PLAIN}\n", "name,time\na,1\n", "column kernel is missing"),
        (f"{HEADER}\n{PLAIN}\n", f"{HEADER}\n{PLAIN}\n", "are --problems and --kernels swapped?"),
        (f"{HEADER}\n{PLAIN}\n", '["a"]', "K.txt: is JSON; write the names of kernels, one per line"),
        (f"{HEADER}\n{PLAIN}\n", "# Page\nA text of five words\n", "line 2: 'A text of five words' is no name"),
        (f"{HEADER}\n", SHORT, "no row below the header"),
        (f"{HEADER}\n{PLAIN}\n{PLAIN.replace(',1,1,28', ',3,1,28')}\n", SHORT, "P.csv, line 3: problem"),
        (f"{HEADER},layout\n{PLAIN},NCHW\n", SHORT, "layout is NCHW, but the model of forward_bf16"),
        (f"{HEADER}\n{PLAIN}\n", SHORT.replace("forward", "bwd_data"), "K.txt: no kernel is of an operation"),
    ],
)
def test_mistakes_name_what_is_wrong(score, problems, kernels, message):
    status, _, said = score(problems, kernels)
    assert status == 2 and message in said.err and len(said.err.splitlines()) == 1
