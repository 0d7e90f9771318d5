"""What picks cost beside the choice of the library that offers the candidates."""

import numpy as np
import pytest

from tileseer.serve.harm import ALL, harm_by_kind


def test_harm_is_counted_by_kind_against_the_own_choice():
    own = np.full(200, 0.5)
    picked = own.copy()
    picked[:100] = 1.0
    # One pick of the second kind takes 1.25 times as long as the own choice.
    picked[150] = 0.4
    kinds = np.repeat(["3x3", "grouped"], 100)
    found = harm_by_kind(own, picked, picked != own, kinds)
    good, bad = found["3x3"], found["grouped"]
    assert list(found) == [ALL, "3x3", "grouped"] and found[ALL].layers == 200
    assert (good.replaced, good.gained, good.slower, good.slower_at_most, good.slowest) == (100, 100, 0, 0, 1 / 2)
    assert good.harmless == 100
    assert (bad.replaced, bad.slower, bad.slowest) == (1, 1, 1.25)
    # A draw without that layer: (99 / 100)^100 of them.
    assert bad.slower_at_most > 2 and bad.harmless == pytest.approx(36.6, abs=4)
    picked[151] = 0.0
    assert harm_by_kind(own, picked, picked != own, kinds)["grouped"].slowest > 100


def test_without_room_nothing_is_gained():
    best = np.ones(3)
    assert harm_by_kind(best, best, best > 1, np.array(["3x3"] * 3))[ALL].gained is None
