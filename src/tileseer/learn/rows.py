"""The rows of a dataset that a model may learn from, and folds: parts of its problems that share no layer."""

import hashlib
from itertools import pairwise

import numpy as np

from tileseer.core.errors import UserError
from tileseer.data.dataset import Dataset
from tileseer.facts.model import ModelSettings

LAYER_FOLDS = 5
"""Parts in which layers are left out in turn, while the others train, where no problems were set aside."""
NO_FOLD = -1
"""Fold of a problem that only trains."""


def training_pairs(dataset: Dataset) -> Dataset:
    """Return the pairs that were tried on training problems on which anything ran, by problem and candidate.

    Their order is one for every way in which the rows were stored or resumed. ``UserError`` if there are none.
    """
    solvable = (dataset.best_tflops > 0) & dataset.trains
    if not solvable.any():
        raise UserError(f"{dataset.operation}: no training problem has a measured time; nothing can be trained")
    rows = np.flatnonzero(solvable[dataset.problem])
    return dataset.only(rows[np.lexsort((dataset.candidate[rows], dataset.problem[rows]))])


def sampled(pairs: Dataset, settings: ModelSettings) -> np.ndarray:
    """Return which of ``training_pairs`` teach, bool [n]: ``rows_per_problem`` of each problem, those that ran.

    The fastest ones are half of them; the key of the problem and the seed draw the rest.
    """
    per_problem = settings.rows_per_problem
    if not per_problem:
        return pairs.ok
    keys = pairs.problems["problem_key"].to_numpy()
    keep = np.zeros(len(pairs.problem), bool)
    bounds = np.flatnonzero(np.diff(pairs.problem, prepend=-1, append=np.iinfo(np.int32).max))
    if np.diff(bounds).max(initial=0) <= per_problem:
        return pairs.ok
    for start, stop in pairwise(bounds):
        seed = [settings.seed, int(keys[pairs.problem[start]], 16)]
        priority = np.random.default_rng(seed).random(stop - start)
        priority[np.argsort(-pairs.efficiency[start:stop], kind="stable")[: per_problem // 2]] = -1.0
        keep[start + np.argsort(priority, kind="stable")[:per_problem]] = True
    return pairs.ok & keep


def deal(layer: np.ndarray, problem: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Return the fold of each problem, int [P], of those without rows ``NO_FOLD``; folds share no ``layer``, text [P].

    ``problem`` (int [n]) is the problem of each row. The layer with most rows goes first, into the fold with fewest;
    those with as many go in the order of their hash, so a fold does not depend on the order of the table.
    """
    layers, number, sizes = np.unique(layer[problem], return_inverse=True, return_counts=True)
    if len(layers) < folds:
        raise UserError(
            f"cross-validation: {folds} folds (model.folds) need as many layers with times, and there are "
            f"{len(layers)}; add problems"
        )
    digests = [hashlib.sha256(f"{seed},{name}".encode()).hexdigest() for name in layers.tolist()]
    filled, assigned = [0] * folds, np.empty(len(layers), np.int64)
    for place in sorted(range(len(layers)), key=lambda i: (-sizes[i], digests[i])):
        assigned[place] = fold = filled.index(min(filled))
        filled[fold] += int(sizes[place])
    found = np.full(len(layer), NO_FOLD)
    found[problem] = assigned[number]
    return found
