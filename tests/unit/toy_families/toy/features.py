"""The shared features, and none of its own."""

import numpy as np

from tileseer.families.feature_table import FeatureSet
from tileseer.families.gemm_features import (
    BUILT,
    PAIR,
    PROBLEM,
    SPLIT_K,
    TILES,
    GemmPairs,
    numbers,
    problem_columns,
    with_loads,
)

REFERENCE_CODES = {"simple": 1}


def candidate_columns(candidates, hardware):
    none = {"num_groups_to_merge": np.ones(len(candidates)), "streamk": np.zeros(len(candidates))}
    return with_loads(numbers(candidates) | none, candidates, hardware)


FEATURE_SETS = {
    "toy": FeatureSet(PROBLEM, (*TILES, *SPLIT_K, *BUILT), PAIR, problem_columns, candidate_columns, GemmPairs)
}


def in_reference_words(candidates):
    return candidates.assign(scheduler="intrawave", double_smem_buffer=False, split_image=False)
