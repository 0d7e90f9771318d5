"""CK Tile kernels in the terms of the simulated device: what a block costs, whatever the problem.

Cycles of a k-step, of prologue and epilogue. Formulas and their basis: docs/internals/simulated-device.md.
"""

import numpy as np
import pandas as pd

from tileseer.core import content_hash, exact
from tileseer.facts.hardware import Hardware
from tileseer.facts.operations import DTYPES
from tileseer.libraries.ck_tile.kernel import SPECIALIZATIONS, STREAMK
from tileseer.libraries.ck_tile.pipelines import ALWAYS_DOUBLE_LDS
from tileseer.libraries.ck_tile.resources import Blocks
from tileseer.libraries.ck_tile.rules import RULES
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.libraries.costs.timing import KernelTerms
from tileseer.libraries.gemm_kernel import SIZES
from tileseer.libraries.rules import VECTOR_BYTES, codes

_FLAGS = (
    "vec_a", "vec_b", "vec_c", "num_groups_to_merge", "double_smem_buffer", "two_stage", "split_image",
    "explicit_gemm",
)  # fmt: skip
_RARE = {"num_wave_groups": 1, "pad_m": True, "pad_n": True, "pad_k": True}
"""Kernel fields without a formula; other values than these have other noise."""
_TERMS_AS_GIVEN = ("tile_m", "tile_n", "tile_k", "num_groups_to_merge", "split_k", "two_stage", "split_image")


def terms(
    problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, hardware: Hardware, coefficients: Coefficients
) -> KernelTerms:
    """Return costs, identities and verdicts of Q candidates (fields of ``KernelConfig``, ``split_k``)."""
    block = Blocks(candidates, hardware, coefficients)
    verdicts, classes = RULES.check_classes(problems, candidates, variant, hardware)
    return KernelTerms(
        columns={
            **{name: candidates[name].to_numpy() for name in _TERMS_AS_GIVEN},
            **_block_cost(block, variant),
            "occupancy": block.occupancy,
            "streamk": (candidates["streamk"] != "none").to_numpy(),
        },
        ids=_ids(candidates, block.pipeline["code"].astype(np.int64)),
        fits=block.faults == "",
        verdicts=verdicts,
        classes=classes,
    )


def _ids(candidates: pd.DataFrame, pipeline_code: np.ndarray) -> np.ndarray:
    """Return the content hash of each of Q candidates, uint64 [Q]; names of one pipeline share ``pipeline_code``."""
    value = {name: candidates[name].to_numpy() for name in (*SIZES, *_FLAGS)}
    streamk = codes(candidates["streamk"], STREAMK) + 2 * candidates["streamk_persistent"].to_numpy(np.int64)
    ids = content_hash.rows(
        *(value[name] for name in SIZES),
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


def _block_cost(block: Blocks, variant: str) -> dict[str, np.ndarray]:
    """Return the costs of Q candidates, float64 [Q] each.

    ``step_latency`` and ``step_cost``: cycles of a k-step of a lone block, and added by it among others;
    ``ends_latency`` and ``ends_cost``: the same for prologue and epilogue; ``address_share``: share of address work
    in the variable part of the latency.
    """
    address_latency, address_cost = _address(block, variant)
    matrix = _matrix(block)
    ends_latency, ends_cost = _ends(block, variant)
    law, overlap = block.coefficients.iteration, block.pipeline["overlap"]
    interwave = (block.candidates["scheduler"] == "interwave").to_numpy()
    spilling = 1.0 + block.coefficients.registers.spill_slope * block.spill_ratio
    latency = address_latency + matrix
    hidden = overlap * np.minimum(address_latency, matrix)
    cost = address_cost + matrix - overlap * np.minimum(address_cost, matrix)
    chosen = block.double_lds & ~block.candidates["pipeline"].isin(ALWAYS_DOUBLE_LDS).to_numpy()
    fixed = law.latency * block.pipeline["latency"] * np.where(chosen, law.double_lds_latency, 1.0)
    fixed = fixed * np.where(interwave, law.interwave_latency, 1.0)
    return {
        "step_latency": (fixed + latency - hidden) * spilling,
        "step_cost": cost * np.where(interwave, law.interwave_throughput, 1.0) * spilling,
        "ends_latency": ends_latency,
        "ends_cost": ends_cost,
        "address_share": address_latency / latency,
    }


def _address(block: Blocks, variant: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the cycles of im2col address work in a k-step: of one block, and per SIMD among others."""
    coefficients, candidates = block.coefficients, block.candidates
    law, direction = coefficients.iteration, coefficients.directions[variant]
    special = candidates["specialization"].map(coefficients.specializations).to_numpy(np.float64)
    special = np.where(candidates["explicit_gemm"].to_numpy(bool), coefficients.explicit_gemm, special)
    work = block.loads_a * law.address_a * direction.address_a * special
    work = work + block.loads_b * law.address_b * direction.address_b
    if not block.hardware.async_load_128bit:
        is_async = np.isin(block.physical, coefficients.async_pipelines)
        work = work * np.where(is_async, law.missing_async_loads, 1.0)
    # Wavelet's load waves stand one to a SIMD; its other waves issue no loads.
    waves = np.where(block.wavelet, 1.0, block.waves_per_simd)
    cost = work * law.address_throughput * block.pipeline["address_throughput"] * waves
    return work * block.pipeline["address_latency"], cost


def _matrix(block: Blocks) -> np.ndarray:
    """Return the cycles of the matrix instructions of a k-step, behind which the traffic of the LDS hides."""
    law, hardware, size = block.coefficients.matrix, block.hardware, block.size
    m, n, k = (size[f"warp_tile_{axis}"] for axis in "mnk")
    longest_k = np.where(m >= 32, k >= 16, k >= 32)
    rate = hardware.matrix_flops_16bit * np.where(longest_k, 1.0, hardware.short_k_rate)
    rate = np.where((block.candidates["dtype"] == "fp32").to_numpy(), hardware.matrix_flops_fp32, rate)
    rate = rate * np.where(m * n < 256, law.small_tile, 1.0) * np.where(m != n, law.oblong_tile, 1.0)
    return 2.0 * (size["tile_m"] * size["tile_n"] * size["tile_k"]) / rate * law.overhead


def _ends(block: Blocks, variant: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the cycles of prologue and epilogue: of one block, and among others."""
    law, pipeline = block.coefficients.block, block.pipeline
    elements = block.size["tile_m"] * block.size["tile_n"] * np.sqrt(block.element_bytes / 2.0)
    factor = pipeline["epilogue"] * block.coefficients.directions[variant].epilogue
    factor = factor * (1.0 + law.narrow_store * exact.log2(VECTOR_BYTES / (block.element_bytes * block.vectors[2])))
    factor = factor * np.where((block.candidates["epilogue"] == "cshuffle").to_numpy(), 1.0, law.without_cshuffle)
    prologue = law.fixed_latency * (1.0 + law.stage_latency * (pipeline["stages"] - 1.0))
    latency = prologue + law.element_latency * elements * factor
    return latency, law.fixed_throughput * block.waves_per_simd + law.element_throughput * elements * factor
