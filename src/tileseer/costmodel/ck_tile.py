"""CK Tile kernels in the terms of the simulated device: what a block costs, whatever the problem.

Cycles of a k-step, of prologue and epilogue. Formulas and their basis: docs/simulated-device.md.
"""

import numpy as np
import pandas as pd

from tileseer.config.operations import DTYPES
from tileseer.core import content_hash
from tileseer.costmodel.ck_tile_resources import estimate
from tileseer.costmodel.coefficients import Coefficients
from tileseer.costmodel.simulation import KernelTerms
from tileseer.gpus.hardware import Hardware
from tileseer.kernels.candidates import VECTOR_BYTES, capped_vectors
from tileseer.kernels.ck_tile.kernel import SPECIALIZATIONS, STREAMK
from tileseer.kernels.ck_tile.lds import ALWAYS_DOUBLE_LDS, double_lds
from tileseer.kernels.ck_tile.support import CK_TILE_SUPPORT
from tileseer.kernels.support_rules import codes
from tileseer.problems.implicit_gemm import element_bytes

_SIZES = tuple(f"{what}_{axis}" for what in ("tile", "wave", "warp_tile") for axis in "mnk")
_FLAGS = (
    "vec_a", "vec_b", "vec_c", "num_groups_to_merge", "double_smem_buffer", "two_stage", "split_image",
    "explicit_gemm",
)  # fmt: skip
_RARE = {"num_wave_groups": 1, "pad_m": True, "pad_n": True, "pad_k": True}
"""Kernel fields without a formula; other values than these make another kernel to the deviation."""
_COLUMNS = ("tile_m", "tile_n", "tile_k", "num_groups_to_merge", "split_k", "two_stage", "split_image")


def terms(
    problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, hardware: Hardware, coefficients: Coefficients
) -> KernelTerms:
    """Costs, identities and verdicts of Q candidates (fields of ``KernelConfig``, ``split_k``)."""
    need = estimate(candidates, hardware, coefficients)
    verdicts, classes = CK_TILE_SUPPORT.check_classes(problems, candidates, variant, hardware)
    codes = _pipeline_table(candidates, coefficients)["code"].astype(np.int64)
    tiles = (np.log2(candidates[f"tile_{axis}"].to_numpy(np.float64)) for axis in "mnk")
    shape = (
        *tiles, np.log2(need["waves_per_simd"] * 4), need["occupancy"], codes * 0.7,
        np.log2(need["loads_a"]), np.log2(need["loads_b"]), double_lds(candidates),
    )  # fmt: skip
    return KernelTerms(
        columns={
            **{name: candidates[name].to_numpy() for name in _COLUMNS},
            **block_cost(candidates, need, variant, hardware, coefficients),
            "occupancy": need["occupancy"].to_numpy(),
            "streamk": (candidates["streamk"] != "none").to_numpy(),
        },
        ids=_ids(candidates, codes),
        shape=np.stack(shape).astype(np.float64),
        fits=(need["fault"] == "").to_numpy(bool),
        verdicts=verdicts,
        classes=classes,
    )


def _ids(candidates: pd.DataFrame, pipeline_code: np.ndarray) -> np.ndarray:
    """Content hash of each of Q candidates, uint64 [Q]; names of one pipeline share ``pipeline_code``."""
    value = {name: candidates[name].to_numpy() for name in (*_SIZES, *_FLAGS)}
    streamk = codes(candidates["streamk"], STREAMK) + 2 * candidates["streamk_persistent"].to_numpy(np.int64)
    ids = content_hash.rows(
        *(value[name] for name in _SIZES),
        pipeline_code,
        candidates["scheduler"].to_numpy(object) == "interwave",
        *(value[name] for name in _FLAGS),
        streamk,
        codes(candidates["specialization"], SPECIALIZATIONS),
        candidates["epilogue"].to_numpy(object) != "cshuffle",
        candidates["split_k"].to_numpy(),
        codes(candidates["dtype"], DTYPES),
    )
    rare = [candidates[name].to_numpy(np.int64) for name in _RARE]
    unusual = np.logical_or.reduce([column != usual for column, usual in zip(rare, _RARE.values(), strict=True)])
    return np.where(unusual, content_hash.rows(ids.view(np.int64), *rare), ids)


def block_cost(
    candidates: pd.DataFrame, resources: pd.DataFrame, variant: str, hardware: Hardware, coefficients: Coefficients
) -> dict[str, np.ndarray]:
    """Costs of Q candidates, float64 [Q] each; ``resources`` are those of ``resources.estimate``.

    ``step_latency`` and ``step_cost``: cycles of a k-step of a lone block, and added by it among others;
    ``ends_latency`` and ``ends_cost``: the same for prologue and epilogue; ``address_share``: share of address work
    in the variable part of the latency.
    """
    pipeline = _pipeline_table(candidates, coefficients)
    address_latency, address_cost = _address(candidates, resources, variant, pipeline, hardware, coefficients)
    matrix = _matrix(candidates, hardware, coefficients)
    ends_latency, ends_cost = _ends(candidates, resources, variant, pipeline, coefficients)

    law = coefficients.iteration
    interwave = (candidates["scheduler"] == "interwave").to_numpy()
    fixed = _fixed_latency(candidates, pipeline, coefficients)
    spilling = 1.0 + coefficients.registers.spill_slope * resources["spill_ratio"].to_numpy()
    latency = address_latency + matrix
    hidden = pipeline["overlap"] * np.minimum(address_latency, matrix)
    cost = address_cost + matrix - pipeline["overlap"] * np.minimum(address_cost, matrix)
    return {
        "step_latency": (fixed + latency - hidden) * spilling,
        "step_cost": cost * np.where(interwave, law.interwave_throughput, 1.0) * spilling,
        "ends_latency": ends_latency,
        "ends_cost": ends_cost,
        "address_share": address_latency / latency,
    }


