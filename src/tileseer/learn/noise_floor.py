"""What an efficiency could be at best: the figures of selectors that know more than any model can.

The best of many noisy times is a lucky one (the winner's curse), so even a selector that knows every true time scores
below 100 %. The simulated device knows its true times. Of other devices the measured times stand for them, and noise of
the spread of the launches is drawn around them again (a parametric bootstrap).
"""

import numpy as np

from tileseer.facts.hardware import Hardware
from tileseer.learn.ranking import Scored
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.measure.simulated_device import SimulatedDevice

DRAWS_OF_NOISE = 64
SEED = 1
SIMULATION = "noise-free times of the simulated device"
ONE_RUN = "spread of the timed launches, drawn again around the measured times"
SEVERAL_RUNS = "at least {:.2f} %, by which a time differs from run to run"


def basis(scored: Scored, coefficients: Coefficients | None) -> str:
    """Return where the true times come from, in words."""
    between = scored.dataset.between_runs
    if coefficients is not None:
        return SIMULATION
    return ONE_RUN if between is None else f"{ONE_RUN}; {SEVERAL_RUNS.format(100 * between)}"


def best_possible(scored: Scored, hardware: Hardware, coefficients: Coefficients | None) -> dict[str, np.ndarray]:
    """Return the efficiency of the picks of each selector that is known, [R] in 0..1 by name.

    ``perfect_selector`` knows every true time, and which pairs fail; a simulated device knows them by ``coefficients``.
    """
    if coefficients is None:
        return {"perfect_selector": of_errors(scored.achieved, scored.relative_errors)}
    problems, candidates, measured = scored.problems, scored.dataset.candidates, scored.achieved
    truth = SimulatedDevice(hardware, coefficients, seed=0).truth_us(problems, candidates)
    times = np.where(scored.pool & ~np.isnan(truth) & (measured > 0), truth, np.inf)
    picked = measured[np.arange(len(measured)), times.argmin(axis=1)]
    return {"perfect_selector": np.where(np.isfinite(times.min(axis=1)), picked, 0.0)}


def of_errors(measured: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Return what knowing the measured times would be worth on other draws of their noise, float64 [R].

    ``measured`` are efficiencies, ``error`` the relative standard errors of the times, both float64 [R, Q]; an unknown
    error (NaN) is taken as 0.
    """
    draw, rows = np.random.default_rng(SEED), np.arange(len(measured))
    ran = measured > 0
    spread = np.where(ran & np.isfinite(error), error, 0.0)
    log_speed = np.log(np.where(ran, measured, 1.0))
    best = np.where(ran, measured, -np.inf).argmax(axis=1)
    perfect = np.zeros(len(measured))
    for _ in range(DRAWS_OF_NOISE):
        again = np.where(ran, log_speed + spread * draw.standard_normal(measured.shape), -np.inf)
        perfect += np.exp(again[rows, best] - again.max(axis=1))
    return perfect / DRAWS_OF_NOISE
