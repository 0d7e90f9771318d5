"""What a model is worth on times of a later release: one of earlier times of the same GPU, judged on the new ones."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tileseer.core.documents import Document
from tileseer.data.dataset import Dataset
from tileseer.data.provenance import Taken
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
    scored, pairs = left_out(earlier, recipe), pairs_of_both(earlier, dataset)
    place = pd.Index(scored.rows).get_indexer(pairs["row_before"])
    pairs = pairs.assign(place=place, score=scored.scores[place, pairs["column_before"]])[place >= 0]
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
        before=Summary.of(scored.picked[pairs["place"].unique()]),
        first=Summary.of(of_first[0]),
        best_of_2=Summary.of(of_first[1]),
        best_of_3=Summary.of(of_first[2]),
    )


def pairs_of_both(earlier: Dataset, later: Dataset) -> pd.DataFrame:
    """Return the pairs that both have timed: ``problem`` (key), ``candidate`` (name), and of each dataset the ``row``
    of the problem, the ``column`` of the candidate, ``ms`` and ``efficiency`` (0..1); ``_before`` are the earlier ones.
    """
    return _timed(earlier).merge(_timed(later), on=["problem", "candidate"], suffixes=("_before", ""))


def _timed(dataset: Dataset) -> pd.DataFrame:
    row, column = dataset.problem[dataset.ok], dataset.candidate[dataset.ok]
    return pd.DataFrame(
        {
            "problem": dataset.problems["problem_key"].to_numpy()[row],
            "candidate": dataset.candidates["candidate"].to_numpy()[column],
            "row": row,
            "column": column,
            "ms": dataset.latency_ms[dataset.ok],
            "efficiency": dataset.efficiency[dataset.ok],
        }
    )
