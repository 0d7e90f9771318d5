"""A model of simulated times against times that a real GPU of its target has given: how far the simulator carries."""

import numpy as np

from tileseer.dataset import bootstrap
from tileseer.dataset.dataset import Dataset
from tileseer.learn.model import Model
from tileseer.learn.model_schema import Origin, RealityCheck, Summary

MEANING = (
    "efficiency of the model's first pick among the recorded candidates, against the fastest recorded one, in percent; "
    "the model has learnt from none of these times"
)


def check(model: Model, recorded: Dataset, threads: int = 1) -> RealityCheck | None:
    """Picks of ``model`` on every recorded problem with a time; None where it knows none of the candidates."""
    common = model.pool["candidate"].isin(recorded.candidates["candidate"]).to_numpy()
    if not common.any():
        return None
    problems = np.flatnonzero(recorded.best_tflops > 0)
    reached = recorded.grid(problems)[:, recorded.candidates["candidate"].isin(model.pool["candidate"])]
    candidates = recorded.candidates[recorded.candidates["candidate"].isin(model.pool["candidate"])]
    timed = reached > 0
    scores = model.with_pool(common).predict(recorded.problems.iloc[problems], candidates, threads)
    pick = np.where(timed, scores, -np.inf).argmax(axis=1)
    picked = np.where(timed.any(axis=1), reached[np.arange(len(problems)), pick], 0.0)
    return RealityCheck(
        meaning=MEANING,
        recording=Origin.of(recorded),
        source=recorded.source,
        n_problems=len(problems),
        candidates=int(common.sum()),
        efficiency=Summary.of(picked),
        interval=bootstrap.intervals(picked),
        by_chance=Summary.of(reached.sum(axis=1) / np.maximum(timed.sum(axis=1), 1)),
    )