def _pipeline_table(candidates: pd.DataFrame, coefficients: Coefficients) -> dict[str, np.ndarray]:
    names = candidates["pipeline"].map(coefficients.physical).tolist()
    chosen = [coefficients.pipelines[name] for name in names]
    columns: dict[str, np.ndarray] = (
        {
            field: np.array([getattr(pipeline, field) for pipeline in chosen], np.float64)
            for field in type(chosen[0]).model_fields
        }
        if chosen
        else {}
    )
    columns["is_async"] = np.isin(names, coefficients.async_pipelines)
    return columns


def _address(
    candidates: pd.DataFrame, resources: pd.DataFrame, variant: str, pipeline: dict[str, np.ndarray],
    hardware: Hardware, coefficients: Coefficients,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Cycles of im2col address work in a k-step: of one block, and per SIMD among others."""
    law, direction = coefficients.iteration, coefficients.directions[variant]
    special = candidates["specialization"].map(coefficients.specializations).to_numpy(np.float64)
    special = np.where(candidates["explicit_gemm"].to_numpy(bool), coefficients.explicit_gemm, special)
    work = resources["loads_a"].to_numpy() * law.address_a * direction.address_a * special
    work = work + resources["loads_b"].to_numpy() * law.address_b * direction.address_b
    if not hardware.async_load_128bit:
        work = work * np.where(pipeline["is_async"], law.missing_async_loads, 1.0)
    # Wavelet's load waves stand one to a SIMD; its other waves issue no loads.
    wavelet = (candidates["pipeline"] == "wavelet").to_numpy()
    waves = np.where(wavelet, 1.0, resources["waves_per_simd"].to_numpy())
    cost = work * law.address_throughput * pipeline["address_throughput"] * waves
    return work * pipeline["address_latency"], cost


def _matrix(candidates: pd.DataFrame, hardware: Hardware, coefficients: Coefficients) -> np.ndarray:
    """Cycles of the matrix instructions of a k-step, behind which the traffic of the LDS hides."""
    law = coefficients.matrix
    m, n, k = (candidates[f"warp_tile_{axis}"].to_numpy() for axis in "mnk")
    longest_k = np.where(m >= 32, k >= 16, k >= 32)
    rate = hardware.matrix_flops_16bit * np.where(longest_k, 1.0, hardware.short_k_rate)
    rate = np.where((candidates["dtype"] == "fp32").to_numpy(), hardware.matrix_flops_fp32, rate)
    rate = rate * np.where(m * n < 256, law.small_tile, 1.0) * np.where(m != n, law.oblong_tile, 1.0)
    return 2.0 * _product(candidates, "tile_m", "tile_n", "tile_k") / rate * law.overhead


def _fixed_latency(candidates: pd.DataFrame, pipeline: dict[str, np.ndarray], coefficients: Coefficients) -> np.ndarray:
    law = coefficients.iteration
    chosen = double_lds(candidates) & ~candidates["pipeline"].isin(ALWAYS_DOUBLE_LDS).to_numpy()
    interwave = (candidates["scheduler"] == "interwave").to_numpy()
    latency = law.latency * pipeline["latency"] * np.where(chosen, law.double_lds_latency, 1.0)
    return latency * np.where(interwave, law.interwave_latency, 1.0)


def _ends(
    candidates: pd.DataFrame, resources: pd.DataFrame, variant: str, pipeline: dict[str, np.ndarray],
    coefficients: Coefficients,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Cycles of prologue and epilogue: of one block, and among others."""
    law = coefficients.block
    size = element_bytes(candidates["dtype"])
    _, _, vec_c = capped_vectors(candidates)
    elements = _product(candidates, "tile_m", "tile_n") * np.sqrt(size / 2.0)
    factor = pipeline["epilogue"] * coefficients.directions[variant].epilogue
    factor = factor * (1.0 + law.narrow_store * np.log2(VECTOR_BYTES / (size * vec_c)))
    factor = factor * np.where((candidates["epilogue"] == "cshuffle").to_numpy(), 1.0, law.without_cshuffle)
    prologue = law.fixed_latency * (1.0 + law.stage_latency * (pipeline["stages"] - 1.0))
    latency = prologue + law.element_latency * elements * factor
    waves = resources["waves_per_simd"].to_numpy()
    return latency, law.fixed_throughput * waves + law.element_throughput * elements * factor


def _product(candidates: pd.DataFrame, *names: str) -> np.ndarray:
    return np.prod([candidates[name].to_numpy(np.float64) for name in names], axis=0)
