"""Which kernels there are, and which problems they can run."""

import numpy as np

from tileseer.kernels.rules import OPERATION, Rule, SupportRules, vectors_divide_runs
from tileseer.problems import implicit_gemm

SMALL = Rule("small", "a tile of {area} elements; at most 8192", lambda p, k: k["area"] <= 8192)


def _read_of_problems(dims, variant, element_size):
    sizes = implicit_gemm.gemm_columns(dims, variant, element_size)
    return {"G": dims["G"]} | {f"run_{x}": sizes[f"run_{x}"].astype(np.int64) for x in "abc"}


RULES = SupportRules(
    (OPERATION, Rule("vector", "a vector width does not divide the channels", vectors_divide_runs)),
    lambda candidates, wave_size: candidates[["vec_a", "vec_b", "vec_c"]].copy(),
    _read_of_problems,
)
