"""Objectives of a model and how they are fitted: regressions, a ranking, and their sum."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import lightgbm
import numpy as np

from tileseer.model import booster_text
from tileseer.settings.model import TrainingParameters

GRADES = 31
"""Levels of a ranking's relevance, from ``GRADED_FROM`` to the best; rows below it are all the same."""
GRADED_FROM = 0.4


@dataclass(frozen=True)
class Objective:
    """One thing to learn."""

    meaning: str
    parameters: Mapping[str, Any]
    """LightGBM's, beside those of the settings."""
    members: tuple[str, ...] = ()
    """Objectives whose scores are added up, each brought to the spread of the first; empty for a plain one."""


OBJECTIVES = {
    "relative": Objective(
        "ln(TFLOPS / best TFLOPS of the same problem); exp(prediction) is a relative efficiency, not TFLOPS",
        {"objective": "regression"},
    ),
    "log_tflops": Objective("ln(TFLOPS)", {"objective": "regression"}),
    "lambdarank": Objective(
        "a score whose order within a problem is that of the TFLOPS, brought to the spread of their logarithms",
        {
            "objective": "lambdarank",
            "label_gain": [2 ** (grade / 3) - 1 for grade in range(GRADES)],
            "lambdarank_truncation_level": 20,
        },
    ),
    "ensemble": Objective(
        "mean of the other objectives' scores, brought to one spread; its order within a problem is the ranking",
        {},
        ("relative", "log_tflops", "lambdarank"),
    ),
    "corrected": Objective(
        "a share of a prior model's score plus what measured rows say that it misses: ln(TFLOPS) up to a constant of "
        "each problem",
        {"objective": "regression"},
        ("log_tflops",),
    ),
}
"""By the name that the parameter ``target`` gives, the cheapest to explain first: it is kept unless another is better.

``corrected`` is what ``model.prior`` makes of a model, whatever the target."""
CHOICES = ("relative", "log_tflops", "lambdarank", "ensemble")
"""What ``target: auto`` chooses from."""


@dataclass(frozen=True)
class Rows:
    """Pool rows of some problems, sorted by problem; everything has one entry a row."""

    problem: np.ndarray
    candidate: np.ndarray
    efficiency: np.ndarray
    """0..1, 0 where the pair did not run."""
    tflops: np.ndarray
    """NaN where the pair did not run."""
    learn: np.ndarray
    """Whether the row trains: measured ok and kept by the sampling."""

    def label(self, objective: str, floor: float) -> np.ndarray:
        """Label of each row for ``objective``, float64 [n]; NaN where the pair did not run."""
        with np.errstate(divide="ignore"):
            if objective == "relative":
                label = np.log(np.maximum(self.efficiency, floor))
            elif objective == "log_tflops":
                label = np.log(self.tflops)
            else:
                label = np.clip(np.rint((self.efficiency - GRADED_FROM) / (1 - GRADED_FROM) * (GRADES - 1)), 0, None)
        return np.where(np.isnan(self.tflops), np.nan, label)


@dataclass(frozen=True)
class Table:
    """Rows with their features, binned once for every fit."""

    rows: Rows
    matrix: np.ndarray
    binned: lightgbm.Dataset
    """The rows that learn, in their order."""
    position: np.ndarray
    """Row of ``binned`` of each row, -1 where it does not learn."""
    prior: np.ndarray | None = None
    """Scores that a prior model gives the rows; a fit then learns what they leave."""
    within: bool = False
    """Whether that is learnt less its mean in each problem."""


def kept(
    problem: np.ndarray, efficiency: np.ndarray, keys: np.ndarray, per_problem: int, fastest: int, seed: int
) -> np.ndarray:
    """Which rows a problem keeps, bool [n]: ``per_problem`` of them (0: all), the ``fastest`` first.

    Rows are sorted by ``problem``; ``efficiency`` is 0 where a pair did not run; ``keys`` is the key of each problem.
    """
    if not per_problem:
        return np.ones(len(problem), bool)
    keep = np.zeros(len(problem), bool)
    bounds = np.flatnonzero(np.diff(problem, prepend=-1, append=np.iinfo(np.int32).max))
    for start, stop in pairwise(bounds):
        priority = np.random.default_rng([seed, int(keys[problem[start]], 16)]).random(stop - start)
        priority[np.argsort(-efficiency[start:stop], kind="stable")[:fastest]] = -1.0
        keep[start + np.argsort(priority, kind="stable")[:per_problem]] = True
    return keep


def parameters(settings: TrainingParameters, threads: int) -> dict[str, Any]:
    """LightGBM's parameters without an objective."""
    return {
        "num_leaves": settings.num_leaves,
        "learning_rate": settings.learning_rate,
        "min_data_in_leaf": settings.min_child_samples,
        "max_bin": settings.max_bin,
        "feature_fraction": settings.feature_fraction,
        "lambda_l2": settings.reg_lambda,
        "seed": settings.seed,
        "deterministic": True,
        # Column-wise histograms are summed by one thread each: the sums do not depend on the number of threads.
        "force_col_wise": True,
        "num_threads": threads,
        "verbosity": -1,
    }


