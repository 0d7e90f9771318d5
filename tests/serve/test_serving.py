"""What a dispatcher runs: the C++ header picks what Python picks, and the lists beside it say what they claim."""

import ctypes
import dataclasses
import subprocess

import learning_samples as samples
import lightgbm
import numpy as np
import pyarrow.parquet as pq
import pytest
from cpp_selectors import SHAPES, assert_cpp_expects_alike, assert_cpp_picks_alike, picks_of_cpp, random_shapes
from published_models import TEMPLATE, publish

from tileseer.core.documents import read_json
from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.learn.learners.trees import cpp
from tileseer.libraries.symbols import Symbol
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS, problem_frame, problems_of_rows
from tileseer.serve import header, serving_files
from tileseer.serve.selector import NO_CANDIDATE, Selector, evidence_columns

VARIANTS = ("forward", "bwd_data", "bwd_weight")


@pytest.fixture(scope="module", params=VARIANTS)
def folder(request, tmp_path_factory):
    """A folder with ``models`` and what they were made from."""
    folder = tmp_path_factory.mktemp("serving")
    publish(folder, request.param)
    return folder


@pytest.fixture
def selector(folder):
    (made,) = folder.glob("*/evaluation.json")
    return Selector.read(folder / "models", made.parent.name)


@pytest.fixture
def model(selector):
    return selector.model


def frame(model, shapes):
    return problem_frame(problems_of_rows(model.spec.variant, model.spec.dtype, shapes))


def with_all(model):
    """A selector of a model without known problems, all of whose kernels are in the pruned set."""
    return Selector(model, np.ones(len(model.pool), bool), serving_files.KNOWN_PROBLEMS.empty_table())


def with_text(model, text, **changed):
    """The model with other trees, or with other cuts."""
    return dataclasses.replace(model, scorer=dataclasses.replace(model.scorer, text=text, **changed))


@pytest.fixture
def golden(selector):
    """The published golden rows, as another program reads them."""
    return pq.read_table(selector.folder / "golden.parquet").to_pydict()


def test_a_port_to_python_tests_itself_by_the_golden_rows_without_the_package(selector, golden):
    names = read_json(selector.folder / "feature_spec.json")["feature_names"]
    candidates = pq.read_table(selector.folder / "candidates.parquet")["candidate"].to_pylist()
    assert 10 <= len(golden["score"]) <= serving_files.GOLDEN_ROWS and {*DIMS} < {*golden}
    assert {len(row) for row in golden["features"]} == {len(names)}
    assert [candidates[row] for row in golden["row"]] == golden["candidate"]
    trees = lightgbm.Booster(model_file=str(selector.folder / "model_tflops.lgbm"))
    scores = trees.predict(np.array(golden["features"]), raw_score=True)
    if selector.spec.formula is None:
        np.testing.assert_allclose(scores, golden["score"], rtol=1e-12, atol=1e-12)
    shapes = np.array([golden[name] for name in selector.model.columns]).T
    picks = selector.select(shapes, use_known=False)
    assert picks.candidate.tolist() == golden["row"] and picks.score.tolist() == golden["score"]
    pairs = np.arange(len(shapes)), np.array(golden["row"])
    features = selector.model.features.matrix(selector.frame(shapes), selector.model.pool, *pairs)
    assert features.astype(float).tolist() == golden["features"]


def test_a_port_to_cpp_tests_itself_by_the_golden_rows(folder, selector, golden):
    shapes = np.array([golden[name] for name in selector.model.columns]).T
    rows, scores, known, _ = picks_of_cpp(folder, selector.spec, shapes, 0, 0)
    assert rows == golden["row"] and scores == golden["score"] and not any(known)


def test_the_header_can_have_every_feature(model):
    """Also those that no tree of a small model reads: their formulas run on symbols as on numbers."""
    names = model.features.set.names
    inputs = cpp._Inputs(model.scorer, Operation.parse(model.spec.operation), model.pool, header._inputs(model))
    moving, fixed = cpp.feature_values(inputs, names)
    assert {*moving, *fixed} == set(names)


