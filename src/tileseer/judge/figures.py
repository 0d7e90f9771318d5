"""The figures of any group of judged layers (``layers.LAYERS``), in percent with four decimals."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from tileseer.core import exact
from tileseer.core.documents import Document
from tileseer.judge import baselines
from tileseer.judge.layers import libraries_of
from tileseer.learn.evidence import MOST_LOSS
from tileseer.learn.model_schema import Summary, percent
from tileseer.learn.own_choice import EFFICIENCY_OF_A_FAILED_PICK, LOSS

SLOWER = 1.02
"""A pick that takes so much longer than another library's choice is slower than it."""
AS_GOOD_AS_BEST = 0.98
"""A pick this close to the best is as good as it: single timings do not tell them apart."""
LONGEST = 10
"""Layers on which no pick should be bad: most of the time is lost in so few."""
LEVEL = 95
"""Percent of the resampled figures that an interval holds."""
RESAMPLED_FIGURES = 2000
SEED = 1
_VALUES_AT_A_TIME = 1 << 22
"""Values resampled at a time, which bounds the memory."""
Interval = list[float]
"""Lower and upper end."""


class Figures(Document):
    """The picks of some layers; efficiencies and shares in percent."""

    layers: int
    """With a measured candidate: the efficiencies are of these."""
    without_candidate: int
    """Layers that no candidate ran, or that the model leaves to a library whose own choice was wrong: no efficiency
    includes them."""
    failed: int
    """Layers whose pick did not run: its efficiency is 0."""
    covered_time: float
    """Share of the time of all layers in those with a candidate. Where nothing was measured, the time is estimated by
    the roofline."""
    time_us: float
    """Of the fastest candidates, with all uses of the layers."""
    efficiency: Summary
    """Of the pick."""
    best_of_2: Summary
    """Of the fastest of the short list (``Selector.shortlist``) of two, each timed without error."""
    best_of_3: Summary
    possible: Summary | None
    """The best possible figures of untimed picks; none below what the picks reached with a little luck. None where
    nobody knows how much times differ from run to run."""
    within_2_percent: float
    """Share of the picks that are as good as the best."""
    by_time: float
    """Time of the fastest candidates over the time of the picks that ran, with all uses of the layers."""
    sum_over_best: float
    """Time of the picks over that of the fastest candidates, with all uses. A layer counts ``MOST_LOSS`` times its
    fastest at most, also if its pick did not run; so it does in what follows."""
    sum_possible: float | None
    """The least possible such sum of untimed picks; None as for ``possible``."""
    sum_without_model: float
    """The same of what runs without the model: the library's own choice, or else the first of a fixed order."""
    lost_in_longest: float
    """Share of the time that is lost in the ``LONGEST`` layers that take most time, percent."""
    worst_of_longest: float
    """Time of the worst pick of these over that of the fastest."""
    harmed: float
    """Share of the picks that take 2 % longer than what runs without the model, percent."""
    harm_factor: float
    """Time of those picks over that of what runs without the model; 1 where there are none."""


class Harm(Document):
    """The picks of some layers beside what the library would run there without a model."""

    layers: int
    replaced: float
    """Share of the layers whose pick is another, percent."""
    gained: float | None
    """Share of the room between the own choice and the fastest candidate, in logarithms of time, percent."""
    slower: float
    """Share of the picks that take 2 % longer, percent."""
    slowest: float
    """Time of the worst pick over that of the own choice."""


class LibraryComparison(Document):
    """The picks beside what another library chooses, on the layers that have both times."""

    library: str
    layers: int
    speed: float
    """Geometric mean of the library's time over that of the pick: above 1 the picks are faster."""
    slower: float
    """Share of the picks that take 2 % longer than the library, percent."""


class Baseline(Document):
    """Choosing without a model (``baselines.MEANINGS``)."""

    efficiency: Summary
    speed: float
    """Geometric mean of its time over that of the pick, on the layers that both run; 0 where there are none."""


