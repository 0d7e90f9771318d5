"""Keyed random draws: numbers that look random, but depend on nothing besides the names that they are drawn for.

One more problem or kernel leaves the draws of all others as they are.
"""

import hashlib


def of_name(name: str) -> int:
    """Return 64 bits of a name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
