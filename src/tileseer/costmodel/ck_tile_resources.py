"""What a kernel takes of a compute unit, by formulas with assumed coefficients (docs/simulated-device.md).

The figures stand in for the compiler's where nothing is compiled; the simulated device times kernels by them.
"""

import numpy as np
import pandas as pd

from tileseer.costmodel.coefficients import Coefficients
from tileseer.gpus.hardware import Hardware
from tileseer.kernels.candidates import capped_vectors
from tileseer.kernels.ck_tile.kernel import TWO_BLOCK_PIPELINES
from tileseer.kernels.ck_tile.lds import double_lds
from tileseer.problems.implicit_gemm import element_bytes

ACCUMULATOR_BYTES = 4


def estimate(candidates: pd.DataFrame, hardware: Hardware, coefficients: Coefficients) -> pd.DataFrame:
    """Resources of Q candidates (fields of ``KernelConfig``), one row each, in their order.

    Columns: ``threads`` and ``waves`` of a block (int64), ``waves_per_simd`` (of 64 lanes), ``loads_a, loads_b``
    (load instructions a thread issues per k-step), ``vgprs`` (int64, per lane), ``vgpr_budget``,
    ``spill_ratio`` (registers over the budget, as a share of it), ``lds_bytes`` (int64), ``occupancy``
    (resident blocks per compute unit; fractions are averages) and ``fault``: '' or why the kernel cannot run.
    """
    sizes = _block_sizes(candidates, hardware, coefficients)
    vgprs = _registers(candidates, sizes, hardware, coefficients)
    budget = _register_budget(candidates, sizes, hardware, coefficients)
    lds = _lds_bytes(candidates, sizes, coefficients)
    occupancy = _occupancy(candidates, sizes, vgprs, budget, lds, hardware, coefficients)
    table = pd.DataFrame(
        {
            "threads": (sizes["waves"] * hardware.wave_size).astype(np.int64),
            "waves": sizes["waves"].astype(np.int64),
            "waves_per_simd": sizes["waves_per_simd"],
            "loads_a": sizes["loads_a"],
            "loads_b": sizes["loads_b"],
            "vgprs": np.ceil(vgprs).astype(np.int64),
            "vgpr_budget": budget,
            "spill_ratio": np.maximum(vgprs / budget - 1.0, 0.0),
            "lds_bytes": np.ceil(lds).astype(np.int64),
            "occupancy": occupancy,
        },
        index=candidates.index,
    )
    table["fault"] = _faults(candidates, table, vgprs, hardware, coefficients)
    return table


def _block_sizes(candidates: pd.DataFrame, hardware: Hardware, coefficients: Coefficients) -> dict[str, np.ndarray]:
    """Wavelet has further waves that do all the loading; of other kernels every wave loads and computes."""
    k, wave_size = _numbers(candidates), hardware.wave_size
    wavelet_load_waves = coefficients.occupancy.wavelet_load_waves
    wavelet = (candidates["pipeline"] == "wavelet").to_numpy()
    matrix_waves = k["wave_m"] * k["wave_n"] * k["wave_k"]
    waves = matrix_waves + wavelet_load_waves * wavelet
    loading = np.where(wavelet, wavelet_load_waves, matrix_waves) * wave_size
    vec_a, vec_b, _ = capped_vectors(candidates)
    return {
        "matrix_waves": matrix_waves,
        "waves": waves,
        "waves_per_simd": waves * wave_size / 64.0 / coefficients.iteration.simds,
        "loads_a": np.maximum(np.ceil(k["tile_m"] * k["tile_k"] / (loading * vec_a)), 1.0),
        "loads_b": np.maximum(np.ceil(k["tile_n"] * k["tile_k"] / (loading * vec_b)), 1.0),
    }


def _numbers(candidates: pd.DataFrame) -> dict[str, np.ndarray]:
    names = [f"{what}_{axis}" for what in ("tile", "wave", "warp_tile") for axis in "mnk"]
    return {name: candidates[name].to_numpy(np.float64) for name in names}


