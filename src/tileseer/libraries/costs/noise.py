"""Measurement noise of the simulated device.

It is drawn from hashes of the content of problem and kernel, so that it does not depend on which other pairs are
measured or in which order. Even the position of a pair in the measurement session, which sets clock drift and warm-up,
is drawn so: a resumed or extended run then repeats the rows of an undisturbed one bit by bit.
"""

import numpy as np
import pandas as pd

from tileseer.core import content_hash, exact
from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.libraries.costs.coefficients import Noise
from tileseer.libraries.rules import codes

_HASHED_DIMS = (
    "N", "C", "K", "G", "Di", "Hi", "Wi", "Z", "Y", "X", "stride_d", "stride_h", "stride_w", "pad_d", "pad_h", "pad_w",
    "dilation_d", "dilation_h", "dilation_w",
)  # fmt: skip
_PAIR_STREAM, _SESSION_STREAM = 12345, np.uint64(0x5851F42D4C957F2D)
_SEED_STRIDE = 2654435761


def problem_ids(problems: pd.DataFrame, variant: str) -> np.ndarray:
    """Return the content hash of each of P problems, uint64 [P]."""
    direction = np.full(len(problems), VARIANTS.index(variant))
    columns = [problems[name].to_numpy() for name in _HASHED_DIMS]
    return content_hash.rows(*columns, codes(problems["dtype"], DTYPES), direction)


def device_bits(name: str) -> np.uint64:
    """Return bits that tell one product's noise from another's."""
    return content_hash.rows(np.array([77]), np.array([content_hash.text(name)]))[0]


def pair_bits(device: np.uint64, problem_id: np.ndarray, kernel_id: np.ndarray) -> np.ndarray:
    """Return bits of n pairs on one device, uint64 [n]; ids are those of this module."""
    pair = problem_id ^ (kernel_id * content_hash.GOLDEN)
    first = content_hash.rows(np.array([device]).view(np.int64))[0]
    return content_hash.mix(pair + first)


def noisy_us(
    time_us: np.ndarray, bits: np.ndarray, seed: int, launches: int, law: Noise
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean time (microseconds) and relative standard deviation of ``launches`` launches, float64 [n] each.

    Third, what a pair without noise would take at the same moments of the session, over its time at the session's
    begin: the drift, float64 [n].
    """
    draw = content_hash.mix(bits + np.uint64((seed * _SEED_STRIDE + _PAIR_STREAM) % 2**64))
    session = content_hash.mix(draw ^ _SESSION_STREAM)
    between_launches = _hypotenuse(np.float32(law.launch_relative), np.float32(law.launch_us) / time_us)
    between_runs = _hypotenuse(np.float32(law.run_relative), np.float32(law.run_us) / time_us)
    spread = _hypotenuse(between_runs, between_launches * np.float32(1 / np.sqrt(launches)))
    change = spread * content_hash.normal(draw)
    change += _outliers(time_us, content_hash.uniform(draw), launches, law)
    drift = _drift(content_hash.uniform(session), seed, law)
    change += drift
    tick = law.tick_us / launches
    ticks = np.maximum(np.round((time_us * exact.exp(change)).astype(np.float64) / tick), round(law.least_us / tick))
    cv = between_launches * _sample_scatter(content_hash.normal(session), launches)
    begin = _drift(np.zeros(1, np.float32), seed, law)
    return ticks * tick, cv, exact.exp((drift - begin).astype(np.float64))


def _outliers(time_us: np.ndarray, chance: np.ndarray, launches: int, law: Noise) -> np.ndarray:
    """Draw slow runs: now and then an exponential log slowdown with a relative and an absolute part."""
    slow = chance < law.outlier_rate
    change = np.zeros_like(time_us)
    size = -exact.log(np.maximum(chance[slow] / np.float32(law.outlier_rate), np.float32(1e-6)))
    delay = law.outlier_us * np.sqrt(10.0 / launches) / np.maximum(time_us[slow], np.float32(law.outlier_from_us))
    change[slow] = size * (np.float32(law.outlier_relative) + delay.astype(np.float32))
    return change


def _drift(position: np.ndarray, seed: int, law: Noise) -> np.ndarray:
    """Return the slow wave of the clock and the warm-up at ``position`` (0 to 1) in the session, as a log change."""
    pairs = position * np.float32(law.session_pairs)
    phase = np.float32(seed % 628 * 0.01)
    wave = exact.sin(pairs * np.float32(2 * np.pi / law.drift_period) + phase)
    warm = 1 - exact.exp(pairs * np.float32(-1 / law.warm_up_pairs))
    return np.float32(law.clock_drift) * wave + np.float32(law.warm_up) * warm


def _sample_scatter(normal: np.ndarray, launches: int) -> np.ndarray:
    """Return the ratio of a sample's standard deviation to the true one; Wilson and Hilferty's chi-square quantile."""
    if launches < 2:
        return np.full(len(normal), np.nan)
    width = 2.0 / (9.0 * (launches - 1))
    root = np.maximum(1.0 - width + normal.astype(np.float64) * np.sqrt(width), 0.0)
    return np.sqrt(root * root * root)


def _hypotenuse(a: np.floating | np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the root of the sum of two squares; NumPy's own has other bits on other processors."""
    return np.sqrt(a * a + b * b)
