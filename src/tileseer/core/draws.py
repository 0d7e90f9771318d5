"""Keyed random draws: numbers that look random, but depend on nothing besides the names that they are drawn for.

One more problem or kernel leaves the draws of all others as they are.
"""

import hashlib
from collections.abc import Iterable

import numpy as np


def of_name(name: str) -> int:
    """64 bits of a name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def of_names(names: Iterable[str]) -> np.ndarray:
    """64 bits of each name, uint64."""
    return np.array([of_name(name) for name in names], np.uint64)


def of_pairs(problem: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """64 bits of each of n pairs, uint64 [n], from those of the names of problem and candidate, uint64 [n]."""
    mixed = problem ^ (candidate * np.uint64(0x9E3779B97F4A7C15))
    # Finaliser of MurmurHash3: without it, one candidate would come first on many problems.
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(33))


def shares(draws: np.ndarray) -> np.ndarray:
    """Draws (uint64) as numbers in 0..1, float64: a share x of them lies below x."""
    return draws.astype(np.float64) / 2.0**64
