"""Elementary functions with the same bits on every processor.

NumPy and the C library choose among implementations of ``log`` or ``exp`` by what the processor has, and their last
bits differ. These are made of sums, products, quotients, ``rint``, ``frexp`` and ``ldexp`` alone, which IEEE 754 rounds
one way. All take an array or a number, compute in float64, and return float64, or float32 where that was given. Results
are at most 3 units in the last place from the true value. What draws problems, simulates times, makes labels or cells
of evidence uses no others.
"""

import numpy as np
from numpy.typing import ArrayLike

LN2 = 0.6931471805599453
# ln 2 and pi/2 in parts: products of the first parts with the whole numbers that occur are exact (fdlibm's splitting).
LN2_PARTS = 6.93147180369123816490e-01, 1.90821492927058770002e-10
HALF_PI_PARTS = 1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21
SQRT_HALF = 0.7071067811865476
EXPONENTS = -1080.0, 1030.0
"""Powers of two beyond which every result is 0 or infinite."""


def log(x: ArrayLike) -> np.ndarray:
    """Return the natural logarithm; -inf of 0, NaN below."""
    of_mantissa, exponent = _log_parts(x)
    return _typed(exponent * LN2_PARTS[0] + (of_mantissa + exponent * LN2_PARTS[1]), x)


def log2(x: ArrayLike) -> np.ndarray:
    """Return the logarithm to base 2, exact for powers of two; -inf of 0, NaN below."""
    of_mantissa, exponent = _log_parts(x)
    return _typed(exponent + of_mantissa / LN2, x)


def exp(x: ArrayLike) -> np.ndarray:
    """Return e to the power of x."""
    wide = np.clip(np.asarray(x, np.float64), EXPONENTS[0] * LN2, EXPONENTS[1] * LN2)
    power = np.rint(wide / LN2)
    return _typed(_scaled(wide - power * LN2_PARTS[0] - power * LN2_PARTS[1], power), x)


def exp2(x: ArrayLike) -> np.ndarray:
    """Return 2 to the power of x, exact for whole numbers."""
    wide = np.clip(np.asarray(x, np.float64), *EXPONENTS)
    power = np.rint(wide)
    return _typed(_scaled((wide - power) * LN2, power), x)


def sin(x: ArrayLike) -> np.ndarray:
    """Return the sine of angles of at most 100,000 radians: beyond that pi/2 would need more parts."""
    return _typed(_wave(x, 0), x)


def cos(x: ArrayLike) -> np.ndarray:
    """Return the cosine of angles of at most 100,000 radians, as ``sin``."""
    return _typed(_wave(x, 1), x)


def _log_parts(x: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return log(m) and e of x = m 2^e, with m between the roots of 1/2 and 2: by the series of the inverse tanh."""
    wide = np.asarray(x, np.float64)
    mantissa, exponent = np.frexp(np.where((wide > 0) & (wide < np.inf), wide, np.nan))
    low = mantissa < SQRT_HALF
    mantissa, exponent = np.where(low, mantissa * 2, mantissa), (exponent - low).astype(np.float64)
    ratio = (mantissa - 1) / (mantissa + 1)
    square, tail = ratio * ratio, np.zeros_like(ratio)
    for odd in range(23, 1, -2):
        tail = square * (1 / odd + tail)
    return np.select([wide == 0, wide == np.inf], [-np.inf, np.inf], 2 * (ratio + ratio * tail)), exponent


def _scaled(rest: np.ndarray, power: np.ndarray) -> np.ndarray:
    """Return e^rest 2^power, of rests of at most half ln 2, by Taylor's series."""
    tail = np.zeros_like(rest)
    for factor in range(14, 1, -1):
        tail = rest * (1 + tail) / factor
    return np.ldexp(1 + (rest + rest * tail), np.nan_to_num(power).astype(np.int32))


def _wave(x: ArrayLike, quarters: int) -> np.ndarray:
    """Return sin(x + quarters pi/2), by Taylor's series within an eighth of a turn."""
    wide = np.asarray(x, np.float64)
    turns = np.rint(wide / (np.pi / 2))
    rest = wide - turns * HALF_PI_PARTS[0] - turns * HALF_PI_PARTS[1] - turns * HALF_PI_PARTS[2]
    square, even, odd = rest * rest, np.zeros_like(rest), np.zeros_like(rest)
    for factor in range(18, 0, -2):
        even = -square * (1 + even) / (factor * (factor - 1))
        odd = -square * (1 + odd) / (factor * (factor + 1))
    sine, cosine = rest + rest * odd, 1 + even
    quarter = (turns.astype(np.int64) + quarters) % 4
    return np.select([quarter == 0, quarter == 1, quarter == 2], [sine, cosine, -sine], -cosine)


def _typed(values: np.ndarray, like: ArrayLike) -> np.ndarray:
    return values.astype(np.float32) if getattr(like, "dtype", None) == np.float32 else values
