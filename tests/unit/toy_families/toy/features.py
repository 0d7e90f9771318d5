"""The shared features, and none of its own."""

import numpy as np

from tileseer.families import gemm_features as gemm

REFERENCE_CODES = {"simple": 1}


def candidate_columns(candidates, hardware):
    none = {"num_groups_to_merge": np.ones(len(candidates)), "streamk": np.zeros(len(candidates))}
    return gemm.with_loads(gemm.numbers(candidates) | none, candidates, hardware)


FEATURE_SETS = {"toy": gemm.feature_set((*gemm.TILES, *gemm.SPLIT_K, *gemm.BUILT), candidate_columns)}


def in_reference_words(candidates):
    return candidates.assign(scheduler="intrawave", double_smem_buffer=False, split_image=False)
