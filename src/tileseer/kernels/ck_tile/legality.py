"""Which kernels are legal on an arch; what a *problem* demands is in ``support``."""

from collections.abc import Sequence

import numpy as np

from tileseer.gpus.arch import ArchSpecs
from tileseer.kernels.ck_tile.kernel import KernelConfig
from tileseer.kernels.ck_tile.pipelines import ALWAYS_DOUBLE_LDS
from tileseer.kernels.rules import THREADS_FIT, TILE_DIVIDES, Columns, Rule, kernel_columns
from tileseer.problems.implicit_gemm import channel_runs

VECTOR_WIDTHS = (1, 2, 4, 8, 16)


def legality_columns(kernels: Sequence[KernelConfig], arch: str, specs: ArchSpecs) -> dict[str, np.ndarray]:
    """What the rules read of Q kernels, [Q] each."""
    waves = [tuple(wave) for wave in specs.arch(arch).waves]
    k = kernel_columns(kernels, arch, specs)
    k["arch_waves"] = np.full(len(kernels), str(waves))
    k["has_waves"] = np.array([one.wave in waves for one in kernels])
    k["excluded"] = np.array([specs.is_trait_excluded(one.pipeline, one.epilogue, one.scheduler) for one in kernels])
    element = np.array([specs.element_size(one.dtype) for one in kernels])
    k["operand_bytes"] = ((k["tile_m"] + k["tile_n"]) * k["tile_k"] * element).astype(np.int64)
    budget = np.array([specs.lds_budget(one.pipeline, arch) for one in kernels])
    k["lds_budget"] = np.where(k["double_smem_buffer"], np.minimum(budget, k["lds"] // 2), budget)
    # The widest load or store along C.
    runs = [channel_runs(one.variant, "C", "K") for one in kernels]
    along_c = [np.array([run[axis] == "C" for run in runs]) for axis in range(3)]
    widths = [np.where(along, k[f"vec_{x}"], 1) for along, x in zip(along_c, "abc", strict=True)]
    k["channel_vector"] = np.maximum.reduce(widths)
    return k


def _loads_whole_vectors(k: Columns, side: str, vector: str) -> np.ndarray:
    return k[side] * k["tile_k"] // (k["threads"] * k[vector]) >= 1


TRAIT_ALLOWED = Rule(
    "trait_allowed",
    "{pipeline} with the {epilogue} epilogue has no {scheduler} scheduler",
    lambda p, k: ~k["excluded"],
)
PIPELINE_FITS_VARIANT = Rule(
    "pipeline_fits_variant",
    "compv5 exists for forward only, not for {variant}",
    lambda p, k: (k["pipeline"] != "compv5") | (k["variant"] == "forward"),
)
FULL_LOAD_PER_THREAD = Rule(
    "full_load_per_thread",
    "compv6: {threads} threads x {vec_a} or {vec_b} elements are more than the whole A or B tile",
    lambda p, k: (
        (k["pipeline"] != "compv6")
        | (_loads_whole_vectors(k, "tile_m", "vec_a") & _loads_whole_vectors(k, "tile_n", "vec_b"))
    ),
)
LEGALITY = (
    Rule(
        "waves_on_arch",
        "waves ({wave_m}, {wave_n}, {wave_k}) are not among those of {arch}: {arch_waves}",
        lambda p, k: k["has_waves"],
    ),
    Rule(
        "warp_tile_on_arch",
        "warp tile ({warp_tile_m}, {warp_tile_n}, {warp_tile_k}) is no {dtype} matrix instruction of {arch}: "
        "{warp_tiles}",
        lambda p, k: k["has_warp_tile"],
    ),
    TILE_DIVIDES,
    THREADS_FIT,
    TRAIT_ALLOWED,
    PIPELINE_FITS_VARIANT,
    Rule(
        "options_fit_variant",
        "two_stage and stream-K exist for bwd_weight only, not for {variant}",
        lambda p, k: (k["variant"] == "bwd_weight") | (~k["two_stage"] & (k["streamk"] == "none")),
    ),
    Rule(
        "buffering_fits_pipeline",
        "{pipeline} needs double_smem_buffer",
        lambda p, k: k["double_smem_buffer"] | ~np.isin(k["pipeline"], ALWAYS_DOUBLE_LDS),
    ),
    Rule(
        "vector_widths",
        f"vectors of {{vec_a}}, {{vec_b}} and {{vec_c}} elements; there are loads and stores of {VECTOR_WIDTHS}",
        lambda p, k: np.logical_and.reduce([np.isin(k[f"vec_{x}"], VECTOR_WIDTHS) for x in "abc"]),
    ),
    Rule(
        "one_channel",
        "filter3x3 takes one channel per group, and a vector needs {channel_vector}: no problem can run",
        lambda p, k: (k["specialization"] != "filter3x3") | (k["channel_vector"] == 1),
    ),
    Rule(
        "lds_fits",
        "a tile of {operand_bytes} bytes is over the {lds_budget} bytes of LDS that {arch} leaves",
        lambda p, k: k["operand_bytes"] <= k["lds_budget"],
    ),
    FULL_LOAD_PER_THREAD,
)
