"""What an efficiency could be at best: the figures of selectors that know more than any model can.

An efficiency is a pick's time against the best time of its problem, and the best of many noisy times is a lucky one
(the winner's curse). So even a selector that knows every true time scores below 100 %. It is shown beside every
figure, and each figure is given against the best *true* time as well.

Where true times come from: of the simulated device the formula with its reproducible deviation gives them exactly.
Of other devices only the spread of the timed launches is known; then the measured times stand for the true ones and
noise of that spread is drawn around them again (a parametric bootstrap).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tilewright.devices.coefficients import Coefficients
from tilewright.devices.simulated import SimulatedDevice
from tilewright.hardware import Hardware

DRAWS = 64
SEED = 1


@dataclass(frozen=True)
class Floor:
    """Efficiencies of R problems, 0..1."""

    basis: str
    """Where true times come from, in words."""
    perfect: np.ndarray
    """[R] Measured efficiency of the selector that knows every true time, and which pairs fail."""
    knowing: np.ndarray | None
    """[R] Measured efficiency of the selector that knows everything but what is drawn for each single pair (its
    deviation, whether it crashes): what a perfect model scores. None where nobody knows it."""
    true: np.ndarray
    """[R, Q] Efficiency against the best true time: exact, or with the best corrected for the winner's curse."""


def of_simulation(
    problems: pd.DataFrame, candidates: pd.DataFrame, offered: np.ndarray, measured: np.ndarray,
    hardware: Hardware, coefficients: Coefficients,
) -> Floor:  # fmt: skip
    """Return the floor from the simulator's noise-free times.

    ``measured`` (float64 [R, Q]) is the measured efficiency, ``offered`` (bool [R, Q]) what a selector may pick.
    """
    truth = SimulatedDevice(hardware, coefficients, seed=0).truth_us(problems, candidates)
    unknown = coefficients.deviation.model_copy(update={"pair": 0.0})
    # A pair that crashes has no true time, but nothing foretells it: the formula goes on giving one.
    formula = coefficients.model_copy(update={"deviation": unknown, "failure_rate": 0.0})
    expected = SimulatedDevice(hardware, formula, seed=0).truth_us(problems, candidates)
    truth = np.where(np.isnan(truth) | (measured <= 0), np.inf, truth)
    return Floor(
        basis="noise-free times of the simulated device",
        perfect=_at(measured, np.where(offered, truth, np.inf).argmin(axis=1)),
        knowing=_at(measured, np.where(offered & ~np.isnan(expected), expected, np.inf).argmin(axis=1)),
        true=truth.min(axis=1, keepdims=True) / truth,
    )


def of_errors(measured: np.ndarray, error: np.ndarray) -> Floor:
    """Return the floor from the relative standard error of each time, float64 [R, Q] (NaN: taken as 0)."""
    draw = np.random.default_rng(SEED)
    ran = measured > 0
    spread = np.where(ran & np.isfinite(error), error, 0.0)
    log_speed = np.log(np.where(ran, measured, 1.0))
    best = np.where(ran, measured, -np.inf).argmax(axis=1)
    perfect, curse = np.zeros(len(measured)), np.zeros(len(measured))
    for _ in range(DRAWS):
        again = np.where(ran, log_speed + spread * draw.standard_normal(measured.shape), -np.inf)
        lucky = again.argmax(axis=1)
        perfect += np.exp(_at(again, best) - _at(again, lucky))
        curse += _at(again, lucky) - _at(log_speed, lucky)
    # How much too fast the luckiest is on average; the best true time is slower than the best measured by as much.
    corrected = np.minimum(measured * np.exp(curse / DRAWS)[:, None], 1.0)
    return Floor(
        basis="spread of the timed launches, drawn again around the measured times",
        perfect=perfect / DRAWS,
        knowing=None,
        true=corrected,
    )


def _at(table: np.ndarray, column: np.ndarray) -> np.ndarray:
    return table[np.arange(len(table)), column]
