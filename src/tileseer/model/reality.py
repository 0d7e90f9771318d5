"""A model of simulated times against times that a real GPU of its target has given: how far the simulator carries."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from tileseer.dataset import bootstrap, efficiency
from tileseer.dataset.measurements import Measurements
from tileseer.model.model import Model
from tileseer.model.schema import Origin, RealityCheck, Summary
from tileseer.model.trainer import Trained

MEANING = (
    "efficiency of the model's first pick among the recorded candidates, against the fastest recorded one, in percent; "
    "the model has learnt from none of these times"
)


def checked(trained: Trained, recorded: Sequence[Measurements], threads: int = 1) -> Trained:
    """The same model, with a check on each of several recordings in its manifest."""
    found = [check(trained.model, each, threads) for each in recorded]
    kept = [each for each in found if each is not None]
    return replace(trained, manifest=trained.manifest.model_copy(update={"reality_check": kept}))


def check(model: Model, recorded: Measurements, threads: int = 1) -> RealityCheck | None:
    """Picks of ``model`` on every recorded problem with a time; None where it knows none of the candidates."""
    position = pd.Index(recorded.candidates["candidate"]).get_indexer(model.pool["candidate"])
    known = position >= 0
    if not known.any():
        return None
    few = replace(model, pool=model.pool[known].reset_index(drop=True))
    achieved = efficiency.grid(recorded, np.arange(len(recorded.problems)))
    problems = np.flatnonzero(achieved.max(axis=1) > 0)
    achieved = achieved[problems]
    reached = achieved[:, position[known]]
    timed = reached > 0
    scores = np.where(timed, few.scores(recorded.problems.iloc[problems], threads), -np.inf)
    picked = np.where(timed.any(axis=1), reached[np.arange(len(problems)), scores.argmax(axis=1)], 0.0)
    return RealityCheck(
        meaning=MEANING,
        recording=Origin.of(recorded),
        source=recorded.source,
        n_problems=len(problems),
        candidates=int(known.sum()),
        efficiency=Summary.of(picked),
        interval=bootstrap.intervals(picked),
        by_chance=Summary.of(reached.sum(axis=1) / np.maximum(timed.sum(axis=1), 1)),
    )
