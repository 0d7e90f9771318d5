"""Learning features of CUTLASS candidates: the shared ones where fields mean the same, and what only they have."""

import numpy as np
import pandas as pd

from tileseer.facts.hardware import Hardware
from tileseer.libraries.cutlass.kernel import GROUPS, ITERATORS
from tileseer.libraries.features import gemm
from tileseer.libraries.features.table import Feature, raw

OWN = (
    *raw("1", stages="depth of the copy pipeline", swizzle="tiles of n that neighbouring blocks share"),
    *raw("1", analytic="the iterator computes every address anew, 0 or 1"),
    *raw("1", any_stride="an input gradient that is written for every stride, 0 or 1"),
    Feature("group_mode", "code", "position in kernel.GROUPS", lambda c: c["group_mode"]),
)


def candidate_columns(candidates: pd.DataFrame, hardware: Hardware) -> dict[str, np.ndarray]:
    """Return what candidate features are made of, float64 [Q] by name."""
    columns = gemm.numbers(candidates)
    columns["analytic"] = (candidates["iterator"] == "analytic").to_numpy(np.float64)
    columns["any_stride"] = (candidates["strides"] == "strided").to_numpy(np.float64)
    code = {mode: float(position) for position, mode in enumerate(GROUPS)}
    columns["group_mode"] = candidates["group_mode"].map(code).to_numpy(np.float64)
    columns |= {"num_groups_to_merge": np.ones(len(candidates)), "streamk": np.zeros(len(candidates))}
    return gemm.with_loads(columns, candidates, hardware)


CUTLASS_FEATURES = gemm.feature_set((*gemm.TILES, *gemm.SPLIT_K, *gemm.BUILT, *OWN), candidate_columns)


def in_reference_words(candidates: pd.DataFrame) -> pd.DataFrame:
    """See ``Library``: tiles mean the same.

    The reference's one categorical feature has no code for main loops of CUTLASS. Its trainer would give every new one
    a code of its own, and so do we. A main loop of several stages is double buffered; every kernel is scheduled within
    a wave and none splits the image. Warps, vectors, the swizzle, group modes and split-K have no place among the 97
    features, in either library.
    """
    iterator = candidates["iterator"].map({name: number for number, name in enumerate(ITERATORS)})
    return candidates.assign(
        loop=len(ITERATORS) * candidates["stages"] + iterator,
        scheduler="intrawave",
        double_smem_buffer=candidates["stages"].to_numpy() > 1,
        split_image=False,
    )
