"""Choosing without a model: a fixed order of kernels, a random one, an engineer's rule, a library's choice."""

import numpy as np

from tileseer.core.errors import UserError
from tileseer.data.dataset import Dataset
from tileseer.facts.hardware import Hardware
from tileseer.judge.ranking import Scored
from tileseer.learn import own_choice
from tileseer.learn.features import Features
from tileseer.libraries.registry import library_of_kernels

MEANINGS = {
    "fixed_order": "the first candidate of a fixed order that can run the problem: that with the best mean efficiency "
    "on the training problems, then the best on those that it cannot run, and so on; one order a dimensionality",
    "random_supported": "expectation over the supported candidates of each problem",
    "hand_rule": "largest tile reuse times tile fill times compute units kept busy, then the widest vectors",
    "own_choice": "the first candidate that runs in the order of the library that offers them",
}


def score_baselines(scored: Scored, gpu: Hardware) -> dict[str, np.ndarray]:
    """Return the efficiency of each baseline of ``MEANINGS`` on the scored problems, [R] by name.

    Of layers that are left out in turn, each fold has an order of its own.
    """
    possible = np.where(scored.pool, scored.achieved, 0.0)
    every = np.arange(len(scored.rows))
    if not scored.dataset.trains.any():
        raise UserError(
            f"{scored.dataset.operation}: the dataset has no problem with split train; the baselines are chosen on "
            "them, give the dataset that the model was trained on"
        )
    first = own_choice.in_fixed_order(scored.dataset, scored.rows, scored.fold, scored.offered)
    table = {
        "fixed_order": np.where(first >= 0, possible[every, first], 0.0),
        "random_supported": possible.sum(axis=1) / np.maximum(scored.pool.sum(axis=1), 1),
    }
    # Of a solver that picks its own kernels, no tile is known.
    if "tile_m" in scored.dataset.candidates:
        rule = hand_rule(scored.dataset, scored.rows, gpu)
        table["hand_rule"] = possible[every, np.argmax(np.where(scored.pool, rule, -np.inf), axis=1)]
    return table if scored.own is None else table | {"own_choice": scored.achieved[every, scored.own]}


def hand_rule(dataset: Dataset, rows: np.ndarray, gpu: Hardware) -> np.ndarray:
    """Return the score of the rule that an engineer would write, float64 [R, Q]; higher is better.

    The most reuse (tile_m tile_n / (tile_m + tile_n)) that the shape can fill, times the share of compute units with
    a block; of equals, the widest vectors. It knows nothing of pipelines and of times.
    """
    candidates = dataset.candidates
    shape = (len(rows), len(candidates))
    problem, candidate = (index.ravel() for index in np.indices(shape))
    names = ("tile_intensity", "fill_m", "fill_n", "fill_k", "blocks_per_cu")
    chosen = library_of_kernels(candidates["kernel"].tolist()).feature_set
    problems = dataset.problems.iloc[rows]
    table = Features.of(chosen, gpu, names).matrix(problems, candidates, problem, candidate).astype(np.float64)
    score = table[:, :4].prod(axis=1) * np.minimum(table[:, 4], 1.0)
    vectors = candidates[["vec_a", "vec_b", "vec_c"]].sum(axis=1).to_numpy()
    return np.asarray(score.reshape(shape) * (1 + 1e-3 * vectors))