def table(
    rows: Rows, matrix: np.ndarray, names: tuple[str, ...], categorical: tuple[str, ...], settings: TrainingParameters,
    threads: int, prior: np.ndarray | None = None,
) -> Table:  # fmt: skip
    """Bin the rows that learn."""
    learn = np.flatnonzero(rows.learn)
    binned = lightgbm.Dataset(
        matrix[learn], np.zeros(len(learn)), feature_name=list(names), categorical_feature=list(categorical),
        params=parameters(settings, threads), free_raw_data=True,
    ).construct()  # fmt: skip
    position = np.full(len(rows.problem), -1)
    position[learn] = np.arange(len(learn))
    return Table(rows, matrix, binned, position, prior)


def fit(
    objective: str, data: Table, learnt: np.ndarray, settings: TrainingParameters, trees: int, threads: int
) -> lightgbm.Booster:
    """A model fitted to the rows ``learnt`` (sorted positions, all of them learning).

    An ensemble divides the trees among its members, so it costs what one of them does.
    """
    members = OBJECTIVES[objective].members
    if objective == "lambdarank":
        # A ranking has no unit: it gets the spread of the logarithms, so that other scores can be added to it.
        booster = _fit_one(objective, data, learnt, settings, trees, threads)
        problem = data.rows.problem[learnt]
        wanted = within_problem_spread(problem, data.rows.label("relative", settings.relative_floor)[learnt])
        spread = within_problem_spread(problem, predict(booster, data, learnt, threads))
        return _weighted([booster], [wanted / spread if spread else 1.0])
    if not members:
        return _fit_one(objective, data, learnt, settings, trees, threads)
    fitted = [_fit_one(name, data, learnt, settings, max(trees // len(members), 1), threads) for name in members]
    spreads = [within_problem_spread(data.rows.problem[learnt], predict(b, data, learnt, threads)) for b in fitted]
    weights = [spreads[0] / spread / len(members) if spread else 0.0 for spread in spreads]
    return _weighted(fitted, weights)


def _weighted(boosters: list[lightgbm.Booster], weights: list[float]) -> lightgbm.Booster:
    texts = [booster.model_to_string() for booster in boosters]
    return lightgbm.Booster(model_str=booster_text.weighted_sum(list(zip(texts, weights, strict=True))))


def predict(booster: lightgbm.Booster, data: Table, at: np.ndarray, threads: int) -> np.ndarray:
    """The trees' scores of some rows, float64, without the prior's."""
    return np.asarray(booster.predict(data.matrix[at], num_threads=threads))


def within_problem_spread(problem: np.ndarray, score: np.ndarray) -> float:
    """The standard deviation of scores around their problem's mean."""
    return float(np.std(centred(problem, score)))


def centred(problem: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Scores minus the mean of their problem."""
    count = np.bincount(problem)
    return score - (np.bincount(problem, score) / np.maximum(count, 1))[problem]


def _fit_one(
    objective: str, data: Table, learnt: np.ndarray, settings: TrainingParameters, trees: int, threads: int
) -> lightgbm.Booster:
    used = parameters(settings, threads) | dict(OBJECTIVES[objective].parameters)
    part = data.binned.subset(data.position[learnt].tolist(), params=used).construct()
    label = data.rows.label(objective, settings.relative_floor)[learnt]
    if objective == "relative":
        weight = data.rows.efficiency[learnt] ** settings.near_best
        return fit_within(part, label, data.rows.problem[learnt], weight, used, settings.level_share, trees)
    if data.prior is not None:
        label = label - data.prior[learnt]
        if data.within:
            label = centred(data.rows.problem[learnt], label)
    part.set_label(label)
    if used["objective"] == "lambdarank":
        part.set_group(np.unique(data.rows.problem[learnt], return_counts=True)[1])
    return lightgbm.train(used, part, num_boost_round=trees)


def fit_within(
    part: lightgbm.Dataset, label: np.ndarray, problem: np.ndarray, weight: np.ndarray, parameters: dict[str, Any],
    level_share: float, trees: int,
) -> lightgbm.Booster:  # fmt: skip
    """A weighted least-squares regression in which what all rows of a problem miss alike counts little.

    That mean of the residuals decides no pick, and the label's own level is noisy: it hangs on one lucky timing. So
    only ``level_share`` of it enters the gradient (generalised least squares with a random level of each problem).
    """
    number = np.unique(problem, return_inverse=True)[1]
    of_problem = np.bincount(number, weight)
    mean = float(np.average(label, weights=weight))

    def gradient(score: np.ndarray, _: lightgbm.Dataset) -> tuple[np.ndarray, np.ndarray]:
        residual = score + mean - label
        missed = np.bincount(number, weight * residual) / of_problem
        return weight * (residual - (1 - level_share) * missed[number]), weight

    part.construct().set_label(label)
    if not any(part.feature_num_bin(feature) for feature in range(part.num_feature())):
        # Too few rows for any split. LightGBM's own objectives make a constant of them, one's own an error.
        return lightgbm.train(parameters | {"objective": "regression"}, part, num_boost_round=trees)
    booster = lightgbm.train(parameters | {"objective": gradient}, part, num_boost_round=trees)
    # LightGBM starts an objective of one's own at 0, and keeps a start that is given out of the model.
    for leaf in range(int(booster.dump_model(num_iteration=1)["tree_info"][0]["num_leaves"])):
        booster.set_leaf_output(0, leaf, booster.get_leaf_output(0, leaf) + mean)
    return booster
