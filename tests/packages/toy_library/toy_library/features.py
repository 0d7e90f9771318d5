"""What models learn of a kernel."""

import numpy as np

from tileseer.libraries.features import gemm


def _candidate_columns(candidates, hardware):
    none = {"num_groups_to_merge": np.ones(len(candidates)), "streamk": np.zeros(len(candidates))}
    return gemm.with_loads(gemm.numbers(candidates) | none, candidates, hardware)


TOY = gemm.feature_set((*gemm.TILES, *gemm.SPLIT_K, *gemm.BUILT), _candidate_columns)


def in_reference_words(candidates):
    return candidates.assign(loop=1, scheduler="intrawave", double_smem_buffer=False, split_image=False)
