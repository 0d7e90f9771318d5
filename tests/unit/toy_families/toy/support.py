"""A kernel runs problems of its operation whose channels its vectors divide."""

import numpy as np

from tileseer.conv import implicit_gemm
from tileseer.families.support_rules import OPERATION, Rule, distinct, signatures, vectors_divide_runs

RULES = (OPERATION, Rule("vector", "a vector width does not divide the channels", vectors_divide_runs))


def kernel_classes(candidates, wave_size):
    return distinct(candidates[["vec_a", "vec_b", "vec_c"]].assign(signature=signatures(candidates)))


def problem_columns(dims, variant, element_size):
    gemm = implicit_gemm.columns(dims, variant, element_size)
    return {"G": dims["G"]} | {f"run_{x}": gemm[f"run_{x}"].astype(np.int64) for x in "abc"}
