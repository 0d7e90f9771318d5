"""Random numbers by content: the same row gets the same number in whatever place.

The generator is a 64-bit mixer, the finalizer of SplitMix64 (Steele et al. 2014). Nothing depends on the order, the
number or the chunking of rows.
"""

import hashlib
from functools import cache
from statistics import NormalDist

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_START = np.uint64(0x243F6A8885A308D3)
_QUANTILES = 4096


def mix(values: np.ndarray) -> np.ndarray:
    """Return 64 well-mixed bits for each of ``values`` (uint64, any shape)."""
    mixed = values + GOLDEN
    mixed ^= mixed >> np.uint64(30)
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def rows(*columns: np.ndarray) -> np.ndarray:
    """Return a 64-bit id of each row of integer ``columns`` (n entries each), uint64 [n]."""
    ids = np.full(len(columns[0]), _START)
    for column in columns:
        ids = mix(np.asarray(column).astype(np.int64, copy=False).view(np.uint64) + ids)
    return ids


def text(string: str) -> int:
    """Return the FNV-1a hash of ``string`` in UTF-8, cut to 59 bits."""
    value = 1469598103934665603
    for byte in string.encode():
        value = ((value ^ byte) * 1099511628211) & (2**59 - 1)
    return value


def of_name(name: str) -> int:
    """Return 64 bits of a name; one more name leaves those of all others as they are."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def normal(bits: np.ndarray) -> np.ndarray:
    """Return a standard normal number for the low 16 bits of each of ``bits``, float32; at most 4.3 in size."""
    return _normal_table()[bits.astype(np.uint16)]


def uniform(bits: np.ndarray) -> np.ndarray:
    """Return a number in (0, 1] for the high 32 bits of each of ``bits``, float32."""
    return ((bits >> np.uint64(32)).astype(np.uint32).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32)


@cache
def _normal_table() -> np.ndarray:
    """Return the quantiles of the normal distribution at 65,536 midpoints, scaled to unit variance.

    They are interpolated between 4,096 exact ones, but for the 16 at each end, where the curve is steep.
    """
    inverse = NormalDist().inv_cdf
    coarse = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    fine = (np.arange(65536) + 0.5) / 65536
    table = np.interp(fine, coarse, [inverse(p) for p in coarse.tolist()])
    table[:16] = [inverse(p) for p in fine[:16].tolist()]
    table[-16:] = -table[15::-1]
    scaled = (table / table.std()).astype(np.float32)
    scaled.setflags(write=False)
    return scaled
