"""Training: deterministic bytes, folds without leaks, training rows, and a model that ranks."""

import dataclasses

import learning_samples as samples
import lightgbm
import numpy as np
import pytest
from published_models import train_on_recording

from tileseer.core.errors import UserError
from tileseer.learn import own_choice, rows, training
from tileseer.learn.learners.trees import fit

BAD = np.uint8(5)


def text_of(trained):
    return trained.model.scorer.text


@pytest.mark.parametrize("threads", [2, 3])
def test_two_trainings_give_the_same_bytes_with_any_threads(threads):
    data = samples.measured()
    again = samples.train(data, samples.MI355X, samples.SMALL, threads=threads)
    assert text_of(again) == text_of(samples.trained())
    assert again.manifest == samples.trained().manifest


def test_the_order_of_rows_does_not_matter():
    data = samples.measured()
    order = np.random.default_rng(3).permutation(len(data.problem))
    assert text_of(samples.train(data.only(order), samples.MI355X, samples.SMALL)) == text_of(samples.trained())


def test_the_seed_and_the_settings_matter():
    data, product = samples.measured(), samples.MI355X
    assert text_of(samples.train(data, product, samples.changed(seed=2))) != text_of(samples.trained())
    assert text_of(samples.train(data, product, samples.changed(num_leaves=7))) != text_of(samples.trained())


def test_validation_rows_teach_nothing():
    data = samples.measured()
    held_out = data.held_out[data.problem]
    altered = dataclasses.replace(data, tflops=np.where(held_out, 1.0, data.tflops))
    assert text_of(samples.train(altered, samples.MI355X, samples.SMALL)) == text_of(samples.trained())


def test_failed_rows_are_no_training_rows():
    data = samples.measured()
    training = data.trains[data.problem]
    everything = samples.train(data, samples.MI355X, samples.changed(rows_per_problem=0))
    assert everything.manifest.training_rows == np.count_nonzero(data.ok & training)
    assert samples.trained().manifest.training_rows < everything.manifest.training_rows


def test_the_target_is_relative_to_the_best_of_the_problem():
    data = samples.table_of([[100, 50, 1], [3, 6, np.nan]], "train")
    found = rows.training_pairs(data)
    np.testing.assert_allclose(np.exp(fit.target(found.efficiency)), [1, 0.5, 0.05, 0.5, 1])
    np.testing.assert_allclose(found.tflops, [100, 50, 1, 3, 6])


def test_a_long_problem_weighs_more():
    found = fit.time_weight(np.r_[3, 3, 5, 8, 8], np.r_[2.0, 1.0, 16.0, 0.0625, 4.0])
    np.testing.assert_array_equal(found, [1, 1, 2, 0.5, 0.5])


def test_trees_learn_what_a_pick_earns_in_the_mean():
    # One candidate is the fastest or a tenth as fast, by chance; the other one is always near the best.
    rng = np.random.default_rng(0)
    risky = rng.random(400) < 0.5
    data = samples.table_of([[100, 90] if lucky else [10, 90] for lucky in risky], "train")
    model = samples.train(data, samples.MI355X, samples.SMALL).model
    scores = model.predict(data.problems)
    runs = np.isfinite(scores).all(axis=1)
    assert runs.any()
    assert (scores[runs].argmax(axis=1) == 1).all()


def test_an_awful_kernel_counts_where_few_others_were_measured():
    problem = np.repeat([0, 1], [4, 200])
    weights = fit.weight(problem, np.r_[1.0, 0.5, 1e-4, 1e-4, np.full(200, 0.5)])
    np.testing.assert_allclose(weights[:4], [1, 0.25, 0.025, 0.025])
    assert (weights[4:] == 0.25).all()


def test_sampling_keeps_the_fastest_rows_of_each_problem():
    rng = np.random.default_rng(0)
    data = samples.table_of(rng.random((6, 12)) + 0.1, "train")
    found = rows.training_pairs(data)
    teaching = rows.sampled(found, samples.changed(rows_per_problem=6))
    for problem in range(6):
        part = found.problem == problem
        assert teaching[part].sum() == 6
        assert teaching[part][np.argsort(-found.efficiency[part])[:3]].all()


@pytest.mark.parametrize("folds", [2, 5])
def test_folds_are_whole_groups_of_like_size(folds):
    groups, sizes = np.array([f"group{i}" for i in range(40)]), [1 + i % 7 for i in range(40)]
    fold = rows.deal(groups, np.repeat(np.arange(40), sizes), folds, seed=1)
    filled = np.bincount(fold, weights=sizes)
    assert filled.max() - filled.min() <= 7
    backwards = rows.deal(groups[::-1], np.repeat(np.arange(40), sizes[::-1]), folds, seed=1)
    assert backwards[::-1].tolist() == fold.tolist()
    with pytest.raises(UserError, match=f"{folds} folds"):
        rows.deal(groups, np.arange(folds - 1), folds, seed=1)


def test_no_layer_is_on_both_sides_of_a_fold(monkeypatch):
    data = samples.measured()
    # Batch sizes of one layer: the keys differ, the layer is shared.
    families = [f"family{i // 4}" for i in range(len(data.problems))]
    data = dataclasses.replace(data, problems=data.problems.assign(layer_family=families))
    found = training.Prepared.by(samples.recipe(), rows.training_pairs(data))
    family_of_row = np.array(families)[found.pairs.problem[found.teaching]]
    seen = []
    original = lightgbm.Dataset.subset

    def subset(self, used_indices, params=None):
        seen.append(set(family_of_row[used_indices]))
        return original(self, used_indices, params)

    monkeypatch.setattr(lightgbm.Dataset, "subset", subset)
    fold = rows.deal(np.array(families), found.pairs.problem, 3, seed=1)
    scores = training.out_of_fold(found, fold, found.recipe.small)
    # Every layer is held out exactly once, and as a whole.
    held_out = [set(family_of_row) - part for part in seen]
    assert len(seen) == 3 and sorted(family for part in held_out for family in part) == sorted(set(family_of_row))
    # Every tried pair has a score.
    assert (np.isfinite(scores) == own_choice.offered(found.pairs)).all()


def test_candidates_that_never_ran_are_not_published():
    data = samples.measured()
    fails = data.candidate == 2
    broken = dataclasses.replace(
        data, status=np.where(fails & (data.ok), BAD, data.status),
        tflops=np.where(fails, np.nan, data.tflops),
    )  # fmt: skip
    published = samples.train(broken, samples.MI355X, samples.SMALL).model.pool["candidate"]
    assert set(samples.trained().model.pool["candidate"]) - set(published) == {data.candidates["candidate"][2]}


def test_nothing_to_learn_from_is_a_user_error():
    data = samples.measured()
    empty = dataclasses.replace(data, problems=data.problems.assign(split="validation"))
    with pytest.raises(UserError, match="no training problem"):
        samples.train(empty, samples.MI355X, samples.SMALL)


def test_a_few_dozen_recorded_problems_tell_solvers_apart(tmp_path):
    data, trained = train_on_recording(tmp_path / "d.parquet", "gfx942_mi300x", "forward_fp16", 280, "gfx942_miopen")
    assert np.count_nonzero(data.ok) < 200
    scores = trained.model.predict(data.problems)
    spread = [np.ptp(row[np.isfinite(row)]) for row in scores]
    assert np.median(spread) > 0.1
