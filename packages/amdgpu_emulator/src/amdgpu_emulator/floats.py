"""Arithmetic of floats as AMD's GPUs do it, where NumPy has none or another: to the last bit, for every type of float.

A function takes arrays of one type (half, float or double) and works in that type. Not modelled are the rounding modes
and the flushing of denormals that a kernel could choose: to the nearest, with denormals, is what HIP sets.
"""

import ctypes
from ctypes.util import find_library
from functools import cache
from typing import Any

import numpy as np

from amdgpu_emulator.memory import Array

_OF_C = ctypes.CFUNCTYPE(ctypes.c_double, *[ctypes.c_double] * 3)(("fma", ctypes.CDLL(find_library("m"))))
_fma_of_doubles = np.frompyfunc(_OF_C, 3, 1)
_END_OF_TIES = (1 << 28) - 1
"""Bits of a double that are 0 if it lies in the middle between two floats, or two halves."""
_DIVISION_STEPS = {np.dtype("f4"): (64, 96, 23), np.dtype("f8"): (128, 768, 53)}
"""Scale of a division's operands; distance of their exponents that is far; exponent of a small numerator."""
_TWO_OVER_PI_BITS = 1201
"""Behind the point: what the hardware has of 2 / pi."""


def bits_of(value: Array) -> Array:
    """Return the bits of floats as unsigned numbers of their size."""
    return np.ascontiguousarray(value).view(f"u{value.itemsize}")


def exponent(value: Array) -> Array:
    """Return the field of the exponent: 0 for zeros and denormals."""
    form, bits = np.finfo(value.dtype), bits_of(value)
    return (bits >> bits.dtype.type(form.nmant)).astype(np.int64) & (1 << form.nexp) - 1


def fma(a: Array, b: Array, c: Array) -> Array:
    """Return the product and sum, rounded once."""
    if a.dtype == np.float64:
        return np.asarray(_fma_of_doubles(a, b, c), np.float64)
    # The product is exact in a double. So is the sum, or it is rounded to odd where its end could be a tie of the type.
    product, addend = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + addend
    if (total.view(np.int64) & _END_OF_TIES == 0).any():
        total = _rounded_to_odd(product, addend)
    return total.astype(a.dtype)


def _sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return a sum of doubles and what it lacks (Knuth)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _rounded_to_odd(a: Array, b: Array) -> Array:
    """Return a sum of doubles: if it is not exact, of its two neighbours the one whose last bit is 1."""
    total, lack = _sum(a, b)
    inexact = (lack < 0) | (lack > 0)
    if not inexact.any():
        return total
    bits = total.view(np.int64)
    # Away from zero is one more, toward it one less: also across powers of two.
    step = np.where((lack > 0) == (total > 0), 1, -1)
    odd: Array = np.where(inexact & (bits & 1 == 0), bits + step, bits).view(np.float64)
    return odd


def _quiet_bit(value: Array) -> Any:
    """Return the bit that tells a NaN which does not signal."""
    return bits_of(value).dtype.type(1 << np.finfo(value.dtype).nmant - 1)


def is_signalling(value: Array) -> Array:
    """Return whether a float is a signalling NaN."""
    return np.isnan(value) & (bits_of(value) & _quiet_bit(value) == 0)


def _chosen(a: Array, b: Array, first: Array) -> Array:
    """Return ``a`` where it is the first, else ``b``: a number rather than NaN, but a signalling NaN before all."""
    result = np.where(first, a, b)
    missing = np.isnan(a) | np.isnan(b)
    if missing.any():
        result = np.where(np.isnan(a), b, np.where(np.isnan(b), a, result))
        for value in (b, a):
            quiet = (bits_of(value) | _quiet_bit(value)).view(value.dtype)
            result = np.where(is_signalling(value), quiet, result)
    return result


def minimum(a: Array, b: Array) -> Array:
    """Return the smaller number; -0 is smaller than +0."""
    return _chosen(a, b, (a < b) | ((a == b) & np.signbit(a)))


