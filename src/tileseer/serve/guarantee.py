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

from collections.abc import Mapping

import numpy as np
import pandas as pd

from tileseer.learn import cross_validation, efficiency
from tileseer.learn.model import units
from tileseer.serve.selector import EVERY_NDIM, level, threshold
from tileseer.serve.serving_files import Coverage, Gaps, Guarantee

LEAST = 20
"""Groups that it takes: n of them promise n / (n + 1) at most."""
SHOWN = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Confidences whose coverage is published."""


def make_guarantee(
    problems: pd.DataFrame,
    unseen: np.ndarray,
    out_of_fold: pd.DataFrame,
    networks: Mapping[str, str],
    pairs: tuple[np.ndarray, np.ndarray],
) -> Guarantee:
    """Calibration of ``select --confidence`` on the picks ``out_of_fold``, and its coverage.

    ``networks``: the family of each. ``unseen``: rows of the validation ``problems``. ``pairs``: scores and measured
    efficiency, [P, Q] each.
    """
    groups = groups_of(problems[problems["split"] == "train"], networks)
    calibrating = out_of_fold[["problem_key", "ndim", "gap"]].merge(groups, on="problem_key")
    gaps, count = calibrate_gaps(calibrating), int(calibrating["group"].nunique())
    judged = problems.iloc[unseen]
    judged = judged.assign(group=judged["network"].map(lambda name: networks.get(name, name)))
    return Guarantee(
        meaning="the set holds a candidate with at least `near` of the best efficiency; `gaps` are those of "
        "training problems with the share of the weight up to each, all groups weighing the same; `validation` is what "
        "the sets reach on networks that no model has seen, in percent, over problems and over families of networks",
        near=cross_validation.NEAR,
        groups=count,
        gaps=gaps,
        validation=coverage(gaps, count, judged, *(part[unseen] for part in pairs)) if len(unseen) else [],
    )


def groups_of(problems: pd.DataFrame, networks: Mapping[str, str]) -> pd.DataFrame:
    """``problem_key`` and ``group`` of the problems to calibrate on; ``networks``: the family of each network.

    Layers of known networks in groups of a family, if there are enough families; else all problems, by layer family.
    """
    family = problems["network"].map(networks)
    if family.nunique() < LEAST:
        return pd.DataFrame({"problem_key": problems["problem_key"], "group": problems["layer_family"]})
    of_network = family.notna()
    return pd.DataFrame({"problem_key": problems["problem_key"][of_network], "group": family[of_network]})


def calibrate_gaps(gaps: pd.DataFrame) -> dict[str, Gaps]:
    """The calibration from columns ``gap``, ``ndim`` and ``group`` of training problems."""
    parts = {f"{ndim}d": part for ndim, part in gaps.groupby("ndim") if part["group"].nunique() >= LEAST}
    return {name: _weighted(part) for name, part in {**parts, EVERY_NDIM: gaps}.items()}


def _weighted(part: pd.DataFrame) -> Gaps:
    ordered = part.sort_values(["gap", "group"], kind="stable")
    size = ordered.groupby("group")["gap"].transform("size").to_numpy()
    share = np.cumsum(1.0 / (size * (ordered["group"].nunique() + 1)))
    # Rounded, so that 4 of 5 equal weights are 0.8 and not a little less.
    return Gaps(gap=[float(gap) for gap in ordered["gap"]], share=[round(float(s), 12) for s in share])


def coverage(
    gaps: Mapping[str, Gaps], groups: int, problems: pd.DataFrame, scores: np.ndarray, achieved: np.ndarray
) -> list[Coverage]:
    """Coverage of the sets of n problems (columns ``ndim``, ``group``), one entry a confidence of ``SHOWN``.

    ``groups`` calibrated the ``gaps``. ``scores`` [n, Q] are -inf where a candidate cannot run, ``achieved`` [n, Q] is
    the measured efficiency.
    """
    runs = np.isfinite(scores)
    top = np.where(runs.any(axis=1), scores.max(axis=1), 0.0)
    unit = np.ones(len(scores))
    problem, candidate = np.nonzero(runs)
    unit[np.unique(problem)] = units(problem, scores[problem, candidate])
    entries = []
    for confidence in SHOWN:
        depth = np.array([threshold(gaps, ndim, level(confidence, groups)) for ndim in problems["ndim"]])
        offered = runs & (scores >= (top - depth * unit)[:, None])
        sizes = offered.sum(axis=1)
        holds = pd.Series((offered & (achieved >= cross_validation.NEAR)).any(axis=1))
        entries.append(
            Coverage(
                confidence=efficiency.percent(confidence),
                coverage=efficiency.percent(holds.mean()),
                coverage_by_group=efficiency.percent(holds.groupby(problems["group"].to_numpy()).mean().mean()),
                mean_set_size=round(float(sizes.mean()), 2),
                median_set_size=float(np.median(sizes)),
                largest_set_size=int(sizes.max()),
            )
        )
    return entries
