"""The feature set of Composable Kernel's Python predictor: its 97 names, its order, its meaning of them.

A model trained on it loads there and ranks there as it does here. So everything is kept that makes it a worse
description than ours: the tile (m, n, k) of a kernel stands under ``block_size``, ``gemm_m_per_block`` and
``gemm_n_per_block``, shifted by one name; the GEMM sizes are those of the forward direction for all directions;
tiles are not counted by group. Values are float64, as they are there: a threshold that lies between a value and its
float32 would send the two programs down different branches.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from tileseer.facts.hardware import Hardware
from tileseer.facts.operations import ELEMENT_BYTES
from tileseer.libraries.features.table import Columns, Feature, FeatureSet, PairColumns, column, raw
from tileseer.libraries.registry import library_of_kernels
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS

COMPV4_LDS = 32768
"""LDS bytes that the reference grants compv4, whatever the device."""


def hardware_arguments(hardware: Hardware) -> dict[str, int]:
    """Return the eleven constructor arguments of the reference's feature engine, for ``feature_spec.json``."""
    return {
        "num_cus": hardware.compute_units,
        "simds_per_cu": hardware.simds_per_cu,
        "shader_engines": hardware.shader_engines,
        "max_clock_mhz": round(hardware.clock_ghz * 1000),
        "max_waves_per_cu": hardware.max_waves_per_cu,
        "wavefront_size": hardware.wave_size,
        "lds_capacity": hardware.lds_bytes,
        "l1_cache_kb": hardware.l1_kib,
        "l2_cache_kb": round(hardware.l2_mib * 1024),
        "l3_cache_kb": round(hardware.llc_mib * 1024),
        "num_xcd": hardware.xcds,
    }


def _problem_columns(dims: Columns, operation: Operation, hardware: Hardware) -> dict[str, np.ndarray]:
    """Return the 19 dimensions and what follows from them, float64 [P] by name."""
    p = {name: dims[name].astype(np.float64) for name in DIMS}
    p["is_3d"] = ((p["Di"] > 1) | (p["Z"] > 1) | (p["pad_d"] > 0)).astype(np.float64)
    deep = p["is_3d"] > 0
    for out, image, extent, axis in (("Do", "Di", "Z", "d"), ("Ho", "Hi", "Y", "h"), ("Wo", "Wi", "X", "w")):
        reach = (p[extent] - 1) * p[f"dilation_{axis}"] + 1
        p[out] = (p[image] + 2 * p[f"pad_{axis}"] - reach) // p[f"stride_{axis}"] + 1
    p["Do"] = np.where(deep, p["Do"], 1.0)
    p["volume_in"] = p["Hi"] * p["Wi"] * np.where(deep, p["Di"], 1.0)
    p["filter_area"] = p["Y"] * p["X"] * np.where(deep, p["Z"], 1.0)
    p["volume_out"] = p["Ho"] * p["Wo"] * p["Do"]
    p["channels_per_group"], p["out_per_group"] = p["C"] / p["G"], p["K"] / p["G"]
    flops = 2 * p["N"] * p["K"] * p["volume_out"] * p["channels_per_group"] * p["filter_area"]
    moved = (
        p["N"] * p["C"] * p["volume_in"]
        + p["K"] * p["channels_per_group"] * p["filter_area"]
        + p["N"] * p["K"] * p["volume_out"]
    )
    p["arithmetic_intensity"] = flops / np.maximum(moved * ELEMENT_BYTES[operation.dtype], 1)
    p["gemm_m_output"] = p["N"] * p["volume_out"]
    p["gemm_n_output"] = p["K"]
    p["gemm_k_output"] = np.trunc(p["channels_per_group"] * p["filter_area"])
    # The constants of the device travel with the problem: the reference repeats them in every row.
    constants = hardware_arguments(hardware)
    constants["total_simds"] = constants["num_cus"] * constants["simds_per_cu"]
    return p | {f"hw_{name}": np.ones_like(p["N"]) * float(value) for name, value in constants.items()}


def _candidate_columns(candidates: pd.DataFrame, hardware: Hardware) -> dict[str, np.ndarray]:
    """Return the reference's fields of a kernel, float64 [Q] by name."""
    library = library_of_kernels(candidates["kernel"].tolist())
    candidates = library.made_here(library.in_reference_words)(candidates)
    # Most columns are one comparison of the pipeline's name, which numbers do much faster than words.
    pipeline, names = pd.factorize(candidates["pipeline"])

    def is_pipeline(name: str) -> np.ndarray:
        return (pipeline == names.get_indexer(pd.Index([name]))[0]).astype(np.float64)

    tile = {axis: candidates[f"tile_{axis}"].to_numpy(np.float64) for axis in "mnk"}
    c = {
        "block_size": tile["m"],
        "gemm_m_per_block": tile["n"],
        "gemm_n_per_block": tile["k"],
        "pipeline": candidates["loop"].to_numpy(np.float64),
        **{f"is_{name}": is_pipeline(name) for name in ("compv3", "compv4", "compv5", "compv6", "mem")},
        "is_intrawave": (candidates["scheduler"] == "intrawave").to_numpy(np.float64),
        "has_dsb": candidates["double_smem_buffer"].to_numpy(np.float64),
        "has_si": candidates["split_image"].to_numpy(np.float64),
        "is_basic": np.array([name.startswith("basic_v") for name in names], np.float64)[pipeline],
    }
    c["lds_usage_estimate"] = (
        (c["gemm_m_per_block"] + c["gemm_n_per_block"]) * c["block_size"] * ELEMENT_BYTES[candidates["dtype"].iloc[0]]
    )
    c["lds_limit"] = np.where(c["is_compv4"] > 0, COMPV4_LDS, hardware.lds_bytes)
    return c