def maximum(a: Array, b: Array) -> Array:
    """Return the larger number; +0 is larger than -0."""
    return _chosen(a, b, (a > b) | ((a == b) & ~np.signbit(a)))


def median(a: Array, b: Array, c: Array) -> Array:
    """Return the number between the other two; the smallest if one is NaN."""
    top = maximum(maximum(a, b), c)
    result = np.where(top == a, maximum(b, c), np.where(top == b, maximum(a, c), maximum(a, b)))
    return np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), minimum(minimum(a, b), c), result)


def has_class(value: Array, wanted: Array) -> Array:
    """Return whether a float is of one of the ten classes whose bits are set in a word (``v_cmp_class``)."""
    negative, field, largest = np.signbit(value), exponent(value), (1 << np.finfo(value.dtype).nexp) - 1
    # From infinite to zero: bits 2 to 5 of negative numbers, 9 to 6 of the others.
    kind = np.select([field == largest, field > 0, value != 0], [0, 1, 2], 3)
    number = np.where(np.isnan(value), np.where(is_signalling(value), 0, 1), np.where(negative, 2 + kind, 9 - kind))
    return (wanted.astype(np.int64) >> number & 1).astype(bool)


def fraction_part(value: Array) -> Array:
    """Return what a number is beyond the next lower whole one; less than 1."""
    return np.minimum(value - np.floor(value), np.nextafter(value.dtype.type(1), value.dtype.type(0)))


def frexp_mantissa(value: Array) -> Array:
    """Return a number scaled to 0.5 and more, below 1; 0, infinity and NaN as they are."""
    return np.where(np.isfinite(value), np.frexp(value)[0], value)


def frexp_exponent(value: Array) -> Array:
    """Return the exponent that belongs to the scaled number."""
    return np.where(np.isfinite(value), np.frexp(value)[1], 0).astype(np.int32)


def ldexp(value: Array, count: Array | int) -> Array:
    """Return a number times a power of two, rounded once."""
    # The limits hold for every double; in a double, a float is scaled without rounding or loses all digits.
    scaled: Array = np.ldexp(value.astype(np.float64), np.clip(count, -2200, 2200).astype(np.int32))
    return scaled.astype(value.dtype)


def trig_preop(value: Array, segment: Array) -> Array:
    """Return 53 bits of 2 / pi for the reduction of an argument (``v_trig_preop_f64``)."""
    value, segment = np.broadcast_arrays(value, segment)
    result = np.empty(value.shape)
    for lane, (field, number) in enumerate(zip(exponent(value).tolist(), segment.tolist(), strict=True)):
        shift = 53 * (number & 31) + max(0, field - 1077)
        whole = _two_over_pi() << shift >> _TWO_OVER_PI_BITS - 53 & (1 << 53) - 1
        result[lane] = np.ldexp(float(whole), -53 - shift + (128 if field >= 1968 else 0))
    return result


@cache
def _two_over_pi() -> int:
    """Return the bits of 2 / pi behind the point, by Machin's formula."""
    one, pi = 1 << _TWO_OVER_PI_BITS + 64, 0
    for factor, number in ((16, 5), (-4, 239)):
        term, odd = factor * one // number, 1
        while abs(term) > 1:
            pi += term // odd if odd % 4 == 1 else -(term // odd)
            term, odd = term // number**2, odd + 2
    return 2 * one * one // pi >> 64


