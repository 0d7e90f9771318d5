"""Learning curves: the picks of models of a part of the measurements.

The parts are shares of the training problems, or, where a model starts from another model, shares of the training
pairs. A curve has a point per part, with the efficiency on validation problems.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from tileseer.core import draws
from tileseer.core.errors import UserError
from tileseer.dataset.dataset import Dataset
from tileseer.learn import cross_validation, efficiency, ranking
from tileseer.learn.cross_validation import LAYER_FOLDS
from tileseer.learn.fit import Recipe, fit, samples_of
from tileseer.learn.model import Model, read_out_of_fold
from tileseer.learn.model_schema import Origin
from tileseer.learn.validation_report import (
    LearningShare,
    Learnt,
    Transfer,
    TransferShare,
)
from tileseer.problems.problem import problems_of_frame

SHARES = (0.1, 0.3, 1.0)
"""Shares of the training problems whose models the learning curve shows."""
JUDGES = 300
"""At most so many validation problems, evenly spaced, evaluate these models: a step then has an uncertainty of a tenth
of a point."""
PRIOR_SHARES = (0.0, 0.01, 0.05, 0.15)
"""Shares of the training pairs, drawn by the names of problem and candidate."""


def of_shares(dataset: Dataset, shares: Sequence[float], recipe: Recipe) -> list[LearningShare]:
    """One point per share of the training problems: a small model of them.

    Layer families are drawn by their names, so a larger share holds a smaller one; a layer's batch sizes stay together.
    A share of fewer families than cross-validation has folds is left out.
    """
    problems = dataset.problems
    drawn = draws.shares(draws.of_names(problems["layer_family"].astype(str)))
    judging = _some_judges(dataset)
    points = []
    for share in sorted(shares):
        used = dataset.trains & (drawn < share)
        few = dataset.only(used[dataset.problem])
        if problems["layer_family"].iloc[few.problem[few.ok]].nunique() < recipe.settings.folds:
            continue
        points.append(
            LearningShare(
                share=efficiency.percent(share),
                problems=int(used.sum()),
                pairs=len(few.problem),
                **_judged(judging, fit(few, recipe.small), recipe),
            )
        )
    return points


def _some_judges(dataset: Dataset) -> Dataset:
    """The dataset with the times of at most ``JUDGES`` validation problems."""
    rows = ranking.validation_rows(dataset)
    timed = np.ones(len(dataset.problems), bool)
    timed[rows] = False
    timed[rows[:: math.ceil(len(rows) / JUDGES)]] = True
    return dataset.only(timed[dataset.problem])


def of_prior(dataset: Dataset, recipe: Recipe) -> Transfer:
    """One point per share of the training pairs: a model that starts from the prior, and one without it.

    All models are trained as the published one is. A share whose rows are of
    fewer groups than cross-validation has folds is left out.
    """
    prior, settings = _model_of(recipe), recipe.settings
    trains = dataset.trains[dataset.problem]
    problem = draws.of_names(dataset.problems["problem_key"])[dataset.problem]
    candidate = draws.of_names(dataset.candidates["candidate"])[dataset.candidate]
    drawn = draws.shares(draws.of_pairs(problem, candidate))
    alone = Learnt(**_judged(dataset, _alone(dataset, recipe), recipe))
    points = [TransferShare(share=0.0, pairs=0, with_prior=alone)]
    for share in PRIOR_SHARES[1:]:
        few = dataset.only(~trains | (drawn < share))
        taught = few.trains[few.problem]
        if few.problems[settings.cv_group].iloc[few.problem[taught & few.ok]].nunique() < settings.folds:
            continue
        models = {way: Learnt(**_judged(dataset, fit(few, one), recipe)) for way, one in _ways(recipe).items()}
        points.append(TransferShare(share=efficiency.percent(share), pairs=int(taught.sum()), **models))
    judges = dataset.problems[~dataset.trains & (dataset.best_tflops > 0)]
    seen = int(_seen(judges, recipe).sum())
    return Transfer(prior=Origin.of(prior.spec), n_problems=len(judges), seen_by_prior=seen, shares=points)


def of_prior_by_layer(dataset: Dataset, recipe: Recipe) -> Transfer | None:
    """``of_prior`` where no problems were set aside: layers are left out in turn, those new to the prior judge.

    Shares are of the other layers' problems: a problem of which one pair is known teaches nothing without a prior.
    None where the prior was trained on every layer.
    """
    prior = _model_of(recipe)
    samples = {way: samples_of(dataset, one) for way, one in _ways(recipe).items()}
    started = samples["with_prior"]
    problem, learn = started.pairs.problem, started.learn
    at = np.flatnonzero(~_seen(dataset.problems, recipe)[problem])
    if not len(at):
        return None
    of_fold = cross_validation.deal(started, "layer_family", LAYER_FOLDS, recipe.settings.seed)
    drawn = draws.shares(draws.of_names(dataset.problems["problem_key"]))[problem]

    def learnt(score: np.ndarray) -> Learnt:
        picked = at[cross_validation.picks(problem[at], score[at])]
        return Learnt(**ranking.learnt(started.pairs.efficiency[picked]))

    assert started.start is not None
    points = [TransferShare(share=0.0, pairs=0, with_prior=learnt(started.start))]
    for share in PRIOR_SHARES:
        few = learn & (drawn < share)
        if all((few & (of_fold != fold)).any() for fold in range(LAYER_FOLDS)):
            models = {
                way: learnt(cross_validation.scores_of_folds(one, few, of_fold, recipe.settings))
                for way, one in samples.items()
            }
            points.append(TransferShare(share=efficiency.percent(share), pairs=int(few.sum()), **models))
    judges = len(np.unique(problem[at]))
    return Transfer(prior=Origin.of(prior.spec), n_problems=judges, seen_by_prior=0, shares=points)


def _ways(recipe: Recipe) -> dict[str, Recipe]:
    return {"with_prior": recipe, "without_prior": replace(recipe, prior=None)}


def _model_of(recipe: Recipe) -> Model:
    assert isinstance(recipe.prior, Model)
    return recipe.prior


def _seen(problems: pd.DataFrame, recipe: Recipe) -> np.ndarray:
    """Which problems are layers, at any batch size, that the prior was trained on in its own data type, bool [P].

    Such a problem is not unseen to what starts from the prior.
    """
    prior, folder = _model_of(recipe), recipe.settings.prior_folder
    assert folder is not None
    families = set(read_out_of_fold(folder)["layer_family"])
    dtype = prior.spec.operation.rpartition("_")[2]
    return np.array([one.layer_family in families for one in problems_of_frame(problems.assign(dtype=dtype))], bool)


def _alone(dataset: Dataset, recipe: Recipe) -> Model:
    """The prior as a model of the candidates of a dataset on its device."""
    prior = _model_of(recipe)
    candidates = dataset.candidates[prior.knows(dataset.candidates)]
    if candidates.empty:
        raise UserError(f"{dataset.operation}: the prior supports none of its candidates; take one of the same pool")
    return replace(prior, pool=candidates, hardware=recipe.features.gpu)


def _judged(dataset: Dataset, model: Model, recipe: Recipe) -> dict[str, Any]:
    """Fields of ``Learnt``: efficiency of the picks of a model on the validation problems."""
    return ranking.learnt(ranking.rank_held_out(model, dataset, recipe.threads).picked)
