"""What an efficiency could be at best: the figures of selectors that know more than any model can.

The best of many noisy times is a lucky one (the winner's curse), so even a selector that knows every true time scores
below 100 %. The simulated device knows its true times. Of other devices the measured times stand for them, and noise of
the spread of the launches is drawn around them again (a parametric bootstrap).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tileseer.gpus.hardware import Hardware
from tileseer.kernels.costs.coefficients import Coefficients
from tileseer.learn import efficiency, ranking
from tileseer.learn import validation_report as schema
from tileseer.learn.model_schema import Summary
from tileseer.learn.ranking import Scored
from tileseer.learn.validation_report import Selectors
from tileseer.measure.simulated_device import SimulatedDevice

MEANINGS = {
    "perfect_selector": "knows every true time, and which pairs fail; less than 100 because the best of many timings "
    "is lucky",
    "perfect_model": "knows everything but what is drawn for a single pair, which no model can learn from other pairs",
    "luckiest_sample": "the best measured candidate, against the best true time: the winner's curse",
    "against_true_best": "the model's picks, against the best true time",
}
DRAWS = 64
SEED = 1
ONE_RUN = "spread of the timed launches, drawn again around the measured times"
SEVERAL_RUNS = "at least {:.2f} %, by which a time differs from run to run"
FIRST = 5
"""First picks of a selector that are scored."""


@dataclass(frozen=True)
class FloorEfficiencies:
    """Efficiencies of R problems, 0..1."""

    basis: str
    """Where true times come from, in words."""
    first: dict[str, np.ndarray]
    """[R, FIRST] Measured efficiency of the best of the first 1, 2, ... picks of each selector that is known.

    ``perfect_selector`` knows every true time, and which pairs fail; ``perfect_model`` knows everything but what is
    drawn for each single pair (its deviation, whether it crashes)."""
    true: np.ndarray
    """[R, Q] Efficiency against the best true time: exact, or with the best corrected for the winner's curse."""

    def selectors(self, first: int = 1) -> dict[str, np.ndarray]:
        """Efficiency of the best of the ``first`` picks of each selector, [R] by name."""
        return {name: values[:, first - 1] for name, values in self.first.items()}

    def summary(self, part: np.ndarray | slice = slice(None)) -> Selectors[Summary]:
        """What the selectors score on some of the problems, by default all."""
        return Selectors[Summary](**{name: Summary.of(values[part]) for name, values in self.selectors().items()})


def floor_of(scored: Scored, hardware: Hardware, coefficients: Coefficients | None) -> FloorEfficiencies:
    """Efficiencies by the simulated device's ``coefficients``, else by the noise of the times."""
    if coefficients is None:
        return of_errors(scored.achieved, scored.relative_errors, scored.dataset.between_runs)
    return of_simulation(scored, hardware, coefficients)


def report_floor(floor: FloorEfficiencies, scored: Scored) -> schema.NoiseFloor:
    """What selectors that know more score, and the picks against the best true time."""
    against_true = np.where(scored.pool, floor.true, 0.0)
    rows = floor.selectors() | {
        "luckiest_sample": _at(floor.true, scored.best),
        "against_true_best": _at(against_true, scored.picks),
    }
    few: dict[str, dict[str, Any]] = {
        name: {f"efficiency_best_of_{k}": Summary.of(floor.selectors(k)[name]) for k in (3, 5)}
        for name in floor.selectors()
    }
    return schema.NoiseFloor(
        basis=floor.basis,
        **{
            name: schema.Floor(
                meaning=MEANINGS[name],
                **ranking.figures(values),
                interval=efficiency.intervals(values),
                within_2_percent=ranking.within(values),
                top1=efficiency.percent(np.mean(values >= 1.0)),
                **few.get(name, {}),
            )
            for name, values in rows.items()
        },
    )


def of_simulation(scored: Scored, hardware: Hardware, coefficients: Coefficients) -> FloorEfficiencies:
    """Efficiencies from the noise-free times of the simulated device."""
    problems, candidates, measured = scored.problems, scored.dataset.candidates, scored.achieved
    truth = SimulatedDevice(hardware, coefficients, seed=0).truth_us(problems, candidates)
    unknown = coefficients.deviation.model_copy(update={"pair": 0.0})
    # A pair that crashes has no true time, but nothing foretells it: the formula goes on giving one.
    formula = coefficients.model_copy(update={"deviation": unknown, "failure_rate": 0.0})
    expected = SimulatedDevice(hardware, formula, seed=0).truth_us(problems, candidates)
    truth = np.where(np.isnan(truth) | (measured <= 0), np.inf, truth)
    return FloorEfficiencies(
        basis="noise-free times of the simulated device",
        first={
            "perfect_selector": _best_of_first(measured, np.where(scored.pool, truth, np.inf)),
            "perfect_model": _best_of_first(measured, np.where(scored.pool & ~np.isnan(expected), expected, np.inf)),
        },
        true=truth.min(axis=1, keepdims=True) / truth,
    )


def of_errors(measured: np.ndarray, error: np.ndarray, between_runs: float | None = None) -> FloorEfficiencies:
    """Efficiencies from the relative standard error of each time, float64 [R, Q] (NaN: taken as 0).

    ``between_runs`` is the part of it that two runs differ by, if it is known.
    """
    draw = np.random.default_rng(SEED)
    ran = measured > 0
    spread = np.where(ran & np.isfinite(error), error, 0.0)
    log_speed = np.log(np.where(ran, measured, 1.0))
    order = np.argsort(np.where(ran, -measured, np.inf), axis=1, kind="stable")[:, :FIRST]
    perfect, curse = np.zeros((len(measured), FIRST)), np.zeros(len(measured))
    for _ in range(DRAWS):
        again = np.where(ran, log_speed + spread * draw.standard_normal(measured.shape), -np.inf)
        lucky = again.argmax(axis=1)
        behind = np.take_along_axis(again, order, axis=1) - _at(again, lucky)[:, None]
        perfect += _whole(np.exp(np.maximum.accumulate(behind, axis=1)))
        curse += _at(again, lucky) - _at(log_speed, lucky)
    # How much too fast the luckiest is on average; the best true time is slower than the best measured by as much.
    corrected = np.minimum(measured * np.exp(curse / DRAWS)[:, None], 1.0)
    return FloorEfficiencies(
        basis=ONE_RUN if between_runs is None else f"{ONE_RUN}; {SEVERAL_RUNS.format(100 * between_runs)}",
        first={"perfect_selector": perfect / DRAWS},
        true=corrected,
    )


def _best_of_first(measured: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Measured efficiency of the best of the first picks by ``time``, [R, FIRST]; inf is not offered."""
    order = np.argsort(time, axis=1, kind="stable")[:, :FIRST]
    offered = np.isfinite(np.take_along_axis(time, order, axis=1))
    picked = np.where(offered, np.take_along_axis(measured, order, axis=1), 0.0)
    return _whole(np.maximum.accumulate(picked, axis=1))


def _whole(first: np.ndarray) -> np.ndarray:
    """``first`` with ``FIRST`` columns: of a smaller pool the last is repeated, for there is nothing more to pick."""
    return np.pad(first, ((0, 0), (0, FIRST - first.shape[1])), mode="edge")


def _at(table: np.ndarray, column: np.ndarray) -> np.ndarray:
    return table[np.arange(len(table)), column]