def div_scale(operand: Array, denominator: Array, numerator: Array) -> tuple[Array, Array]:
    """Return ``operand`` (numerator or denominator) scaled for a division, and whether the result has to be."""
    scale, distant, little = _DIVISION_STEPS[operand.dtype]
    operand, denominator, numerator = np.broadcast_arrays(operand, denominator, numerator)
    of_denominator = operand == denominator
    up, down = ldexp(operand, scale), ldexp(operand, -scale)
    far = exponent(numerator) - exponent(denominator) >= distant
    steep, small, tiny = (
        (exponent(value) == 0) & (value != 0) for value in (1 / denominator, numerator / denominator, denominator)
    )
    cases: list[tuple[Array, Any, bool]] = [
        ((numerator == 0) | (denominator == 0), operand.dtype.type(np.nan), False),
        (far, np.where(of_denominator, up, operand), True),
        (tiny, up, False),
        (steep & small, np.where(of_denominator, up, operand), True),
        (steep, down, False),
        (small, np.where(operand == numerator, up, operand), True),
        (exponent(numerator) <= little, up, False),
    ]
    conditions, values, flags = zip(*cases, strict=True)
    return np.select(conditions, values, operand), np.select(conditions, flags, False)


def div_fmas(a: Array, b: Array, c: Array, scaled: Array) -> Array:
    """Return the product and sum of a division's last step, back from the scale of the operands."""
    result = fma(a, b, c)
    scale, end = _DIVISION_STEPS[result.dtype][0], np.finfo(result.dtype).maxexp
    back = np.where(exponent(np.broadcast_to(c, result.shape)) >= end, scale, -scale)
    return np.where(scaled, ldexp(result, back), result)


def div_fixup(quotient: Array, denominator: Array, numerator: Array) -> Array:
    """Return the quotient with its sign, or the special value that the division has."""
    plain = numerator / denominator
    special = (plain == 0) | ~np.isfinite(plain)
    sign = np.where(np.signbit(denominator) ^ np.signbit(numerator), -1, 1).astype(plain.dtype)
    return np.where(special, plain, np.copysign(quotient, sign))


@cache
def small_floats(kind: str) -> Array:
    """Return the 256 numbers of eight bits of ``FP8`` (E4M3) or ``BF8`` (E5M2), by their bits.

    These are the formats of OCP; ``..._FNUZ`` have a larger bias, no infinity, and NaN in place of -0.
    """
    (digits, bias), is_ocp = (3, 7) if kind.startswith("FP8") else (2, 15), not kind.endswith("FNUZ")
    numbers = np.empty(256, np.float32)
    for bits in range(256):
        field, rest = bits >> digits & (1 << 7 - digits) - 1, bits & (1 << digits) - 1
        scale = max(field, 1) - bias - digits - (not is_ocp)
        numbers[bits] = (rest + (field > 0) * (1 << digits)) * 2.0**scale * (-1 if bits >> 7 else 1)
    if not is_ocp:
        numbers[0x80] = np.nan
    elif kind == "FP8":
        numbers[[0x7F, 0xFF]] = np.nan
    else:
        numbers[[0x7C, 0xFC]] = np.inf, -np.inf
        numbers[[*range(0x7D, 0x80), *range(0xFD, 0x100)]] = np.nan
    return numbers


def to_small(value: Array, kind: str) -> Array:
    """Return floats as numbers of eight bits, to the nearest, ties to even; what is too large is infinity or NaN."""
    is_ocp, sizes = not kind.endswith("FNUZ"), small_floats(kind)[:128].astype(np.float64)
    sizes = sizes[np.isfinite(sizes)]
    last = len(sizes) - 1
    sizes = np.append(sizes, 2 * sizes[last] - sizes[last - 1])
    middles, size = (sizes[1:] + sizes[:-1]) / 2, np.abs(value).astype(np.float64)
    code = np.searchsorted(middles, size)
    code += (code % 2 == 1) & (size == middles[np.minimum(code, last)])
    beyond = (last + 1 if kind == "BF8" else 0x7F) if is_ocp else 0x80
    code = np.where(code > last, beyond, code)
    code = np.where(np.isnan(value), 0x7F if is_ocp else 0x80, code)
    # The other formats have no -0.
    return np.where(np.signbit(value) & ((code > 0) | is_ocp), code | 0x80, code).astype(np.uint32)
