"""Arithmetic of doubles that numpy lacks: the fused product and sum, and the steps of a division.

A division is scaled where its steps would leave the range of doubles: one instruction scales, the last product and sum
undoes it, and one puts special values right.
"""

from contextlib import suppress
from fractions import Fraction

import numpy as np

from amdgpu_emulator.memory import Array

_BITS_BEYOND_A_FLOAT = np.uint64((1 << 29) - 1)
"""A double without these lowest bits has the digits of a float."""
_SCALE_EXPONENT, _LARGE_EXPONENT, _SMALL_EXPONENT = 128, 768, 53


def fma(a: Array, b: Array, c: Array) -> Array:
    """Return the product and sum, rounded once."""
    a, b, c = np.broadcast_arrays(a, b, c)
    result: Array = a * b + c
    # The product of two floats is exact, and what is not finite needs no digits.
    few = (_bits(a) & _BITS_BEYOND_A_FLOAT == 0) & (_bits(b) & _BITS_BEYOND_A_FLOAT == 0)
    for lane in np.flatnonzero(np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & ~few):
        exact = Fraction(float(a[lane])) * Fraction(float(b[lane])) + Fraction(float(c[lane]))
        # Of a zero, and beyond the largest double, plain arithmetic has the right sign.
        with suppress(OverflowError):
            result[lane] = float(exact) if exact else result[lane]
    return result


def div_scale(operand: Array, denominator: Array, numerator: Array) -> tuple[Array, Array]:
    """Return ``operand`` (numerator or denominator) scaled by ``v_div_scale_f64``, and whether the result has to be."""
    operand, denominator, numerator = np.broadcast_arrays(operand, denominator, numerator)
    of_denominator = operand == denominator
    up, down = np.ldexp(operand, _SCALE_EXPONENT), np.ldexp(operand, -_SCALE_EXPONENT)
    far = exponent(numerator) - exponent(denominator) >= _LARGE_EXPONENT
    steep, small = is_denormal(1 / denominator), is_denormal(numerator / denominator)
    cases: list[tuple[Array, Array | float, bool]] = [
        ((numerator == 0) | (denominator == 0), np.nan, False),
        (far, np.where(of_denominator, up, operand), True),
        (is_denormal(denominator), up, False),
        (steep & small, np.where(of_denominator, up, operand), True),
        (steep, down, False),
        (small, np.where(operand == numerator, up, operand), True),
        (exponent(numerator) <= _SMALL_EXPONENT, up, False),
    ]
    conditions, values, flags = zip(*cases, strict=True)
    return np.select(conditions, values, operand), np.select(conditions, flags, False)


def div_fmas(a: Array, b: Array, c: Array, scaled: Array) -> Array:
    """Return the product and sum of ``v_div_fmas_f64``, back from the scale of the operands."""
    result = fma(a, b, c)
    back = np.where(exponent(np.broadcast_to(c, result.shape)) > 0x3FF, _SCALE_EXPONENT, -_SCALE_EXPONENT)
    return np.where(scaled, np.ldexp(result, back), result)


def div_fixup(quotient: Array, denominator: Array, numerator: Array) -> Array:
    """Return the quotient of ``v_div_fixup_f64`` with its sign, or the special value that the division has."""
    plain = numerator / denominator
    special = (plain == 0) | ~np.isfinite(plain)
    sign = np.where(np.signbit(denominator) ^ np.signbit(numerator), -1.0, 1.0)
    return np.where(special, plain, np.copysign(quotient, sign))


def exponent(value: Array) -> Array:
    """Return the field of the exponent: 0 for denormals."""
    return (_bits(value) >> np.uint64(52) & np.uint64(0x7FF)).astype(np.int64)


def is_denormal(value: Array) -> Array:
    """Return whether a double is too small for a full exponent, and not 0."""
    return (exponent(value) == 0) & (value != 0)


def _bits(value: Array) -> Array:
    return np.ascontiguousarray(value).view(np.uint64)
