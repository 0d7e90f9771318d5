"""Augmentation: convolutions near the given ones, of the same kind, and the same for the same seed."""

import numpy as np
from test_serving import random_shapes

from tileseer.client.selection import checked_dims
from tileseer.conv.problem import DIMS
from tileseer.serving import distillation

SHAPES = random_shapes(200, seed=5)
COLUMN = {name: SHAPES[:, position] for position, name in enumerate(DIMS)}


def test_they_are_convolutions_of_kinds_that_were_given():
    found = distillation.augmentation(SHAPES, 500, seed=1)
    assert 250 < len(found) <= 500
    checked_dims(found)
    kept = [i for i, name in enumerate(DIMS) if name not in ("N", "C", "K", "Di", "Hi", "Wi")]
    given = {row.tobytes() for row in np.ascontiguousarray(SHAPES[:, kept])}
    assert all(row.tobytes() in given for row in np.ascontiguousarray(found[:, kept]))
    assert len(np.unique(found, axis=0)) > 0.9 * len(found)


def test_channels_that_a_vector_access_divides_stay_such():
    eights = SHAPES[(COLUMN["C"] // COLUMN["G"]) % 8 == 0]
    found = distillation.augmentation(eights, 300, seed=2)
    at = {name: found[:, DIMS.index(name)] for name in ("C", "G", "N")}
    assert ((at["C"] // at["G"]) % 8 == 0).all()
    assert at["N"].max() <= COLUMN["N"].max() * 2**distillation.BATCH + 1


def test_the_seed_decides():
    assert np.array_equal(distillation.augmentation(SHAPES, 50, seed=3), distillation.augmentation(SHAPES, 50, seed=3))
    assert not np.array_equal(
        distillation.augmentation(SHAPES, 50, seed=3), distillation.augmentation(SHAPES, 50, seed=4)
    )
    assert distillation.augmentation(SHAPES, 0, seed=3).shape == (0, len(DIMS))
