"""Choosing without a model: one kernel, a fixed order of them, a random one, and a rule that an engineer writes."""

from typing import Any

import numpy as np

from tileseer.dataset.dataset import Dataset
from tileseer.gpus.hardware import Hardware
from tileseer.kernels.libraries import library_of_kernels
from tileseer.learn import own_choice
from tileseer.learn.features import Features
from tileseer.learn.model_schema import Summary
from tileseer.learn.ranking import Scored, figures
from tileseer.learn.validation_report import Baseline, Selectors

BEST_SINGLE = "the candidate with the best mean efficiency on the training problems, one a dimensionality"
ONE_A_FOLD = f"{BEST_SINGLE} and fold"
FIXED_ORDER = (
    "the first candidate of a fixed order that can run the problem: that with the best mean efficiency on the training "
    "problems, then the best on those that it cannot run, and so on; one order a dimensionality"
)
RANDOM = "expectation over the supported candidates of each problem"
OWN_CHOICE = "the first candidate that runs in the order of the library that offers them"
HAND_RULE = "largest tile reuse times tile fill times compute units kept busy, then the widest vectors"


def score_baselines(scored: Scored, hardware: Hardware, noise_floor: Selectors[Summary]) -> dict[str, Baseline]:
    """Efficiency of each baseline on the scored problems."""
    supported = scored.offered
    possible = np.where(scored.pool, scored.achieved, 0.0)
    everything = np.arange(len(scored.rows))
    folds, fold = np.unique(scored.fold[scored.rows], return_inverse=True)
    singles, names = zip(*(_best_single(scored.dataset, scored.fold != f) for f in folds), strict=True)
    fixed = np.stack(singles)[fold, scored.problems["ndim"].to_numpy()]
    single = {"candidates": names[0]} if len(folds) == 1 else {}
    orders = [_fixed_order(scored.dataset, supported, scored.fold != f) for f in folds]
    first = np.full(len(scored.rows), -1)
    for row, (of_fold, ndim) in enumerate(zip(fold, scored.problems["ndim"], strict=True)):
        first[row] = next((one for one in orders[of_fold].get(ndim, []) if scored.pool[row, one]), -1)
    expected = possible.sum(axis=1) / np.maximum(scored.pool.sum(axis=1), 1)

    def baseline(meaning: str, values: np.ndarray, **more: Any) -> Baseline:
        return Baseline(meaning=meaning, **more, **figures(values), noise_floor=noise_floor)

    table = {
        "best_single_kernel": baseline(BEST_SINGLE if single else ONE_A_FOLD, possible[everything, fixed], **single),
        "fixed_order": baseline(FIXED_ORDER, np.where(first >= 0, possible[everything, first], 0.0)),
        "random_supported": baseline(RANDOM, expected),
    }
    own = own_choice.library_choices(scored.dataset)
    if own is not None:
        table["own_choice"] = baseline(OWN_CHOICE, scored.achieved[everything, own[scored.rows]])
    # Of a solver that picks its own kernels, no tile is known.
    if "tile_m" in scored.dataset.candidates:
        rule = hand_rule(scored.dataset, scored.rows, hardware)
        ruled = np.argmax(np.where(scored.pool, rule, -np.inf), axis=1)
        table["hand_rule"] = baseline(HAND_RULE, possible[everything, ruled])
    return table


def _best_single(dataset: Dataset, used: np.ndarray) -> tuple[np.ndarray, dict[str, str]]:
    """Candidate row by ndim ([ndim] -> row), and its names, chosen on the problems ``used`` (bool [P]) alone.

    What did not run counts 0.
    """
    problems = dataset.problems
    training = np.flatnonzero(used & (dataset.best_tflops > 0))
    achieved = dataset.grid(training)
    chosen = np.zeros(4, np.int64)
    names = {}
    dimensions = problems["ndim"].to_numpy()[training]
    for ndim in sorted(set(dimensions)):
        part = dimensions == ndim
        chosen[ndim] = int(np.argmax(achieved[part].mean(axis=0)))
        names[f"{ndim}d"] = str(dataset.candidates["candidate"].iloc[chosen[ndim]])
    return chosen, names


def _fixed_order(dataset: Dataset, supported: np.ndarray, used: np.ndarray) -> dict[int, list[int]]:
    """Candidate rows in order of preference, by ndim, chosen on the problems ``used`` (bool [P]) alone."""
    training = np.flatnonzero(used & (dataset.best_tflops > 0))
    achieved, able = dataset.grid(training), supported[training]
    dimensions = dataset.problems["ndim"].to_numpy()[training]
    orders: dict[int, list[int]] = {}
    for ndim in sorted(set(dimensions.tolist())):
        order = orders[ndim] = []
        left = dimensions == ndim
        while (total := np.where(able[left], achieved[left], 0.0).sum(axis=0)).any():
            order.append(int(total.argmax()))
            left = left & ~able[:, order[-1]]
    return orders


def hand_rule(dataset: Dataset, rows: np.ndarray, hardware: Hardware) -> np.ndarray:
    """Score of the hand rule, float64 [R, Q]; higher is better.

    The most reuse (tile_m tile_n / (tile_m + tile_n)) that the shape can fill, times the share of compute units with
    a block; of equals, the widest vectors. It knows nothing of pipelines and of times.
    """
    candidates = dataset.candidates
    shape = (len(rows), len(candidates))
    problem, candidate = (index.ravel() for index in np.indices(shape))
    names = ("tile_intensity", "fill_m", "fill_n", "fill_k", "blocks_per_cu")
    chosen = library_of_kernels(candidates["kernel"].tolist()).feature_set
    problems = dataset.problems.iloc[rows]
    table = Features.of(chosen, hardware, names).matrix(problems, candidates, problem, candidate).astype(np.float64)
    score = table[:, :4].prod(axis=1) * np.minimum(table[:, 4], 1.0)
    vectors = candidates[["vec_a", "vec_b", "vec_c"]].sum(axis=1).to_numpy()
    return score.reshape(shape) * (1 + 1e-3 * vectors)
