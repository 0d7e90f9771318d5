"""Which kernels there are, and which problems they can run."""

from tileseer.libraries.rules import (
    ACCESSES,
    OPERATION,
    VECTORS_DIVIDE_RUNS,
    Rule,
    Rules,
    channel_runs_of,
    gemm_kernel_columns,
)
from tileseer.problems import shapes
from toy_library.kernel import ToyKernel

SMALL = Rule("small", "a tile of {area} elements; at most 8192", ("kernel",), lambda k: k["area"] <= 8192)


def _read_of_kernels(candidates, wave_size):
    return gemm_kernel_columns(candidates, ToyKernel, wave_size) | {
        "area": (candidates["tile_m"] * candidates["tile_n"]).to_numpy()
    }


def _read_of_problems(dims, variant, element_size):
    return {"G": dims["G"]} | channel_runs_of(shapes.gemm_columns(dims, variant, element_size))


RULES = Rules((SMALL, OPERATION, VECTORS_DIVIDE_RUNS), _read_of_kernels, _read_of_problems, ACCESSES)
