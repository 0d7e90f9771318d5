"""Sets of candidates that hold a near-best one with a chosen confidence, by conformal prediction for new groups.

A model that has not seen a training problem's layer family says how far below its pick the first candidate stands that
is near the best (``gap``, in ``model.units`` of the problem). A set of all candidates within a depth holds a near-best
one of the problems whose gap is at most that depth.

Layers of one network are alike, and the question is about a layer of a new network. So groups are
exchangeable, not problems: families of networks where there are enough of them, else layer families. Each of n groups
has the weight 1 / (n + 1), shared by its problems, and the new one has the rest, with a gap that may be anything
(conformal prediction for two-layer hierarchical models). The gaps are of cross-validation's models, which are weaker
than the published one, so sets are rather too large; the coverage is measured and published beside the promise.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.core import documents
from tileseer.core.errors import UserError
from tileseer.dataset import efficiency
from tileseer.learn import model_files
from tileseer.learn.model import units
from tileseer.serve.selector import Ranked
from tileseer.serve.serving_files import Coverage, Gaps, Serving

LEAST = 20
"""Groups that it takes: n of them promise n / (n + 1) at most."""
EVERY = "all"
SHOWN = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Confidences whose coverage is published."""


def groups_of(problems: pd.DataFrame, networks: Mapping[str, str]) -> pd.DataFrame:
    """``problem_key`` and ``group`` of the problems to calibrate on; ``networks``: the family of each network.

    Layers of known networks in groups of a family, if there are enough families; else all problems, by layer family.
    """
    family = problems["network"].map(networks)
    if family.nunique() < LEAST:
        return pd.DataFrame({"problem_key": problems["problem_key"], "group": problems["layer_family"]})
    known = family.notna()
    return pd.DataFrame({"problem_key": problems["problem_key"][known], "group": family[known]})


def calibrate_gaps(gaps: pd.DataFrame) -> dict[str, Gaps]:
    """The calibration from columns ``gap``, ``ndim`` and ``group`` of training problems."""
    parts = {f"{ndim}d": part for ndim, part in gaps.groupby("ndim") if part["group"].nunique() >= LEAST}
    return {name: _weighted(part) for name, part in {**parts, EVERY: gaps}.items()}


def _weighted(part: pd.DataFrame) -> Gaps:
    ordered = part.sort_values(["gap", "group"], kind="stable")
    size = ordered.groupby("group")["gap"].transform("size").to_numpy()
    share = np.cumsum(1.0 / (size * (ordered["group"].nunique() + 1)))
    # Rounded, so that 4 of 5 equal weights are 0.8 and not a little less.
    return Gaps(gap=[float(gap) for gap in ordered["gap"]], share=[round(float(s), 12) for s in share])


def threshold(gaps: Mapping[str, Gaps], ndim: int, confidence: float) -> float:
    """Depth below the best score down to which candidates are in the set, in units of the problem.

    Infinite where the gaps cannot promise that much.
    """
    own = gaps.get(f"{ndim}d", gaps[EVERY])
    at = int(np.searchsorted(own.share, confidence))
    return own.gap[at] if at < len(own.gap) else math.inf


def level(confidence: float, groups: int) -> float:
    """The share of the weight that the calibration has to cover for ``confidence``: one standard error more.

    The share of ``groups`` has that error; without it, half of all calibrations would promise too much.
    """
    return min(confidence + math.sqrt(confidence * (1 - confidence) / groups), 1.0)


def near_best_set(ranked: Sequence[Ranked], ndim: int, confidence: float, folder: Path) -> list[Ranked]:
    """The head of a ranking: the smallest set that holds a near-best candidate with ``confidence``.

    All of it where the calibration of the operation's published ``folder`` cannot promise that.
    """
    if not 0 < confidence < 1:
        raise UserError(f"confidence is {confidence}; it must lie between 0 and 1")
    calibration = documents.read_document(folder / model_files.SERVING, Serving).guarantee
    score = np.array([row["score"] for row in ranked])
    unit = units(np.zeros(len(score), np.int64), score)[0] if ranked else 1.0
    depth = unit * threshold(calibration.gaps, ndim, level(confidence, calibration.groups))
    return [row for row in ranked if row["score"] >= score.max() - depth]


def coverage(
    gaps: Mapping[str, Gaps], groups: int, ndim: np.ndarray, group: np.ndarray, scores: np.ndarray,
    achieved: np.ndarray, near: float,
) -> list[Coverage]:  # fmt: skip
    """Coverage of the sets of n problems, one entry a confidence of ``SHOWN``; shares in percent.

    ``groups`` calibrated the ``gaps``. ``scores`` [n, Q] are -inf where a candidate cannot run, ``achieved`` [n, Q] is
    the measured efficiency.
    ``coverage_by_group`` is the mean over ``group`` [n] of each one's share, which is what is promised.
    """
    runs = np.isfinite(scores)
    top = np.where(runs.any(axis=1), scores.max(axis=1), 0.0)
    unit = np.ones(len(scores))
    problem, candidate = np.nonzero(runs)
    unit[np.unique(problem)] = units(problem, scores[problem, candidate])
    entries = []
    for confidence in SHOWN:
        depth = np.array([threshold(gaps, n, level(confidence, groups)) for n in ndim])
        offered = runs & (scores >= (top - depth * unit)[:, None])
        sizes = offered.sum(axis=1)
        holds = pd.Series((offered & (achieved >= near)).any(axis=1))
        entries.append(
            Coverage(
                confidence=efficiency.percent(confidence),
                coverage=efficiency.percent(holds.mean()),
                coverage_by_group=efficiency.percent(holds.groupby(group).mean().mean()),
                mean_set_size=round(float(sizes.mean()), 2),
                median_set_size=float(np.median(sizes)),
                largest_set_size=int(sizes.max()),
            )
        )
    return entries
