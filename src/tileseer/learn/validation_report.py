"""Schema of the validation report, ``results/validation/ARCH/OPERATION.json``.

Efficiencies, shares and intervals are in percent with four decimals. docs/internals/learning.md explains the fields.
"""

from typing import Annotated, Generic, TypeVar

from pydantic import Field

from tileseer.core.documents import Document
from tileseer.learn.efficiency import PERCENTILES
from tileseer.learn.model_schema import Origin, Summary

Interval = Annotated[list[float], Field(min_length=2, max_length=2)]
"""Lower and upper end."""
Intervals = dict[str, Interval]
"""Bootstrap intervals of ``mean``, ``median`` and ``p10``."""
Percentiles = Annotated[list[float], Field(min_length=len(PERCENTILES), max_length=len(PERCENTILES))]
"""Efficiencies at ``efficiency.PERCENTILES``."""
Figure = TypeVar("Figure")


class Selectors(Document, Generic[Figure]):
    """A figure of each selector that knows more than a model can (``noise_floor``)."""

    perfect_selector: Figure
    perfect_model: Figure | None = None
    """Known of simulated devices only."""

    @property
    def best(self) -> Figure:
        """The figure that bounds a model: that of a perfect model; where it is unknown, of the perfect selector."""
        return self.perfect_selector if self.perfect_model is None else self.perfect_model


class PickFigures(Document):
    """Efficiency of picks and its distribution."""

    efficiency: Summary
    percentiles: Percentiles


class Ranking(PickFigures):
    """Figures of a ranking."""

    top1: float
    top3: float
    top5: float
    efficiency_best_of_2: Summary
    efficiency_best_of_3: Summary
    efficiency_best_of_5: Summary
    within_2_percent: float
    below_80_percent: float
    interval: Intervals


class _Meaning(Document):
    meaning: str


class Floor(PickFigures, _Meaning):
    """A selector that knows more than a model can, or picks against true times."""

    interval: Intervals
    within_2_percent: float
    top1: float
    efficiency_best_of_3: Summary | None = None
    efficiency_best_of_5: Summary | None = None


class NoiseFloor(Document):
    """What the figures of a model could be at best."""

    basis: str
    """Where true times come from."""
    perfect_selector: Floor
    perfect_model: Floor | None = None
    luckiest_sample: Floor
    against_true_best: Floor

    @property
    def best(self) -> Floor:
        """The bound of a model, as ``Selectors.best``."""
        return self.perfect_model or self.perfect_selector


class Ties(_Meaning):
    """Candidates that the noise does not tell from the best of their problem."""

    between_runs: float | None
    mean_candidates: float
    problems_with_several: float
    picks: float


class Oracle(_Meaning):
    """How much of what could be chosen was timed."""

    mean_coverage: float
    least_coverage: float
    outside_the_pool: int


class Stratum(Document):
    """The picks of some of the problems."""

    n_problems: int
    efficiency: Summary
    interval: Intervals
    within_2_percent: float
    noise_floor: Selectors[Summary]


class NetworkStratum(Stratum):
    """The picks of the problems that a network needs; a layer counts for every network that has it."""

    in_training: bool
    """Whether other layers of the network, or a layer that it shares, are training problems."""


class _Class(Document):
    above: float | None
    up_to: float | None
    of_a_known_kind: bool


class Distance(Stratum, _Class):
    """The picks of one class of distance to the nearest training problem, in octaves."""


class Baseline(Document):
    """Choosing without a model."""

    meaning: str
    candidates: dict[str, str] | None = None
    """The chosen candidate by dimensionality, where there is one."""
    efficiency: Summary
    percentiles: Percentiles
    noise_floor: Selectors[Summary]


class Contribution(Document):
    """A feature that made a pick look better than another candidate, or worse if negative."""

    feature: str
    contribution: float
    of_pick: float
    of_best: float


class WorstPick(Document):
    """A problem on which the pick is far from the best candidate."""

    problem_key: str
    network: str
    layer: str
    problem: str
    pick: str
    best: str
    efficiency: float
    pick_failed: bool
    spoke_for_the_pick: list[Contribution]
    outside_training: list[str]
    distance_percentile: float
    nearest_training_problem: str


class Pick(Document):
    """The pick of a problem and how many candidates tie with the best."""

    candidate: str
    efficiency: float
    ties: int
    tied: bool
    """Whether the pick is one of them."""


class RunCost(Document):
    """What picks cost one run of a network."""

    end_to_end: float
    flop_weighted: float


class NetworkTime(Document):
    """What the picks of the model cost one run of a network, and those of the selectors that know more."""

    network: str
    run: str
    n_layers: int
    n_failed: int
    end_to_end: float
    flop_weighted: float
    flop_scored: float
    noise_floor: Selectors[RunCost]


class _Scope(Origin):
    n_problems: int
    n_without_measurement: int
    n_candidates: int
    mean_pool_size: float


class Validation(Ranking, _Scope):
    """The validation report of one operation."""

    interval_level: int
    noise_floor: NoiseFloor
    of_perfect_model: float | None = None
    """The mean efficiency over that of a perfect model, percent: what to quote of simulated times."""
    ties: Ties
    oracle: Oracle
    by_ndim: dict[str, Stratum]
    by_layer_kind: dict[str, Stratum]
    by_network: dict[str, NetworkStratum]
    baselines: dict[str, Baseline]
    worst: list[WorstPick]
    picks: dict[str, Pick]
    """By problem key."""
    end_to_end: list[NetworkTime] | None = None
    by_distance: list[Distance] | None = None
