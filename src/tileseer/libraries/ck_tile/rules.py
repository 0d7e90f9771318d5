"""Which CK Tile kernels can exist on an arch, and which problems they can run."""

import numpy as np
import pandas as pd

from tileseer.facts.arch import ArchSpecs
from tileseer.libraries.ck_tile.kernel import KernelConfig
from tileseer.libraries.ck_tile.pipelines import ALWAYS_DOUBLE_LDS
from tileseer.libraries.rules import (
    ACCESSES,
    OPERATION,
    THREADS_FIT,
    TILE_DIVIDES,
    VECTORS_DIVIDE_RUNS,
    Columns,
    Rule,
    Rules,
    channel_runs_of,
    gemm_arch_columns,
    gemm_kernel_columns,
)
from tileseer.problems.shapes import channel_runs, element_bytes, gemm_columns

VECTOR_WIDTHS = (1, 2, 4, 8, 16)
LARGEST_TENSOR = 2**31
"""Bytes from which 32-bit offsets no longer reach the whole tensor."""
MOST_SUB_GEMMS = 128
"""Places for sub-GEMMs in the arguments of a bwd_data kernel."""
MOST_SLICES_OF_16_BITS = 128
"""Of split-K, where the sum of the slices is not kept in fp32."""
INTERWAVE_PIPELINES = ("mem", "basic_v1", "basic_v2", "compv1", "compv2")


def _loads_whole_vectors(k: Columns) -> np.ndarray:
    a, b = (
        k[side] * k["tile_k"] // (k["threads"] * k[vec]) for side, vec in (("tile_m", "vec_a"), ("tile_n", "vec_b"))
    )
    return (k["pipeline"] != "compv6") | (np.minimum(a, b) >= 1)


def _filter_fits_specialization(k: Columns, p: Columns) -> np.ndarray:
    """Tell whether filter, stride and padding are those that the kernel was specialised for.

    A kernel for 3 x 3 filters has no channels: it reduces over the taps of one channel a group, in every direction.
    """
    pointwise = p["is_1x1"] & p["pad0"]
    depth = (p["Z"] == 3) | (k["signature"] % 4 != 3)
    taps_only = p["is_3x3"] & depth & (p["run_b"] == 1)
    wanted = k["specialization"]
    return (
        ((wanted != "filter1x1_pad0") | pointwise)
        & ((wanted != "filter1x1_stride1_pad0") | (pointwise & p["stride1"]))
        & ((wanted != "filter3x3") | taps_only)
    )


TRAIT_ALLOWED = Rule(
    "trait_allowed",
    "{pipeline} with the {epilogue} epilogue has no {scheduler} scheduler",
    ("arch",),
    lambda arch: ~arch["excluded"],
)
PIPELINE_FITS_VARIANT = Rule(
    "pipeline_fits_variant",
    "compv5 exists for forward only, not for {variant}",
    ("kernel",),
    lambda k: (k["pipeline"] != "compv5") | (k["variant"] == "forward"),
)
FULL_LOAD_PER_THREAD = Rule(
    "full_load_per_thread",
    "compv6: {threads} threads x {vec_a} or {vec_b} elements are more than the whole A or B tile",
    ("kernel",),
    _loads_whole_vectors,
)
# arch: what its table says of each kernel; k: kernels; p: problems; split: split-K.
_EVERY_RULE = (
    Rule(
        "waves_on_arch",
        "waves ({wave_m}, {wave_n}, {wave_k}) are not among those of {arch}: {arch_waves}",
        ("arch",),
        lambda arch: arch["has_waves"],
    ),
    Rule(
        "warp_tile_on_arch",
        "warp tile ({warp_tile_m}, {warp_tile_n}, {warp_tile_k}) is no {dtype} matrix instruction of {arch}: "
        "{warp_tiles}",
        ("arch",),
        lambda arch: arch["has_warp_tile"],
    ),
    TILE_DIVIDES,
    THREADS_FIT,
    TRAIT_ALLOWED,
    PIPELINE_FITS_VARIANT,
    Rule(
        "options_fit_variant",
        "two_stage and stream-K exist for bwd_weight only, not for {variant}",
        ("kernel",),
        lambda k: (k["variant"] == "bwd_weight") | (~k["two_stage"] & (k["streamk"] == "none")),
    ),
    Rule(
        "buffering_fits_pipeline",
        "{pipeline} needs double_smem_buffer",
        ("kernel",),
        lambda k: k["double_smem_buffer"] | ~np.isin(k["pipeline"], ALWAYS_DOUBLE_LDS),
    ),
    Rule(
        "vector_widths",
        f"vectors of {{vec_a}}, {{vec_b}} and {{vec_c}} elements; there are loads and stores of {VECTOR_WIDTHS}",
        ("kernel",),
        lambda k: np.logical_and.reduce([np.isin(k[f"vec_{x}"], VECTOR_WIDTHS) for x in "abc"]),
    ),
    Rule(
        "one_channel",
        "filter3x3 takes one channel per group, and a vector needs {channel_vector}: no problem can run",
        ("kernel",),
        lambda k: (k["specialization"] != "filter3x3") | (k["channel_vector"] == 1),
    ),
    Rule(
        "lds_fits",
        "a tile of {operand_bytes} bytes is over the {lds_budget} bytes of LDS that {arch} leaves",
        ("arch", "kernel"),
        lambda arch, k: k["operand_bytes"] <= arch["lds_budget"],
    ),
    FULL_LOAD_PER_THREAD,
    Rule(
        "scheduler_fits_pipeline",
        f"the interwave scheduler exists for {', '.join(INTERWAVE_PIPELINES)} only, not for {{pipeline}}",
        ("kernel",),
        lambda k: (k["scheduler"] != "interwave") | np.isin(k["pipeline"], INTERWAVE_PIPELINES),
    ),
    Rule(
        "streamk_fits_waves",
        "stream-K needs waves of 64 lanes, not of {wave_size}",
        ("kernel",),
        lambda k: (k["wave_size"] != 32) | (k["streamk"] == "none"),
    ),
    Rule(
        "split_k",
        f"split_k > 1 exists for bwd_weight kernels without stream-K only, up to {MOST_SLICES_OF_16_BITS} where slices "
        "are added in 16 bits",
        ("kernel", "split"),
        lambda k, split: (
            (split == 1)
            | (
                ((k["variant"] == "bwd_weight") & (k["streamk"] == "none"))
                & ((split <= MOST_SLICES_OF_16_BITS) | k["two_stage"] | (k["dtype"] == "fp32"))
            )
        ),
    ),
    OPERATION,
    VECTORS_DIVIDE_RUNS,
    Rule(
        "specialization",
        "the kernel is specialised for another filter, stride, padding or number of channels",
        ("kernel", "problem"),
        _filter_fits_specialization,
    ),
    Rule(
        "explicit_gemm",
        "explicit GEMM needs a 1x1 filter, stride 1 and no padding",
        ("kernel", "problem"),
        lambda k, p: ~k["explicit_gemm"] | (p["is_1x1"] & p["pad0"] & p["stride1"]),
    ),
    Rule(
        "merge_groups",
        "G is not a multiple of num_groups_to_merge",
        ("kernel", "problem"),
        lambda k, p: p["G"] % k["num_groups_to_merge"] == 0,
    ),
    Rule(
        "slice_of_a_step",
        "split_k leaves a slice less than one warp tile of the reduction",
        ("kernel", "problem", "split"),
        lambda k, p, split: (split == 1) | (k["warp_tile_k"] * split <= p["gemm_k"]),
    ),
    # 32-bit byte offsets reach the end of the image tensors, or the kernel splits them.
    Rule(
        "tensor_size",
        "an image tensor of 2 GiB or more needs a split_image kernel",
        ("kernel", "problem"),
        lambda k, p: k["split_image"] | (p["largest_image"] < LARGEST_TENSOR),
    ),
    Rule(
        "sub_gemms",
        f"bwd_data falls into more than {MOST_SUB_GEMMS} sub-GEMMs",
        ("problem",),
        lambda p: p["sub_gemms"] <= MOST_SUB_GEMMS,
    ),
)


