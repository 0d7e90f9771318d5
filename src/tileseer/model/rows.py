"""The rows of a dataset that a model is trained on or judged by."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tileseer.core.errors import UserError
from tileseer.dataset import efficiency
from tileseer.dataset.measurements import Measurements
from tileseer.settings.model import TrainingParameters


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


def of_problems(measurements: Measurements, settings: TrainingParameters, used: np.ndarray | None = None) -> Rows:
    """The pool rows of the problems ``used`` (bool [P], default: split ``train``) on which anything ran.

    ``UserError`` where there are none.
    """
    if used is None:
        used = (measurements.problems["split"] == "train").to_numpy()
    solvable = used & (efficiency.problem_best(measurements) > 0)
    if not solvable.any():
        raise UserError(f"{measurements.operation}: no training problem has a measured time; nothing can be learnt")
    # A skipped pair was not tried: who picks it out of fold has neither won nor lost.
    tried = efficiency.in_pool(measurements) & (measurements.status != efficiency.SKIPPED)
    wanted = np.flatnonzero(solvable[measurements.problem] & tried)
    # One order for every way in which the rows were stored or resumed.
    wanted = wanted[np.lexsort((measurements.candidate[wanted], measurements.problem[wanted]))]
    ok = measurements.status[wanted] == efficiency.OK
    rows = Rows(
        measurements.problem[wanted],
        measurements.candidate[wanted],
        efficiency.by_row(measurements)[wanted],
        np.where(ok, measurements.tflops[wanted], np.nan),
        ok,
    )
    keys = measurements.problems["problem_key"].to_numpy()
    return fewer(rows, keys, settings.rows_per_problem, settings.top_rows, settings.seed)


def fewer(rows: Rows, keys: np.ndarray, per_problem: int, fastest: int, seed: int) -> Rows:
    """The same rows, of which ``per_problem`` of each problem (0: all) may learn, the ``fastest`` first.

    ``keys`` is the key of each problem: it and the seed draw the rest.
    """
    if not per_problem:
        return rows
    keep = np.zeros(len(rows.problem), bool)
    bounds = np.flatnonzero(np.diff(rows.problem, prepend=-1, append=np.iinfo(np.int32).max))
    for start, stop in pairwise(bounds):
        priority = np.random.default_rng([seed, int(keys[rows.problem[start]], 16)]).random(stop - start)
        priority[np.argsort(-rows.efficiency[start:stop], kind="stable")[:fastest]] = -1.0
        keep[start + np.argsort(priority, kind="stable")[:per_problem]] = True
    return replace(rows, learn=rows.learn & keep)