def figures(layers: pd.DataFrame) -> Figures:
    """Return the figures of a group of rows."""
    # Tables of several operations have rows of one number.
    ran = layers[layers["best_us"].notna()].reset_index(drop=True)
    best = ran["uses"] * ran["best_us"]
    covered, uncovered = best.sum(), (layers["uses"] * layers["estimated_us"]).sum()
    picked, known = Summary.of(ran["efficiency"].to_numpy()), ran["possible"].notna()
    possible = Summary.of(ran["possible"][known].to_numpy()) if known.any() else None
    taken, alone = _time_of(ran, ran["efficiency"]), _time_of(ran, ran["own_choice"].fillna(ran["fixed_order"]))
    longest, harmed = longest_layers(ran).index, taken > alone * (1 + LOSS)
    over_best = round(_ratio(taken.sum(), covered) or 1.0, 4)
    least = round(_ratio(_time_of(ran, ran["possible"])[known].sum(), best[known].sum()) or 1.0, 4)
    return Figures(
        layers=len(ran),
        without_candidate=len(layers) - len(ran),
        failed=int(ran["pick_us"].isna().sum()),
        covered_time=percent(_ratio(covered, covered + uncovered)),
        time_us=round(float(covered), 3),
        efficiency=picked,
        best_of_2=Summary.of(ran["efficiency_of_2"].to_numpy()),
        best_of_3=Summary.of(ran["efficiency_of_3"].to_numpy()),
        possible=possible and Summary(**{name: max(value, getattr(picked, name)) for name, value in possible}),
        within_2_percent=percent((ran["efficiency"] >= AS_GOOD_AS_BEST).mean() if len(ran) else 0.0),
        by_time=percent(_ratio(best[ran["pick_us"].notna()].sum(), (ran["uses"] * ran["pick_us"]).sum())),
        sum_over_best=over_best,
        sum_possible=min(least, over_best) if possible else None,
        sum_without_model=round(_ratio(alone.sum(), covered) or 1.0, 4),
        lost_in_longest=percent(_ratio((taken - best)[longest].sum(), (taken - best).sum())),
        worst_of_longest=round(1 / max(ran["efficiency"][longest].min(), 1 / MOST_LOSS), 4) if len(longest) else 1.0,
        harmed=percent(harmed.mean() if len(ran) else 0.0),
        harm_factor=round(_ratio(taken[harmed].sum(), alone[harmed].sum()) or 1.0, 4),
    )


def longest_layers(layers: pd.DataFrame) -> pd.DataFrame:
    """Return the ``LONGEST`` rows that take most time with their picks and all their uses, the longest first."""
    ran = layers[layers["best_us"].notna()]
    taken = _time_of(ran, ran["efficiency"])
    return layers.loc[taken.sort_values(ascending=False, kind="stable").index[:LONGEST]]


def _time_of(ran: pd.DataFrame, efficiency: pd.Series) -> pd.Series:
    """Return the time of candidates with these efficiencies, with all uses of the layers."""
    return ran["uses"] * ran["best_us"] / efficiency.clip(lower=1 / MOST_LOSS)


def groups(layers: pd.DataFrame, column: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the layers with each text of a column, in the order of the texts; no group that nothing ran on."""
    for name, rows in layers.groupby(column, sort=True):
        if name and rows["best_us"].notna().any():
            yield str(name), rows


def harm(layers: pd.DataFrame) -> Harm | None:
    """Return the harm of the picks of a group of rows; None where no library offers the candidates."""
    rows = layers[layers["own_us"].notna()]
    if rows.empty:
        return None
    own = (rows["best_us"] / rows["own_us"]).to_numpy()
    gain = exact.log(np.maximum(rows["efficiency"].to_numpy(), EFFICIENCY_OF_A_FAILED_PICK) / own)
    room = -exact.log(own).sum()
    return Harm(
        layers=len(rows),
        replaced=percent((rows["pick"] != rows["own"]).mean()),
        gained=percent(gain.sum() / room) if room > 0 else None,
        slower=percent((gain < -exact.log(1 + LOSS)).mean()),
        slowest=round(float(exact.exp(-gain.min())), 4),
    )


def beside_libraries(layers: pd.DataFrame) -> list[LibraryComparison]:
    """Return the picks beside each other library that has a time of one of the layers."""
    found = []
    for library, column in libraries_of(layers).items():
        both = layers[[column, "pick_us"]].dropna()
        if len(both):
            theirs, taken = both[column].to_numpy(), both["pick_us"].to_numpy()
            slower = percent((theirs / taken <= 1 / SLOWER).mean())
            found.append(
                LibraryComparison(library=library, layers=len(both), speed=_speed(theirs, taken), slower=slower)
            )
    return found


def without_model(layers: pd.DataFrame) -> dict[str, Baseline]:
    """Return the choices without a model that the layers have."""
    ran = layers[layers["best_us"].notna()]
    picked = ran["efficiency"].to_numpy()
    known = {name: ran[name].to_numpy() for name in baselines.MEANINGS if ran[name].notna().any()}
    return {name: Baseline(efficiency=Summary.of(own), speed=_speed(picked, own)) for name, own in known.items()}


def interval_of_mean(values: np.ndarray) -> Interval:
    """Return [low, high] of the mean of values (0..1, [n]), in percent.

    The percentile bootstrap over problems: the same values in the same order give the same interval.
    """
    draw = np.random.default_rng(SEED)
    rows = max(_VALUES_AT_A_TIME // values.size, 1)
    means: list[float] = []
    while (count := min(rows, RESAMPLED_FIGURES - len(means))) > 0:
        means += values[draw.integers(len(values), size=(count, len(values)))].mean(axis=1).tolist()
    low, high = np.percentile(means, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return [percent(low), percent(high)]


def _speed(picked: np.ndarray, other: np.ndarray) -> float:
    """Return the geometric mean of one efficiency over another where both are known; 0 where they nowhere are."""
    both = (picked > 0) & (other > 0)
    return round(float(exact.exp(exact.log(picked[both] / other[both]).mean())), 4) if both.any() else 0.0


def _ratio(part: float, whole: float) -> float:
    return float(part) / float(whole) if whole else 0.0