def _read_of_kernels(candidates: pd.DataFrame, wave_size: int) -> dict[str, np.ndarray]:
    k = gemm_kernel_columns(candidates, KernelConfig, wave_size)
    element = element_bytes(candidates["dtype"])
    k["operand_bytes"] = ((k["tile_m"] + k["tile_n"]) * k["tile_k"] * element).astype(np.int64)
    # The widest load or store along C.
    widths = [
        [vector if run == "C" else 1 for run, vector in zip(channel_runs(variant, "C", "K"), vectors, strict=True)]
        for variant, *vectors in zip(k["variant"], k["vec_a"], k["vec_b"], k["vec_c"], strict=True)
    ]
    return k | {"channel_vector": np.array([max(row) for row in widths], np.int64)}


def _read_of_arch(k: Columns, arch: str, specs: ArchSpecs) -> dict[str, np.ndarray]:
    waves = [tuple(wave) for wave in specs.arch(arch).waves]
    own = zip(*(k[f"wave_{axis}"].tolist() for axis in "mnk"), strict=True)
    traits = zip(k["pipeline"], k["epilogue"], k["scheduler"], strict=True)
    columns = gemm_arch_columns(k, arch, specs)
    columns["arch_waves"] = np.full(len(k["pipeline"]), str(waves))
    columns["has_waves"] = np.array([wave in waves for wave in own])
    columns["excluded"] = np.array([specs.is_trait_excluded(*trait) for trait in traits])
    budget = np.array([specs.lds_budget(pipeline, arch) for pipeline in k["pipeline"]])
    columns["lds_budget"] = np.where(k["double_smem_buffer"], np.minimum(budget, columns["lds"] // 2), budget)
    return columns


def _read_of_problems(dims: Columns, variant: str, element_size: np.ndarray | float) -> dict[str, np.ndarray]:
    gemm = gemm_columns(dims, variant, element_size)
    columns = {"G": dims["G"], "Z": dims["Z"]} | channel_runs_of(gemm)
    columns |= {name: gemm[name] for name in ("is_1x1", "is_3x3", "stride1", "pad0", "sub_gemms")}
    columns["gemm_k"] = gemm["gemm_k"].astype(np.int64)
    return columns | {"largest_image": np.maximum(gemm["input_bytes"], gemm["output_bytes"])}


RULES = Rules(
    _EVERY_RULE,
    _read_of_kernels,
    _read_of_problems,
    (*ACCESSES, "warp_tile_k", "specialization", "explicit_gemm", "num_groups_to_merge", "split_image"),
    _read_of_arch,
)
