"""What a model is worth on times of a later release: one of earlier times of the same GPU, judged on the new ones."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tileseer.core.documents import Document
from tileseer.dataset.dataset import Dataset
from tileseer.dataset.provenance import Taken
from tileseer.learn import efficiency
from tileseer.learn.learner import Recipe
from tileseer.learn.left_out import left_out
from tileseer.learn.model_schema import Summary

NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


class Drift(Document):
    """Models of earlier times on layers left out, and their picks on the times of both; shares in percent."""

    earlier: Taken | None = None
    """With what the earlier times were taken."""
    layers: int
    """With a candidate that both have timed."""
    time_ratio: float
    """Median of an earlier time over the new one of the same candidate and problem."""
    spread: float
    """Standard deviation of the logarithm of that ratio within a candidate, robust: what timing again changes beside
    what changed for all."""
    same_fastest: float
    """Share of the layers whose fastest candidate was the fastest before, of those that both have."""
    fastest_before: Summary
    """Of the candidate that was the fastest before."""
    before: Summary
    """Of the first pick, on the earlier times."""
    first: Summary
    """Of the first pick, on the new times: without ``tune``."""
    best_of_2: Summary
    """Of the faster of the first two, timed again: with ``tune``."""
    best_of_3: Summary


def drift_of(dataset: Dataset, earlier: Dataset, recipe: Recipe) -> Drift | None:
    """Judge models of ``earlier`` times on those of ``dataset``; None if no pair was timed in both."""
    scored = left_out(earlier, recipe)
    pairs = _pairs(earlier).merge(_pairs(dataset), on=["problem", "candidate"], suffixes=("_before", ""))
    row = pd.Index(scored.problems["problem_key"]).get_indexer(pairs["problem"])
    column = pd.Index(earlier.candidates["candidate"]).get_indexer(pairs["candidate"])
    pairs = pairs.assign(score=scored.scores[row, column])[row >= 0]
    if pairs.empty:
        return None
    ratio = np.log(pairs["ms_before"] / pairs["ms"])
    from_median = ratio - ratio.groupby(pairs["candidate"]).transform("median")
    before, now = (pairs.loc[pairs.groupby("problem")[name].idxmin()] for name in ("ms_before", "ms"))
    ranked = pairs.sort_values(["problem", "score"], ascending=[True, False]).groupby("problem")["efficiency"]
    of_first = [ranked.head(count).groupby(pairs["problem"]).max().to_numpy() for count in (1, 2, 3)]
    return Drift(
        earlier=earlier.taken,
        layers=len(now),
        time_ratio=round(float(np.exp(ratio.median())), 4),
        spread=round(NORMAL * float(from_median.abs().median()), 4),
        same_fastest=efficiency.percent((before["candidate"].to_numpy() == now["candidate"].to_numpy()).mean()),
        fastest_before=Summary.of(before["efficiency"].to_numpy()),
        before=Summary.of(scored.picked),
        first=Summary.of(of_first[0]),
        best_of_2=Summary.of(of_first[1]),
        best_of_3=Summary.of(of_first[2]),
    )


def _pairs(dataset: Dataset) -> pd.DataFrame:
    """Return the timed pairs of a dataset: keys of problems, names of candidates, milliseconds, efficiency (0..1)."""
    ok = dataset.ok
    return pd.DataFrame(
        {
            "problem": dataset.problems["problem_key"].to_numpy()[dataset.problem[ok]],
            "candidate": dataset.candidates["candidate"].to_numpy()[dataset.candidate[ok]],
            "ms": dataset.latency_ms[ok],
            "efficiency": dataset.efficiency[ok],
        }
    )
