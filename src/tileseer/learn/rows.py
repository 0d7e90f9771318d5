"""The rows of a dataset that a model may learn from."""

from itertools import pairwise

import numpy as np

from tileseer.core.errors import UserError
from tileseer.data.dataset import Dataset
from tileseer.facts.model import TrainingParameters


def training_pairs(dataset: Dataset) -> Dataset:
    """Return the pairs that were tried on training problems on which anything ran, by problem and candidate.

    Their order is one for every way in which the rows were stored or resumed. ``UserError`` if there are none.
    """
    solvable = (dataset.best_tflops > 0) & dataset.trains
    if not solvable.any():
        raise UserError(f"{dataset.operation}: no training problem has a measured time; nothing can be trained")
    rows = np.flatnonzero(solvable[dataset.problem])
    return dataset.only(rows[np.lexsort((dataset.candidate[rows], dataset.problem[rows]))])


def sampled(pairs: Dataset, settings: TrainingParameters) -> np.ndarray:
    """Return which of ``training_pairs`` teach, bool [n]: ``rows_per_problem`` of each problem, those that ran.

    The fastest ones are half of them; the key of the problem and the seed draw the rest.
    """
    per_problem = settings.rows_per_problem
    if not per_problem:
        return pairs.ok
    keys = pairs.problems["problem_key"].to_numpy()
    keep = np.zeros(len(pairs.problem), bool)
    bounds = np.flatnonzero(np.diff(pairs.problem, prepend=-1, append=np.iinfo(np.int32).max))
    for start, stop in pairwise(bounds):
        seed = [settings.seed, int(keys[pairs.problem[start]], 16)]
        priority = np.random.default_rng(seed).random(stop - start)
        priority[np.argsort(-pairs.efficiency[start:stop], kind="stable")[: per_problem // 2]] = -1.0
        keep[start + np.argsort(priority, kind="stable")[:per_problem]] = True
    return pairs.ok & keep
