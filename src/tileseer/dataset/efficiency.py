"""Efficiency: a candidate's measured TFLOPS over the best measured TFLOPS of the same problem."""

import numpy as np

from tileseer.dataset.measurements import Measurements
from tileseer.devices.base import STATUSES

NOT_IN_POOL = ("unsupported", "compile_error", "compile_timeout")
"""Statuses known before a selection: such a pair is never a candidate. Every other failure is the selection's risk."""
OK = STATUSES.index("ok")
SKIPPED = STATUSES.index("skipped")
PERCENTILES = tuple(range(0, 101, 2))


def in_pool(measurements: Measurements) -> np.ndarray:
    """Whether a selector could choose each row's candidate for its problem, bool [n]."""
    excluded = [STATUSES.index(status) for status in NOT_IN_POOL]
    return ~np.isin(measurements.status, excluded)


def proven(measurements: Measurements) -> np.ndarray:
    """Which candidates ran on at least one training problem, bool [Q].

    Others (never built, always failing, never measured) are no candidates: nothing is known about them.
    """
    training = (measurements.problems["split"] == "train").to_numpy()
    ran = (measurements.status == OK) & training[measurements.problem]
    return np.bincount(measurements.candidate[ran], minlength=len(measurements.candidates)) > 0


def problem_best(measurements: Measurements) -> np.ndarray:
    """Best measured TFLOPS of each problem, float64 [P]; 0 where nothing ran."""
    best = np.zeros(len(measurements.problems))
    ok = measurements.status == OK
    np.maximum.at(best, measurements.problem[ok], measurements.tflops[ok])
    return best


def by_row(measurements: Measurements) -> np.ndarray:
    """Efficiency of each row, float64 [n] in 0..1: 0 where the pair did not run."""
    best = problem_best(measurements)[measurements.problem]
    ok = measurements.status == OK
    efficiency = np.zeros(len(ok))
    efficiency[ok] = measurements.tflops[ok] / best[ok]
    return efficiency


def grid(measurements: Measurements, problem_rows: np.ndarray) -> np.ndarray:
    """Efficiency of every candidate for some problems, float64 [R, Q]: 0 where nothing was measured."""
    return spread_out(measurements, problem_rows, by_row(measurements), 0.0)


def spread_out(measurements: Measurements, problem_rows: np.ndarray, values: np.ndarray, missing: float) -> np.ndarray:
    """One value a measured pair as a table of some problems and all candidates, float64 [R, Q]."""
    position = np.full(len(measurements.problems), -1)
    position[problem_rows] = np.arange(len(problem_rows))
    wanted = position[measurements.problem] >= 0
    table = np.full((len(problem_rows), len(measurements.candidates)), missing)
    table[position[measurements.problem[wanted]], measurements.candidate[wanted]] = values[wanted]
    return table


def summary(efficiency: np.ndarray) -> dict[str, float]:
    """Mean, median, 10th percentile and minimum of efficiencies, in percent with four decimals."""
    if not len(efficiency):
        return dict.fromkeys(("mean", "median", "p10", "min"), 0.0)
    values = {
        "mean": efficiency.mean(),
        "median": np.median(efficiency),
        "p10": np.percentile(efficiency, 10),
        "min": efficiency.min(),
    }
    return {name: percent(value) for name, value in values.items()}


def percentiles(efficiency: np.ndarray) -> list[float]:
    """``PERCENTILES`` of efficiencies, in percent with four decimals: their distribution."""
    return [percent(value) for value in np.percentile(efficiency, PERCENTILES)]


def percent(share: float | np.floating) -> float:
    """``share`` as a percentage with four decimals."""
    return round(100 * float(share), 4)
