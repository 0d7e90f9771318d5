"""What a dispatcher runs of recordings: CUTLASS kernels, categorical splits, kernels of which none is said to fit."""

import dataclasses
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from cpp_selectors import SHAPES, assert_cpp_picks_alike, random_shapes
from published_models import SMALL_SERVING, publish_recording, train_on_recording

from tileseer.cli import main
from tileseer.core.documents import read_json
from tileseer.learn import model_files
from tileseer.learn.learners.trees import text as trees
from tileseer.libraries.cutlass.kernel import CutlassKernel
from tileseer.libraries.cutlass.rules import RULES as CUTLASS_RULES
from tileseer.libraries.features.table import Feature
from tileseer.libraries.registry import check_support, library_of_arch
from tileseer.problems.problem import DIMS, problems_of_frame
from tileseer.serve import serving as stage
from tileseer.serve.selector import NO_CANDIDATE, Selector

RULES = set(CUTLASS_RULES.names)
OTHERS = [("gfx942_miopen", "gfx942_mi300x", "forward_fp16"), ("gfx950_mi355x", "gfx950_mi355x", "forward_bf16")]


@pytest.fixture(scope="module", params=["forward_bf16", "bwd_data_bf16", "bwd_weight_bf16"])
def published(request, tmp_path_factory):
    """Publish one operation of the recording, trained on a few of its rows."""
    folder = tmp_path_factory.mktemp("cutlass")
    # That of bwd_data has trees alone.
    start = {"features": "cutlass", "prior": "none" if request.param == "bwd_data_bf16" else "formula"}
    return publish_recording(folder, "sm_90_h200", request.param, 16, "sm_90", **start), folder, request.param


@pytest.mark.parametrize(("known", "pruned"), [(0, 0), (1, 1)])
def test_the_header_picks_what_python_picks_to_the_last_bit(published, known, pruned):
    data, folder, operation = published
    python = Selector.read(folder / "models", operation, arch="sm_90")
    shapes = np.concatenate([random_shapes(SHAPES), data.problems[list(DIMS)].to_numpy(np.int64)])
    picks = assert_cpp_picks_alike(folder, python, shapes, known, pruned)
    assert (picks.candidate != NO_CANDIDATE).mean() > 0.15
    dims = data.problems[list(DIMS)].to_numpy(np.int64)
    model = python.model
    runs = check_support(data.problems, model.pool, model.spec.variant, model.hardware) == 0
    assert ((python.select(dims, use_known=False).candidate >= 0) == runs.any(axis=1)).all()


def test_the_kernel_list_names_the_files_of_the_kernels(published):
    _, folder, operation = published
    listed = read_json(folder / "serving" / model_files.KERNELS)
    names = [entry["kernel"] for entry in listed["kernels"]]
    assert [entry["header"] for entry in listed["kernels"]] == [f"{name}.cuh" for name in names]
    assert len({entry["registry_key"]["name"] for entry in listed["kernels"]}) == listed["pool_size"] == len(names)
    assert set(listed["pruned"]) <= set(names)
    assert listed["device_kind"] == "recorded" and operation == listed["operation"]


def test_score_gives_listed_kernels_the_scores_of_a_selection(published, tmp_path, capsys):
    data, folder, operation = published
    selector = Selector.read(folder / "models", operation)
    problem = problems_of_frame(data.problems.iloc[[0]])[0]
    pool = selector.model.pool
    of_rank = pool[pool["ndim"] == problem.ndim]
    foreign = dataclasses.replace(CutlassKernel.parse(of_rank["kernel"].iloc[0]), swizzle=1, stages=16).name
    kernels = of_rank["candidate"].tolist()
    (tmp_path / "K.txt").write_text("\n".join([*kernels, f"{foreign}.cuh"]))
    (tmp_path / "P.csv").write_text(
        f"{','.join(DIMS)},direction\n{','.join(map(str, problem.dims))},{problem.variant}\n"
    )
    arguments = ["--problems", str(tmp_path / "P.csv"), "--kernels", str(tmp_path / "K.txt")]
    arguments += ["--output", str(tmp_path / "S.csv")]
    assert main.main(["score", str(folder / "models"), *arguments]) == 0
    table = pd.read_csv(tmp_path / "S.csv", keep_default_na=False)
    ranked = selector.rank(problem)
    ours = table[table["supported"] & table["in_pool"]].sort_values("rank")
    assert ours["candidate"].tolist() == [row["candidate"] for row in ranked]
    assert ours["score"].tolist() == [row["score"] for row in ranked]
    outside = table[~table["in_pool"]]
    assert outside["candidate"].tolist() == [foreign] and np.isfinite(outside["score"]).all()
    assert set(table["device_kind"]) == {"recorded"} and set(table.loc[~table["supported"], "rule"]) <= RULES
    assert "1 of" in (said := capsys.readouterr()).err and "not in the model's pool" in said.err
    (tmp_path / "K.txt").write_text("grouped_conv_forward_bf16_2d_64x128x64_compv3_intrawave\n")
    assert main.main(["score", str(folder / "models"), *arguments]) == 2
    assert "K.txt, line 1" in (said := capsys.readouterr()).err and "begin with cutlass_conv_" in said.err


@pytest.mark.parametrize(("arch", "product", "operation"), OTHERS)
def test_the_header_of_another_library_picks_what_python_picks(tmp_path, monkeypatch, arch, product, operation):
    """With a feature of the user's own, which uses what no feature of ours does."""
    features = library_of_arch(arch).features
    own = Feature("rest", "1", "own", lambda p: p["Hi"] % 8 + 10 * (p["Wi"] // 7) + 100 * np.floor(p["C"] / 48))
    for name, shipped in features.items():
        monkeypatch.setitem(features, name, replace(shipped, problem=(*shipped.problem, own)))
    data, trained = train_on_recording(tmp_path / "dataset", product, operation, 8, arch)
    categorical = sum(tree.categorical.sum() for tree in trees.nodes(trained.model.scorer.text))
    assert (categorical > 0) == trained.model.spec.feature_set.startswith("miopen")
    served = stage.serve_model(data, trained.model, SMALL_SERVING)
    header = tmp_path / f"models/grouped_conv_{operation}_{arch}" / model_files.SELECTOR
    header.parent.mkdir(parents=True)
    header.write_text(served.header)
    shapes = np.concatenate([random_shapes(SHAPES), data.problems[list(DIMS)].to_numpy(np.int64)])
    if trained.model.spec.feature_set == "miopen_layouts":
        shapes = np.column_stack([shapes, np.zeros(len(shapes), np.int64)])
    picks = assert_cpp_picks_alike(tmp_path, served.selector, shapes)
    assert (picks.candidate >= 0).mean() > 0.2
