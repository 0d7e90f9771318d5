"""A prior: corrected by few rows, left alone by none that say otherwise, refused when it is another's."""

import dataclasses

import learning_samples as samples
import numpy as np
import pytest
from learning_samples import picked
from published_models import publish

from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.learn.learners.trees.scorer import MODEL
from tileseer.learn.model import Model
from tileseer.learn.training import read_prior

SETTINGS = samples.changed(n_estimators=60)


def few_rows(data, share, seed=0):
    train = data.trains[data.problem]
    keep = ~train | (np.random.default_rng(seed).random(len(train)) < share)
    return data.only(keep)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("prior")
    samples.train(samples.measured(), samples.MI355X, SETTINGS).save(path)
    return path


def correct(data, folder):
    # Settings want a path inside the workflow; a test's folder is none.
    return samples.train(data, samples.MI355X, SETTINGS.model_copy(update={"prior": str(folder)}))


def test_the_model_has_the_trees_of_the_prior_and_its_own_and_its_origin_is_told(folder):
    data = samples.measured()
    # On this device one tile is much slower than the prior believes.
    slow = data.candidates["tile_m"].to_numpy()[data.candidate] == 128
    other = dataclasses.replace(data, tflops=np.where(slow, 0.5, 1.0) * data.tflops)
    trained = correct(few_rows(other, 0.3), folder)
    assert trained.manifest.prior.model_dump() == {
        "operation": "forward_bf16", "arch": "gfx950", "device": "gfx950_mi355x", "device_kind": "simulated",
    }  # fmt: skip
    first = Model.read(folder)
    assert trained.model.scorer.count > first.scorer.count
    assert picked(other, trained.model) > picked(other, first)


def test_rows_that_agree_with_the_prior_do_not_worsen_it(folder):
    data = samples.measured()
    assert picked(data, correct(few_rows(data, 0.1), folder).model) > picked(data, Model.read(folder)) - 0.01


def test_rows_mend_most_of_a_prior_that_is_wrong(tmp_path):
    data = samples.measured()
    upside_down = dataclasses.replace(data, tflops=1 / data.tflops)
    prior = samples.train(upside_down, samples.MI355X, SETTINGS)
    prior.save(tmp_path)
    alone = samples.train(data, samples.MI355X, SETTINGS)
    wrong, mended, right = (picked(data, one.model) for one in (prior, correct(data, tmp_path), alone))
    assert mended - wrong > 0.8 * (right - wrong)


def test_candidates_that_only_the_prior_knows_stay_in_the_pool(folder):
    data = samples.measured()
    assert len(correct(few_rows(data, 0.02), folder).model.pool) == len(data.candidates)


def test_another_data_type_has_the_same_candidates(folder):
    prior = read_prior(folder, "tileseer", "forward")
    table = samples.candidates(samples.kernels())
    half = table.assign(candidate=table["candidate"].str.replace("_bf16_", "_fp16_", n=1))
    assert prior.knows(half).tolist() == prior.knows(table).tolist()
    assert prior.knows(table).all()


def test_a_published_prior_with_one_changed_byte_is_refused(tmp_path):
    folder = publish(tmp_path) / "grouped_conv_forward_bf16_gfx950"
    for name in (MODEL, model_files.SPEC, model_files.CANDIDATES, model_files.HARDWARE):
        read_prior(folder, "tileseer", "forward")
        sound = (folder / name).read_bytes()
        # A digit of a leaf's value, if it is the model: still a model, with other scores.
        place = sound.find(b"leaf_value=0.") + len("leaf_value=0.") if name == MODEL else len(sound) // 2
        (folder / name).write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        with pytest.raises(UserError, match=f"{name}: the content does not match"):
            read_prior(folder, "tileseer", "forward")
        (folder / name).write_bytes(sound)


def test_a_foreign_prior_is_refused(folder, tmp_path):
    with pytest.raises(UserError, match="variant is 'forward'"):
        read_prior(folder, "tileseer", "bwd_data")
    with pytest.raises(UserError, match="feature_set is 'tileseer'"):
        read_prior(folder, "reference", "forward")
    with pytest.raises(UserError, match="no such file"):
        read_prior(tmp_path, "tileseer", "forward")
