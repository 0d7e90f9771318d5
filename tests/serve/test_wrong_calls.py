"""Calls of the Python API with wrong arguments: one line that names the argument, never another kernel in silence."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from published_models import LAYER

from tileseer.core.errors import UserError
from tileseer.data.dataset import Dataset
from tileseer.judge.evaluation import evaluate
from tileseer.judge.ranking import rank_by, rank_held_out, rank_left_out, recipe_of
from tileseer.learn.features import Features
from tileseer.learn.model import Model
from tileseer.libraries.features.table import Feature
from tileseer.problems.problem import DIMS, Problem, problem_frame
from tileseer.serve.selector import Selector

ROOT = Path(__file__).parents[2]
FORWARD = Problem.from_dims("forward", "bf16", **LAYER)
OTHER = Problem.from_dims("bwd_data", "bf16", **LAYER)


def test_a_table_is_read_by_the_names_of_its_columns(selector):
    problems = [FORWARD, replace(FORWARD, N=3, C=128, K=256)]
    table = problem_frame(problems)
    own = selector.select(np.array([problem.dims for problem in problems]))
    for order in (table, table[[*table][::-1]], table.assign(note="x")[sorted([*table, "note"])]):
        picked = selector.select(order)
        assert np.array_equal(picked.candidate, own.candidate) and np.array_equal(picked.score, own.score)


DATA = Dataset.read(ROOT / "config/recorded/sm_90/forward_bf16")
OWN = Feature("rest", "1", "", lambda problem: problem["Hi"][:3])


def _read(selector, device):
    return Selector.read(selector.folder.parent, "forward_bf16", device=device)


WRONG_CALLS = {
    "no column": (lambda s: s.select(problem_frame([FORWARD]).rename(columns={"Hi": "Hin"})), "is it Hin. Rename"),
    "another direction": (lambda s: s.select(problem_frame([OTHER])), "column variant has others than forward"),
    "text in a table": (lambda s: s.select(problem_frame([FORWARD]).astype({"C": str})), "row 0, C is '64'"),
    "an empty cell": (lambda s: s.select(problem_frame([FORWARD] * 2).assign(C=[64, np.nan])), "row 1, C is nan"),
    "half a size": (lambda s: s.select(problem_frame([FORWARD]).assign(pad_h=0.5)), "row 0, pad_h is 0.5"),
    "a name of others": (lambda s: s.select(problem_frame([FORWARD]).rename(columns={"Y": "R"})), "is it R. Rename"),
    "a problem": (lambda s: s.select(FORWARD), "such as selector.dims_of"),
    "a flag": (lambda s: s.select(s.dims_of(FORWARD), pruned_only="no"), "pruned_only is 'no'; give True or False"),
    "a layout in a table": (lambda s: s.select(problem_frame([FORWARD.with_layout("NCHW")])), "row 0, layout is 'NC"),
    "a layout of no model": (
        lambda s: s.select(problem_frame([FORWARD]).assign(layout="NCL")),
        "knows NHWC in 2D, NDHWC in 3D only; write these, or drop the column",
    ),
    "dimensions without names": (lambda s: Problem("forward", "bf16", 8, 64), "ndim is 8; use 2 or 3, or give the dim"),
    "dimensions alone": (lambda s: Problem(8, 64, 64), "variant is 8; give the dimensions by name: Problem.from_dims"),
    "from_dims without names": (lambda s: Problem.from_dims("forward", "bf16", 8), "8 has no name; give the dimensi"),
    "frame, a list": (lambda s: s.frame([[1, 2]]), r"dims is \[\[1, 2\]\]; give rows such as dims_of"),
    "rank, another type": (
        lambda s: s.rank(Problem.from_dims("forward", "fp16", **LAYER)),
        r"give Problem.from_dims\('forward', 'bf16', ...\)$",
    ),
    "read, a folder inside": (lambda s: Selector.read(s.folder, "forward_bf16"), "inside of a folder of models; give"),
    "read, a file inside": (lambda s: Selector.read(s.folder / "kernels.json", "forward_bf16"), "inside of a folder"),
    "a dataset, its file": (
        lambda s: Dataset.read(ROOT / "config/recorded/sm_90/forward_bf16/pairs.parquet"),
        "is a file; give its folder, .*/config/recorded/sm_90/forward_bf16$",
    ),
    "shortlist, one string": (lambda s: s.shortlist(FORWARD, 2, "eng0", "cudnn 9"), "offered is 'eng0'; give a list"),
    "not read": (lambda s: Selector(str(s.folder), "forward_bf16"), r"Selector\.read\("),
    "a dataset that is not read": (lambda s: Dataset("config/recorded/sm_90"), r"write Dataset\.read\("),
    "several problems": (lambda s: s.rank([FORWARD]), "give one at a time"),
    "no direction": (lambda s: Problem(N=8, C=64), "variant is ''; give the dimensions by name: Problem.from"),
    "a model, a number": (lambda s: Model.read(3), "folder is 3; give the path of a folder"),
    "features, one": (lambda s: replace(s.model.features.set, problem=OWN), "give a tuple of features"),
    "scores, one problem": (lambda s: s.scores(FORWARD), "give a list of problems"),
    "outlooks, one problem": (lambda s: s.outlooks(FORWARD), "give a list of problems"),
    "outlooks, none": (lambda s: s.outlooks([]), r"problems is \[\]; give a list"),
    "predicted_times, words": (lambda s: s.predicted_times(["a"]), "give a row of what scores returns"),
    "use_tuned, a folder": (lambda s: s.use_tuned("x.tuned"), "choices is 'x.tuned'; give"),
    "choose, none": (lambda s: s.choose(FORWARD, [], "cudnn 9"), "no library; use select"),
    "choose, turned round": (lambda s: s.choose(["a"], FORWARD, "cudnn 9"), r"the problem is \['a'\]; make one"),
    "read, a kind of device": (lambda s: _read(s, "gpu"), "none of gfx950_mi355x"),
    "read, another vendor": (lambda s: _read(s, "NVIDIA H200"), "is a sm_90, and the candidates are those of gfx950"),
    "read, no name": (lambda s: Selector.read(s.folder.parent, ["forward_bf16"]), "give its name, such as"),
    "too few columns": (lambda s: s.select(np.ones((1, 3), int)), "of shape"),
    "floats": (lambda s: s.select(np.ones((1, len(DIMS)))), "give integers"),
    "no convolution": (lambda s: s.select(np.zeros((1, len(DIMS)), int)), "row 0.*N is 0"),
    "rank, operation": (lambda s: s.rank(OTHER), "bwd_data_bf16.*forward_bf16"),
    "rank, words": (lambda s: s.rank("N=8,C=64"), "make one: Problem.from_dims"),
    "answer, operation": (lambda s: s.answer(OTHER), "bwd_data_bf16"),
    "tuned, operation": (lambda s: s.tuned(OTHER), "bwd_data_bf16"),
    "fastest_measured, operation": (lambda s: s.fastest_measured(OTHER), "bwd_data_bf16"),
    "outlooks, operation": (lambda s: s.outlooks([FORWARD, OTHER]), "bwd_data_bf16"),
    "choose, operation": (lambda s: s.choose(OTHER, ["a"], "x 1"), "bwd_data_bf16|no library"),
    "choose, one string": (lambda s: s.choose(FORWARD, "eng0", "cudnn 9"), "give a list of names"),
    "choose, numbers": (lambda s: s.choose(FORWARD, [1, 2], "cudnn 9"), "give a list of names"),
    "shortlist, none": (lambda s: s.shortlist(FORWARD, 0), "count is 0; give a whole number from 1"),
    "shortlist, less": (lambda s: s.shortlist(FORWARD, -2), "count is -2"),
    "shortlist, a share": (lambda s: s.shortlist(FORWARD, 2.5), "count is 2.5"),
    "shortlist, a flag": (lambda s: s.shortlist(FORWARD, True), "count is True"),
    "shortlist, operation": (lambda s: s.shortlist(OTHER, 2), "bwd_data_bf16"),
    "read, operation": (lambda s: Selector.read(s.folder.parent, "forward"), "'forward'; it has forward_bf16"),
    "read, arch": (lambda s: Selector.read(s.folder.parent, "forward_bf16", "gfx90a"), "not for gfx90a"),
    "read, nothing": (lambda s: Selector.read(None, "forward_bf16"), "models is None; give the path of a folder"),
    "a dataset, a number": (lambda s: Dataset.read(3), "folder is 3; give the path of a folder"),
    "evaluate, no ranking": (lambda s: evaluate("x", None, None), "scored is 'x'; give what rank_by"),
    "rank_held_out, no model": (lambda s: rank_held_out("x", None), "model is 'x'; give"),
    "rank_left_out, no dataset": (lambda s: rank_left_out("x", None), "dataset is 'x'; give one: Dataset.read"),
    "only, a word": (lambda s: DATA.only("forward"), "keep is 'forward'; give a mask of the"),
    "only, a short mask": (lambda s: DATA.only(np.array([True])), "give a mask of the"),
    "grid, a word": (lambda s: DATA.grid("a"), "problems is 'a'; give a mask"),
    "grid, no such row": (lambda s: DATA.grid([len(DATA.problems)]), "give a mask"),
    "followed_by, a word": (lambda s: DATA.followed_by("x"), "other is 'x'; give one: Dataset.read"),
    "features of no GPU": (lambda s: Features.of("cutlass", "h200"), "gpu is 'h200'; give one: tileseer.facts.hardw"),
    "features, turned round": (
        lambda s: s.model.features.matrix(s.model.pool, problem_frame([FORWARD]), [0], [0]),
        "problems: is no table of problems; give that first",
    ),
    "a feature without a name": (lambda s: Feature("1", "height", "", len), "feature '1': the name comes first"),
    "features of a word's GPU": (lambda s: Features.of("cutlass", "NVIDIA H200"), r"yaml', 'sm_90_h200'\); there are"),
    "spread_out, a number": (lambda s: DATA.spread_out([0], 3.0, 0), r"values is array\(3.\); give one for each of"),
    "problem_frame, a problem": (lambda s: problem_frame(FORWARD), "give a list of problems; for each give the dim"),
    "predict, problems": (lambda s: s.model.predict([FORWARD]), r"problem_frame\(\[PROBLEM, ...\]\)$"),
    "predict, dimensions alone": (lambda s: s.model.predict(pd.DataFrame([FORWARD.dims], columns=DIMS)), "the columns"),
    "recipe_of, a path": (lambda s: recipe_of(s.folder, 1), "give one: Model.read"),
    "a layout, a number": (lambda s: FORWARD.with_layout(3), "layout is 3; use one of"),
    "a filter of others": (lambda s: Problem.from_dims("forward", "bf16", R=3), "'R'; is it Y?"),
    "a layout": (lambda s: s.rank(FORWARD.with_layout("NHCW")), "layout is 'NHCW'"),
    "a field": (lambda s: Problem.from_dims("forward", "bf16", n=8), "unknown field 'n'"),
    "a size": (lambda s: Problem.from_dims("forward", "bf16", N="8"), "N is '8'; it must be an int"),
    "a direction of others": (lambda s: Problem.from_dims("fprop", "bf16", N=8), "weight; is it forward.$"),
    "a data type of others": (lambda s: Problem.from_dims("forward", "bfloat16", N=8), "fp32; is it bf16.$"),
    "a dimension of others": (lambda s: Problem.from_dims("forward", "bf16", in_channels=3), "'in_channels'; is it C"),
    "dimensions of others": (lambda s: Problem.from_dims("forward", "bf16", kernel_size=3), "write Y and X$"),
    "read, an operation of others": (lambda s: Selector.read(s.folder.parent, "fprop_bf16"), "is it forward_bf16.$"),
    "only, a mask of problems": (lambda s: DATA.only(DATA.held_out), r"mask of problems: mask\[dataset.problem\]"),
    "rank_held_out, of another": (
        lambda s: rank_held_out(s.model, DATA),
        "^forward_bf16 of sm_90: has not .* pool; give a dataset of forward_bf16 of gfx950",
    ),
    "a direction": (lambda s: Problem.from_dims("fwd", "bf16", N=8), "variant is 'fwd'"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_a_wrong_argument_is_named(selector, name):
    call, says = WRONG_CALLS[name]
    with pytest.raises(UserError, match=says):
        call(selector)


def test_whole_numbers_are_sizes_whatever_their_type(selector):
    own = selector.dims_of(FORWARD)
    table = problem_frame([FORWARD]).astype(dict.fromkeys(DIMS, float)).astype({"K": "Int64"})
    assert selector.select(table).candidate == selector.select(own).candidate
    assert Problem.from_dims("forward", "bf16", **dict(zip(DIMS, own[0], strict=True))) == FORWARD
    np.testing.assert_array_equal(selector.predicted_times([1, 1]), [100, 100])


def test_a_table_without_layouts_and_other_columns_is_enough(selector):
    assert len(selector.select(pd.DataFrame([FORWARD.dims], columns=[*DIMS])).candidate) == 1


@pytest.mark.parametrize("field", ["arch", "device", "device_kind", "operation"])
def test_datasets_of_two_devices_or_directions_are_not_joined(field):
    other = {"arch": "gfx950", "device": "x", "device_kind": "simulated", "operation": "bwd_data_bf16"}
    with pytest.raises(UserError, match="join those of one device"):
        DATA.followed_by(replace(DATA, **{field: other[field]}))
    assert len(DATA.followed_by(replace(DATA, operation="forward_fp16")).problem) == 2 * len(DATA.problem)


def test_a_picker_may_change_its_tables():
    before = DATA.problems.copy(), DATA.candidates.copy()

    def pick(problems, candidates):
        problems["N"], candidates["tile_m"] = 1, 1
        return np.ones((len(problems), len(candidates)))

    rank_by(pick, DATA)
    assert DATA.problems.equals(before[0]) and DATA.candidates.equals(before[1])
