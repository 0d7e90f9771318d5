"""Tensors in NCHW and in NHWC: two problems for MIOpen's solvers, and a refusal from models that know one of them."""

import json

import numpy as np
import pandas as pd
import pytest
from cpp_selectors import assert_cpp_picks_alike, picks_of_cpp, random_shapes
from published_models import WORD, publish_recording, train_on_recording

from tileseer.cli import main
from tileseer.core.documents import read_json
from tileseer.core.errors import UserError
from tileseer.libraries.miopen.solvers import SOLVERS
from tileseer.problems.problem import DIMS, Problem, columns_of_frame, problem_frame, problems_of_frame
from tileseer.serve.selector import Selector, ndims

ARCH, OPERATION = "gfx90a_miopen", "forward_fp32"
KNOWN = ("NCHW", "NCDHW", "NHWC")
"""Layouts of the recording: none of its 3D problems is NDHWC."""
RELEASE = "2d1fd997a6fc"
LAYER = Problem.from_dims("forward", "fp32", N=8, C=64, K=64, Hi=56, Wi=56, Y=3, X=3, pad_h=1, pad_w=1)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Publish one operation, trained on a few rows of both layouts; return dataset, models and folder."""
    folder = tmp_path_factory.mktemp("layouts")
    # Few trees, of which each draws its features, may miss the layout.
    data = publish_recording(folder, "gfx90a_mi210", OPERATION, 16, ARCH, feature_fraction=1.0)
    return data, folder / "models", folder


def test_one_layer_in_two_layouts_is_two_problems():
    other = LAYER.with_layout("NHWC")
    assert LAYER.key != other.key and LAYER.layer_family == other.layer_family
    assert LAYER.with_layout("NCHW").key == LAYER.key
    table = problem_frame([LAYER, other])
    assert problems_of_frame(table) == [LAYER, other] and columns_of_frame(table)["layout"].tolist() == [0, 1]
    assert "layout" not in problem_frame([LAYER])
    deep = Problem.from_dims("forward", "fp32", **dict(zip(DIMS, LAYER.dims, strict=True)) | {"Di": 3})
    assert deep.with_layout("NDHWC").layout == "NHWC"
    for layout, told in (("CHWN", "layout is 'CHWN'"), ("NCDHW", "layout NCDHW: a 3D problem without depth")):
        with pytest.raises(UserError, match=told):
            LAYER.with_layout(layout)


def test_the_layout_is_learnt_and_no_rule_refuses_what_ran(published):
    data, models, _ = published
    selector = Selector.read(models, OPERATION)
    assert set(data.problems["layout"]) == {"", "NHWC"} and tuple(selector.model.layouts) == KNOWN
    spec = read_json(selector.folder / "feature_spec.json")
    assert spec["layouts"] == list(KNOWN) and "layout" in spec["feature_names"]
    first, last = selector.rank(LAYER), selector.rank(LAYER.with_layout("NHWC"))
    assert {row["candidate"] for row in last} < {row["candidate"] for row in first}
    assert all(SOLVERS[row["kernel"].partition("_2d_")[2]].nhwc for row in last)
    plain = [problem.with_layout("NCHW") for problem in problems_of_frame(data.problems) if problem.ndim == 2]
    runs = np.array(["_2d_" in name and SOLVERS[name.partition("_2d_")[2]].nhwc for name in selector.kernels])
    scores = [selector.scores([one.with_layout(layout) for one in plain])[:, runs] for layout in ("NCHW", "NHWC")]
    assert (scores[0] != scores[1]).any()


def test_doors_say_with_what_the_times_were_taken(published, capsys):
    _, models, _ = published
    selector = Selector.read(models, OPERATION)
    said = f"library MIOpen 3.3.0, commit {RELEASE}, date 2024-10-24 or before, driver not known"
    assert str(selector.spec.taken) == said
    assert f'times_taken = "{said}"' in (selector.folder / "selector.hpp").read_text()
    problem = ["--dtype", "fp32", "--problem", "N=8,C=64,K=64,Hi=56,Wi=56"]
    assert main.main(["select", str(models), *problem]) == 0
    assert f"times taken with: {said}" in capsys.readouterr().out


def test_the_header_picks_in_both_layouts_what_python_picks(published):
    data, models, folder = published
    selector = Selector.read(models, OPERATION)
    measured = np.column_stack([data.problems[list(DIMS)], data.problems["layout"] == "NHWC"]).astype(np.int64)
    shapes = random_shapes(200)
    codes = (np.zeros(200, np.int64), (ndims(shapes) == 2).astype(np.int64))
    both = np.concatenate([measured, *(np.column_stack([shapes, code]) for code in codes)])
    picks = assert_cpp_picks_alike(folder, selector, both, known=1)
    assert picks.known[: len(measured)].all()
    alone = selector.select(shapes).candidate
    assert (alone == picks.candidate[len(measured) :][:200]).all() and (alone != picks.candidate[-200:]).any()
    with pytest.raises(UserError, match=r"row 1: 2D of layout 2; the model knows 0 in 2D .*, 1 in 2D .*, 0 in 3D"):
        selector.select(np.column_stack([measured[:2, :19], [0, 2]]))
    deep = np.column_stack([shapes[ndims(shapes) == 3][:1], [1]])
    with pytest.raises(UserError, match="row 0: 3D of layout 1"):
        selector.select(deep)
    assert picks_of_cpp(folder, selector.spec, deep, 1, 0)[0] == [-1]
    volume = Problem.from_dims("forward", "fp32", N=2, C=16, K=16, Di=8, Hi=8, Wi=8)
    assert selector.rank(volume)
    with pytest.raises(UserError, match=r"layout is NDHWC, but .* knows NCHW in 2D, NHWC in 2D, NCDHW in 3D"):
        selector.rank(volume.with_layout("NHWC"))


def test_select_takes_a_layout_and_a_line_that_names_one(published, capsys):
    models = str(published[1])
    line = "MIOpenDriver conv -n 8 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 1"
    layouts = "--in_layout NHWC --fil_layout NHWC --out_layout NHWC"

    def select(*arguments):
        assert main.main(["select", models, "--dtype", "fp32", *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    plain, named = select("--problem", WORD), select("--problem", WORD, "--layout", "NHWC")
    assert named["problem"]["layout"] == "NHWC" and named["candidates"] != plain["candidates"]
    assert select("--problem", f"{line} {layouts}")["candidates"] == named["candidates"]
    assert select("--problem", line)["candidates"] == plain["candidates"]
    assert main.main(["explain", models, "--dtype", "fp32", "--problem", WORD, "--layout", "NHWC", "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert explained["problem"]["layout"] == "NHWC"
    assert explained["nearest_measured_problems"][0]["problem"]["layout"] == "NHWC"
    assert main.main(["verify", models]) == 0
    capsys.readouterr()
    assert main.main(["select", models, "--problem", f"{line} --in_layout NHWC --out_layout NCHW"]) == 2
    assert "give all tensors one of NCHW and NHWC" in capsys.readouterr().err


def test_models_of_one_layout_refuse_the_other_by_name(models, capsys):
    assert main.main(["select", str(models), "--problem", WORD, "--layout", "NHWC"]) == 0
    capsys.readouterr()
    assert main.main(["select", str(models), "--problem", WORD, "--layout", "NCHW"]) == 2
    error = capsys.readouterr().err
    assert "layout is NCHW" in error and "knows NHWC in 2D, NDHWC in 3D only" in error and error.count("\n") == 1


def test_scores_are_of_the_layout_and_another_is_refused(published, tmp_path, capsys):
    models = published[1]
    selector = Selector.read(models, OPERATION)
    dims = ",".join(map(str, LAYER.dims))
    rows = "".join(f"{dims},forward,fp32,{word}\n" for word in ("NCHW", "NHWC", ""))
    (tmp_path / "P.csv").write_text(f"{','.join(DIMS)},direction,dtype,layout\n{rows}")
    (tmp_path / "K.txt").write_text("\n".join(selector.kernels))
    files = f"--problems {tmp_path}/P.csv --kernels {tmp_path}/K.txt --output {tmp_path}/S.csv".split()
    assert main.main(["score", str(models), *files]) == 0
    table = pd.read_csv(tmp_path / "S.csv", keep_default_na=False)
    assert set(table["layout"]) == {"NCHW", "NHWC", ""}
    for layout, own in table.groupby("layout"):
        ranked = selector.rank(LAYER.with_layout(layout))
        supported = own[own["supported"]].sort_values("rank")
        assert supported["candidate"].tolist() == [row["candidate"] for row in ranked]
        assert supported["score"].tolist() == [row["score"] for row in ranked]
    capsys.readouterr()
    for word, message in (("CHWN", "layout is 'CHWN'"), ("NCDHW", "a 3D problem without depth")):
        (tmp_path / "P.csv").write_text(f"{','.join(DIMS)},direction,dtype,layout\n{dims},forward,fp32,{word}\n")
        assert main.main(["score", str(models), *files]) == 2
        assert "P.csv, line 2: " in (error := capsys.readouterr().err) and message in error


def test_a_model_of_one_layout_starts_from_one_of_both(published, tmp_path):
    recording = "gfx942_mi300x", OPERATION, 16, "gfx942_miopen/earlier"
    _, trained = train_on_recording(tmp_path / "d.parquet", *recording, prior=str(published[2] / "training"))
    with pytest.raises(UserError, match="knows NCHW, NCDHW only, but problems have the layout NHWC"):
        trained.model.predict(problem_frame([LAYER.with_layout("NHWC")]))
    assert trained.model.spec.feature_set == "miopen_layouts" and trained.model.layouts == ["NCHW", "NCDHW"]
