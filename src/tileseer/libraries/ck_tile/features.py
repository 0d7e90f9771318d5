"""Learning features of CK Tile candidates: the shared ones, the options of a kernel, and what a compiler says of it."""

from dataclasses import replace

import numpy as np
import pandas as pd

from tileseer.facts.hardware import Hardware
from tileseer.libraries.ck_tile.kernel import PIPELINES, SCHEDULERS, SPECIALIZATIONS, STREAMK
from tileseer.libraries.features import gemm
from tileseer.libraries.features.table import CODE_FEATURES, Feature, column, raw

PIPELINE_ALIASES = {"compv1": "basic_v1", "compv2": "basic_v2"}
"""Two names of one kernel must not look like two kernels."""

_CANDIDATE = (
    *gemm.TILES,
    *raw(
        "1",
        num_wave_groups="wave groups of a block",
        num_groups_to_merge="convolution groups merged into one GEMM",
        double_smem_buffer="two LDS buffers, 0 or 1",
        two_stage="fp32 workspace and a conversion pass, 0 or 1",
        explicit_gemm="plain GEMM instead of im2col addressing, 0 or 1",
        split_image="64-bit addressing by image parts, 0 or 1",
        streamk_persistent="persistent stream-K grid, 0 or 1",
    ),
    *gemm.SPLIT_K,
    *(
        Feature(name, "code", meaning, column(name))
        for name, meaning in (
            ("pipeline", "main loop; position in kernel.PIPELINES, aliases joined"),
            ("specialization", "filter specialisation; position in kernel.SPECIALIZATIONS"),
            ("streamk", "stream-K reduction; position in kernel.STREAMK"),
        )
    ),
    Feature("interwave", "1", "scheduler is interwave, 0 or 1", column("scheduler")),
    Feature("cshuffle", "1", "C leaves through LDS, 0 or 1", lambda c: c["epilogue"]),
    Feature("pads", "1", "how many of m, n, k are padded to the tile", lambda c: c["pad_m"] + c["pad_n"] + c["pad_k"]),
    *gemm.BUILT,
)


_CODES = {
    "pipeline": PIPELINES,
    "scheduler": SCHEDULERS,
    "specialization": SPECIALIZATIONS,
    "streamk": STREAMK,
    "epilogue": ("default", "cshuffle"),
}


def candidate_columns(candidates: pd.DataFrame, hardware: Hardware) -> dict[str, np.ndarray]:
    """Return what candidate features are made of, float64 [Q] by name."""
    columns = gemm.numbers(candidates) | {name: _codes(candidates[name], choices) for name, choices in _CODES.items()}
    return gemm.with_loads(columns, candidates, hardware)


def _codes(values: pd.Series, choices: tuple[str, ...]) -> np.ndarray:
    code = {name: float(position) for position, name in enumerate(choices)}
    # A pool has few distinct words; looking each row up by itself would cost more than all its other features.
    number, words = pd.factorize(values)
    return np.array([code[PIPELINE_ALIASES.get(word, word)] for word in words], np.float64)[number]


TILESEER = replace(gemm.feature_set(_CANDIDATE, candidate_columns), with_code="compiled")
COMPILED = gemm.feature_set((*_CANDIDATE, *CODE_FEATURES), candidate_columns)
_REFERENCE_LOOPS = ("compv3", "compv4", "compv5", "mem", "preshufflev2", "basic_v1", "compv6")
"""In the order of the reference's codes of its one categorical feature; every other pipeline has the code 0 there."""


def in_reference_words(candidates: pd.DataFrame) -> pd.DataFrame:
    """See ``Library``: only the main loop has a code there."""
    codes = {name: code for code, name in enumerate(_REFERENCE_LOOPS)}
    return candidates.assign(loop=candidates["pipeline"].map(codes).fillna(0))