def _add_pair_columns(x: PairColumns) -> None:
    """Add the tiles of n pairs as the reference counts them, float64 [n] each."""
    for axis, name in (("m", "gemm_m_per_block"), ("n", "gemm_n_per_block"), ("k", "block_size")):
        size, tile = x[f"gemm_{axis}_output"], x[name]
        ratio = size / tile
        # Sizes are whole numbers below 2**53, so this is the remainder exactly, without a slow modulo.
        rest = size - np.floor(ratio) * tile
        x[f"num_tiles_{axis}"] = np.ceil(ratio)
        x[f"tile_eff_{axis}"] = np.where(rest > 0, rest / tile, 1.0)
        x[f"ratio_gemm_{axis}_to_tile_{axis}"] = ratio
        x[f"problem_smaller_than_tile_{axis}"] = size < tile
    x["total_output_tiles"] = x["num_tiles_m"] * x["num_tiles_n"]


def _log2(name: str) -> Callable[[Columns], np.ndarray]:
    return lambda p: np.log2(np.maximum(p[name], 1))


def _log2s(**columns: str) -> tuple[Feature, ...]:
    return tuple(Feature(name, "1", f"log2 of {of}, at least 0", _log2(of)) for name, of in columns.items())


def _flag(name: str, meaning: str, holds: Callable[[Columns], np.ndarray]) -> Feature:
    return Feature(name, "1", f"{meaning}, 0 or 1", lambda columns: holds(columns).astype(np.float64))


def _is_cube(p: Columns, extent: int) -> np.ndarray:
    """Tell whether every filter extent that counts is ``extent``."""
    deep = (p["Z"] == extent) | ((p["is_3d"] == 0) if extent > 1 else False)
    return (p["Y"] == extent) & (p["X"] == extent) & deep