@pytest.mark.parametrize(("known", "pruned"), [(1, 0), (0, 1)])
def test_the_header_picks_what_python_picks_to_the_last_bit(folder, selector, model, known, pruned):
    data = samples.measured(model.spec.variant)
    shapes = np.concatenate([random_shapes(SHAPES), data.problems[list(DIMS)].to_numpy(np.int64)])
    picks = assert_cpp_picks_alike(folder, selector, shapes, known, pruned)
    assert (picks.candidate != NO_CANDIDATE).mean() > 0.3
    classes = selector.evidence.of(evidence_columns(shapes)).classes
    # Ten layers a kind say little: only what was measured itself is inside.
    assert not (classes[:SHAPES] == 0).any() and (classes[SHAPES:] == 0).mean() > 0.5


@pytest.mark.parametrize("folder", ["forward"], indirect=True)
def test_the_header_expects_what_python_expects(folder, selector, model, tmp_path):
    shapes = np.concatenate([random_shapes(SHAPES), near(samples.measured().problems[list(DIMS)].to_numpy(np.int64))])
    known = samples.well_known(model.spec.evidence, loss=(1.01, 1.04, 1.3))
    other = dataclasses.replace(model, spec=model.spec.model_copy(update={"evidence": known}))
    asked = Selector(other, selector.pruned, selector.known)
    made = tmp_path / "models" / selector.folder.name
    made.mkdir(parents=True)
    (made / model_files.SELECTOR).write_text(header.render_header(TEMPLATE, asked))
    *_, outlooks = picks_of_cpp(tmp_path, model.spec, shapes, 0, 0)
    expected = asked.evidence.of(evidence_columns(shapes))
    assert_cpp_expects_alike(outlooks, expected)
    assert set(expected.classes.tolist()) == {0, 1, 2} and len(set(expected.kind.tolist())) > 5


def near(shapes):
    """The same with other batches."""
    return np.concatenate([shapes + np.eye(len(DIMS), dtype=int)[0] * more for more in (1, 3, 9, 30)])


SHARED = """
#include "HEADER"
#include <cstring>
extern "C" double score(const std::int32_t* dims)
{
    static tileseer::forward_bf16_gfx950::Selector selector;
    tileseer::forward_bf16_gfx950::Problem problem;
    std::memcpy(&problem, dims, sizeof problem);
    return selector.select(problem).score;
}
"""


@pytest.mark.parametrize("folder", ["forward"], indirect=True)
def test_two_models_of_one_operation_live_in_one_process(selector, model, tmp_path):
    booster = lightgbm.Booster(model_str=model.scorer.text)
    for tree, grown in enumerate(booster.dump_model()["tree_info"]):
        for leaf in range(grown["num_leaves"]):
            booster.set_leaf_output(tree, leaf, 2 * booster.get_leaf_output(tree, leaf))
    libraries = []
    for name, grown in (("plain", model.scorer.text), ("twice", booster.model_to_string())):
        served = with_all(with_text(model, grown, cuts=model.scorer.cuts[-1:]))
        (tmp_path / f"{name}.hpp").write_text(header.render_header(TEMPLATE, served))
        command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-x", "c++", "-", "-o", tmp_path / f"{name}.so"]
        subprocess.run(command, input=SHARED.replace("HEADER", f"{tmp_path}/{name}.hpp"), text=True, check=True)
        libraries.append(ctypes.CDLL(str(tmp_path / f"{name}.so")))
        libraries[-1].score.restype = ctypes.c_double
    for dims in random_shapes(20).astype(np.int32):
        plain, twice = (library.score(dims.ctypes.data_as(ctypes.c_void_p)) for library in libraries)
        assert twice == pytest.approx(2 * plain, abs=1e-5)


def test_the_header_refuses_what_is_no_convolution(folder, selector):
    good = random_shapes(1)[0]
    wrong = []
    for name, value in (("G", 0), ("N", -1), ("pad_h", -1), ("stride_w", 0), ("Y", 5000), ("G", 7)):
        row = good.copy()
        row[DIMS.index(name)] = value
        wrong.append(row)
    rows, *_ = picks_of_cpp(folder, selector.spec, np.array(wrong), 1, 0)
    assert rows == [-1] * len(wrong)
    for row in wrong:
        with pytest.raises(UserError, match="row 0"):
            selector.select(row[None])
    for shapeless in (np.ones(19, int), np.ones((2, 18), int), np.ones((2, 19))):
        with pytest.raises(UserError, match="shape"):
            selector.select(shapeless)


