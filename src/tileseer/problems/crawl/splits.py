"""Deals networks to train, validation and test by family, and layers so that none is on two sides."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tileseer.conv.layers import Layer

# The project's first name: another salt would deal every network anew.
SALT = "tilewright split 1"
BOUNDS = (("train", 55), ("validation", 70), ("test", 100))
"""Upper bounds of each split in percent of the families' hashes."""


def of_family(family: str) -> str:
    """Return the split of a network family: its hash decides, so that one more family moves no other."""
    share = int(hashlib.sha256(f"{SALT}:{family}".encode()).hexdigest()[:8], 16) % 100
    return next(split for split, bound in BOUNDS if share < bound)


def assign(layers: Iterable[Layer], family_of: Mapping[str, str]) -> list[Layer]:
    """Return ``layers`` with their splits; ``family_of`` names the family of each network.

    A layer that networks of several splits have, at any batch size, belongs to test before validation before train:
    test networks stay whole, and what they have is not learnt from.
    """
    rank = {split: place for place, (split, _) in enumerate(BOUNDS)}
    given = list(layers)
    highest: dict[tuple[int, ...], str] = {}
    for layer in given:
        split = of_family(family_of[layer.network])
        if rank[split] >= rank[highest.get(layer.family, split)]:
            highest[layer.family] = split
    return [replace(layer, split=highest[layer.family], network_family=family_of[layer.network]) for layer in given]