_SHAPE = (
    *raw("1", N="batch size", C="input channels", K="output channels", G="groups", Hi="input height", Wi="input width",
         Y="filter height", X="filter width", stride_h="stride", stride_w="stride", pad_h="padding", pad_w="padding",
         Ho="output height", Wo="output width"),
    *_log2s(log2_N="N", log2_C="C", log2_K="K", log2_G="G", log2_Hi="Hi", log2_Wi="Wi", log2_spatial="volume_in",
            log2_filter="filter_area", log2_output="volume_out"),
    *raw("FLOP/B", arithmetic_intensity="useful FLOP / bytes of the three tensors"),
    *raw("1", filter_area="Y * X, and Z in 3D"),
    _flag("is_1x1_conv", "filter of 1x1(x1)", lambda p: _is_cube(p, 1)),
    _flag("is_3x3_conv", "filter of 3x3(x3)", lambda p: _is_cube(p, 3)),
    *raw("1", channels_per_group="C / G"),
    Feature("aspect_ratio_hw", "1", "Hi / Wi", lambda p: p["Hi"] / p["Wi"]),
    Feature("aspect_ratio_filter", "1", "Y / X", lambda p: p["Y"] / p["X"]),
    *raw("1", is_3d="Di > 1 or Z > 1 or pad_d > 0", Di="input depth", Z="filter depth", Do="output depth",
         stride_d="stride", pad_d="padding", dilation_h="dilation", dilation_w="dilation"),
    *_log2s(log2_channels_per_group="channels_per_group", log2_output_channels_per_group="out_per_group"),
    _flag("is_depthwise", "G = C = K", lambda p: (p["G"] == p["C"]) & (p["G"] == p["K"])),
    Feature("group_density", "1", "G / C", lambda p: p["G"] / p["C"]),
    _flag("is_small_group", "C/G or K/G below 16",
          lambda p: (p["channels_per_group"] < 16) | (p["out_per_group"] < 16)),
    Feature("channels_product_per_group", "1", "C/G * K/G", lambda p: p["channels_per_group"] * p["out_per_group"]),
    Feature("batch_group_product", "1", "N * G", lambda p: p["N"] * p["G"]),
    _flag("is_small_batch_grouped", "N below 8 and several groups", lambda p: (p["N"] < 8) & (p["G"] > 1)),
)  # fmt: skip
_KERNEL_FEATURES = (
    *raw("elements", block_size="tile_m of the kernel", gemm_m_per_block="tile_n of the kernel",
         gemm_n_per_block="tile_k of the kernel"),
    Feature("pipeline", "code", "main loop, the reference's code", column("pipeline"), categorical=True),
    Feature("num_warps", "1", "block_size / 4", lambda c: c["block_size"] / 4),
    Feature("tile_volume", "1", "product of the three sizes",
            lambda c: c["gemm_m_per_block"] * c["gemm_n_per_block"] * c["block_size"]),
    Feature("tile_mn", "1", "gemm_m_per_block * gemm_n_per_block",
            lambda c: c["gemm_m_per_block"] * c["gemm_n_per_block"]),
    *raw("B", lds_usage_estimate="(gemm_m_per_block + gemm_n_per_block) * block_size * element bytes"),
    Feature("lds_usage_ratio", "1", "lds_usage_estimate / LDS (of compv4: 32 KiB)",
            lambda c: c["lds_usage_estimate"] / c["lds_limit"]),
    Feature("block_tile_ratio_m", "1", "gemm_m_per_block / block_size",
            lambda c: c["gemm_m_per_block"] / c["block_size"]),
    Feature("block_tile_ratio_n", "1", "gemm_n_per_block / block_size",
            lambda c: c["gemm_n_per_block"] / c["block_size"]),
    Feature("block_efficiency", "1", "smaller over larger of gemm_m_per_block and gemm_n_per_block",
            lambda c: np.minimum(c["gemm_m_per_block"], c["gemm_n_per_block"])
            / np.maximum(c["gemm_m_per_block"], c["gemm_n_per_block"])),
    *raw("1", is_compv3="pipeline", is_compv4="pipeline", is_compv5="pipeline", is_intrawave="scheduler",
         has_dsb="two LDS buffers", has_si="split image", is_basic="pipeline", is_compv6="pipeline", is_mem="pipeline"),
)  # fmt: skip
_GEMM = raw("1", gemm_m_output="N * output pixels", gemm_n_output="K", gemm_k_output="C/G * filter_area")
_TILE_FEATURES = (
    *raw("1", num_tiles_m="ceil(gemm_m_output / gemm_m_per_block)",
         num_tiles_n="ceil(gemm_n_output / gemm_n_per_block)", num_tiles_k="ceil(gemm_k_output / block_size)",
         total_output_tiles="num_tiles_m * num_tiles_n"),
    *(
        Feature(f"tile_eff_{axis}", "1", f"used share of the last tile along {axis}", column(f"tile_eff_{axis}"))
        for axis in "mnk"
    ),
    Feature("overall_tile_efficiency", "1", "product of the three",
            lambda x: x["tile_eff_m"] * x["tile_eff_n"] * x["tile_eff_k"]),
    Feature("cu_utilization", "1", "total_output_tiles / compute units",
            lambda x: x["total_output_tiles"] / x["compute_units"]),
    *raw("1", ratio_gemm_m_to_tile_m="gemm_m_output / gemm_m_per_block",
         ratio_gemm_n_to_tile_n="gemm_n_output / gemm_n_per_block",
         ratio_gemm_k_to_tile_k="gemm_k_output / block_size"),
    *(
        Feature(name, "1", f"ratio_gemm_{axis}_to_tile_{axis} below 1, 0 or 1", column(name))
        for axis in "mnk"
        for name in [f"problem_smaller_than_tile_{axis}"]
    ),
)  # fmt: skip
_HARDWARE_FEATURES = raw(
    "1", hw_num_cus="compute units", hw_simds_per_cu="SIMDs of a compute unit", hw_total_simds="SIMDs of the device",
    hw_shader_engines="shader engines", hw_max_clock_mhz="peak clock, MHz",
    hw_max_waves_per_cu="waves that a compute unit holds", hw_wavefront_size="lanes of a wave",
    hw_lds_capacity="LDS of a compute unit, bytes", hw_l1_cache_kb="L1, KiB", hw_l2_cache_kb="L2 of a die, KiB",
    hw_l3_cache_kb="last cache before memory, KiB", hw_num_xcd="dies",
)  # fmt: skip

REFERENCE = FeatureSet(
    problem=(*_SHAPE, *_GEMM, *_HARDWARE_FEATURES),
    candidate=_KERNEL_FEATURES,
    pair=_TILE_FEATURES,
    problem_columns=_problem_columns,
    candidate_columns=_candidate_columns,
    add_pair_columns=_add_pair_columns,
    dtype=np.float64,
    order=tuple(feature.name for feature in (*_SHAPE, *_KERNEL_FEATURES, *_GEMM, *_TILE_FEATURES, *_HARDWARE_FEATURES)),
)
