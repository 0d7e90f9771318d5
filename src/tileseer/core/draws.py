"""Draws by name: what looks random, but depends on nothing besides the names that are drawn for.

One more problem or kernel so leaves what is drawn for the others as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np


def of_name(name: str) -> int:
    """Return 64 bits of a name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def of_names(names: Iterable[str]) -> np.ndarray:
    """Return 64 bits of each name, uint64."""
    return np.array([of_name(name) for name in names], np.uint64)


def of_pairs(problem: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Return 64 bits of each of n pairs, uint64 [n], from those of the names of problem and candidate, uint64 [n]."""
    mixed = problem ^ (candidate * np.uint64(0x9E3779B97F4A7C15))
    # Finaliser of MurmurHash3: without it, one candidate would come first on many problems.
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(33))


def shares(lots: np.ndarray) -> np.ndarray:
    """Return lots (uint64) as numbers from 0 to 1, float64: below a share are so many of them."""
    return lots.astype(np.float64) / 2.0**64