def test_a_batch_is_its_problems_one_by_one(selector):
    shapes = random_shapes(40, seed=1)
    batch = selector.select(shapes)
    for position, row in enumerate(shapes):
        alone = selector.select(row[None])
        assert alone.candidate[0] == batch.candidate[position]
        assert alone.score[0] == batch.score[position]


def test_picks_are_supported_and_their_score_is_the_model_s(selector, model):
    shapes = random_shapes(60, seed=2)
    runs = model.supported(frame(model, shapes))
    picks = selector.select(shapes, use_known=False)
    assert ((picks.candidate >= 0) == runs.any(axis=1)).all()
    has = np.flatnonzero(picks.candidate >= 0)
    assert runs[has, picks.candidate[has]].all()
    scores = model.score_pairs(frame(model, shapes), has, picks.candidate[has])
    assert picks.score[has].tolist() == scores.tolist()


def test_without_cuts_the_pick_has_the_best_score(model):
    shapes = random_shapes(60, seed=2)
    score = model.predict(frame(model, shapes))
    whole = with_all(with_text(model, model.scorer.text, cuts=[]))
    has = np.isfinite(score).any(axis=1)
    picks = whole.select(shapes, use_known=False)
    assert picks.candidate[has].tolist() == score.argmax(axis=1)[has].tolist()


def test_a_measured_problem_gets_its_fastest_candidate(selector, model):
    data = samples.measured(model.spec.variant)
    dims = data.problems[list(DIMS)].to_numpy(np.int64)
    picks = selector.select(dims)
    offered = set(model.pool["candidate"])
    for row in np.flatnonzero(picks.known):
        pairs = (data.problem == row) & (data.status == 0)
        pairs &= np.isin(data.candidate, np.flatnonzero(data.candidates["candidate"].isin(offered)))
        best = data.candidate[pairs][np.argmax(data.tflops[pairs])]
        picked = model.pool["candidate"].iloc[picks.candidate[row]]
        assert picked == data.candidates["candidate"].iloc[best]


def test_the_kernel_list_names_headers_and_distinct_registry_keys(selector):
    listed = read_json(selector.folder / model_files.KERNELS)
    assert {entry["kernel"] for entry in listed["kernels"]} == set(selector.kernels)
    keys = {tuple(sorted(entry["registry_key"].items())) for entry in listed["kernels"]}
    assert len(keys) == len(listed["kernels"]) == listed["pool_size"]
    assert all(entry["header"] == f"{entry['kernel']}.hpp" for entry in listed["kernels"])
    assert listed["kernels"][0]["registry_key"]["arch"] == "gfx950"
    assert listed["pruned_size"] == len(listed["pruned"]) <= listed["pool_size"]
    assert listed["oracle_within_pruned"]["train"]["mean"] >= 98.9
    picks = selector.select(random_shapes(60), pruned_only=True)
    assert {name for name in picks.kernel if name} <= set(listed["pruned"])


def test_leaf_values_that_do_not_add_up_exactly_are_refused(model):
    booster = lightgbm.Booster(model_str=model.scorer.text)
    booster.set_leaf_output(0, 0, 0.1)
    with pytest.raises(UserError, match="multiples"):
        header.render_header(TEMPLATE, with_all(with_text(model, booster.model_to_string())))


def test_a_model_of_the_reference_s_features_is_served_in_python_and_its_header_says_so():
    data = samples.measured("forward")
    settings = samples.SMALL.model_copy(update={"features": "reference"})
    model = samples.train(data, samples.MI355X, settings).model
    scores = model.predict(data.problems)
    picks = with_all(model).select(data.problems[list(DIMS)].to_numpy(np.int64))
    has = np.isfinite(scores).any(axis=1)
    assert picks.candidate[has].tolist() == scores.argmax(axis=1)[has].tolist()
    assert (picks.candidate[~has] == NO_CANDIDATE).all()
    assert picks.score[has].tolist() == scores.max(axis=1)[has].tolist() and has.sum() > 10
    text = header.render_header(TEMPLATE, with_all(model))
    assert text.startswith("#error") and "reference" in text


@pytest.mark.parametrize(("use", "word"), [(np.exp, "exp"), (lambda n: bool(n > 1), "branches"), (np.cumsum, "cumsum")])
def test_what_the_header_cannot_compute_is_named(use, word):
    with pytest.raises(UserError, match=word):
        use(Symbol.input("N", np.dtype("float64")))