def _registers(
    candidates: pd.DataFrame, sizes: dict[str, np.ndarray], hardware: Hardware, coefficients: Coefficients
) -> np.ndarray:
    """Addresses + accumulators + loads in flight + matrix fragments, registers per lane."""
    k, law = _numbers(candidates), coefficients.registers
    sets = _by_pipeline(candidates, coefficients, "staging_sets")
    vec_a, vec_b, _ = capped_vectors(candidates)
    size = element_bytes(candidates["dtype"])
    in_flight = (sizes["loads_a"] * vec_a + sizes["loads_b"] * vec_b) * size / 4.0 * sets
    accumulators = k["tile_m"] * k["tile_n"] / (sizes["matrix_waves"] * hardware.wave_size)
    rows = (k["tile_m"] / k["wave_m"] + k["tile_n"] / k["wave_n"]) / k["warp_tile_m"]
    fragments = rows * 4.0 * k["warp_tile_k"] / 16.0
    total = law.base + law.per_load * sizes["loads_a"] * sets + accumulators + in_flight + fragments
    return total * law.wave32 if hardware.wave_size == 32 else total


def _register_budget(
    candidates: pd.DataFrame, sizes: dict[str, np.ndarray], hardware: Hardware, coefficients: Coefficients
) -> np.ndarray:
    """Registers per lane that the occupancy hint leaves to a wave."""
    law = coefficients.registers
    two_blocks = candidates["pipeline"].isin(TWO_BLOCK_PIPELINES).to_numpy() | ~double_lds(candidates)
    waves = sizes["waves_per_simd"]
    hinted = np.minimum(waves * np.where(two_blocks, 2.0, 1.0), np.maximum(waves, law.hinted_waves))
    budget = hardware.vgprs_per_simd_lane / np.maximum(hinted, 1.0)
    if hardware.wave_size == 32:
        budget = budget / law.wave32_budget
    return np.minimum(budget, hardware.max_vgprs_per_wave)


def _lds_bytes(candidates: pd.DataFrame, sizes: dict[str, np.ndarray], coefficients: Coefficients) -> np.ndarray:
    """Operand buffers, or the C tile that is shuffled through LDS where that is larger."""
    k = _numbers(candidates)
    buffers = np.where(double_lds(candidates), 2.0, 1.0)
    operands = (k["tile_m"] + k["tile_n"]) * k["tile_k"] * element_bytes(candidates["dtype"])
    shuffled = np.minimum(sizes["matrix_waves"] * k["warp_tile_m"] * k["warp_tile_n"], k["tile_m"] * k["tile_n"])
    return np.maximum(operands * buffers * coefficients.lds.padding, shuffled * ACCUMULATOR_BYTES)


def _occupancy(
    candidates: pd.DataFrame, sizes: dict[str, np.ndarray], vgprs: np.ndarray, budget: np.ndarray,
    lds: np.ndarray, hardware: Hardware, coefficients: Coefficients,
) -> np.ndarray:  # fmt: skip
    """Resident blocks by registers, LDS and wave slots."""
    law, waves = coefficients.occupancy, sizes["waves_per_simd"]
    by_registers = np.floor(hardware.vgprs_per_simd_lane / (np.minimum(vgprs, budget) * waves) + law.rounding)
    return np.minimum(np.minimum(by_registers, np.floor(hardware.lds_bytes / lds)), law.max_waves / waves)


def _faults(
    candidates: pd.DataFrame, table: pd.DataFrame, vgprs: np.ndarray, hardware: Hardware, coefficients: Coefficients
) -> np.ndarray:
    k = _numbers(candidates)
    rest = [k[f"tile_{x}"] % (k[f"wave_{x}"] * k[f"warp_tile_{x}"]) for x in "mnk"]
    uneven = np.logical_or.reduce([axis != 0 for axis in rest])
    most, budget = coefficients.occupancy.max_threads, table["vgpr_budget"].to_numpy()
    refused_at = coefficients.registers.refused_at
    conditions = {
        "the tile is not a multiple of waves x warp tile": uneven,
        f"the block has more than {most} threads": table["threads"].to_numpy() > most,
        f"the block needs more than {hardware.lds_kib} KiB of LDS": table["lds_bytes"] > hardware.lds_bytes,
        "the kernel needs far more registers than a wave can have": vgprs > refused_at * budget,
        "not one block fits on a compute unit": table["occupancy"] < 1.0,
    }
    return np.select(list(conditions.values()), list(conditions), "")


def _by_pipeline(candidates: pd.DataFrame, coefficients: Coefficients, field: str) -> np.ndarray:
    values = {
        name: getattr(coefficients.pipelines[coefficients.physical(name)], field)
        for name in candidates["pipeline"].unique()
    }
    return candidates["pipeline"].map(values).to_numpy(np.float64)
