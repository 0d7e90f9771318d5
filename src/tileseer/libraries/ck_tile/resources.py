"""What a kernel takes of a compute unit, by formulas with assumed coefficients (docs/internals/simulated-device.md).

The figures stand in for the compiler's where nothing is compiled; the simulated device times kernels by them.
"""

from functools import cached_property

import numpy as np
import pandas as pd

from tileseer.facts.hardware import Hardware
from tileseer.libraries.ck_tile.pipelines import TWO_BLOCK_PIPELINES, double_lds
from tileseer.libraries.costs.coefficients import Coefficients, PipelineCosts
from tileseer.libraries.gemm_kernel import SIZES
from tileseer.libraries.rules import capped_vectors
from tileseer.problems.shapes import element_bytes

ACCUMULATOR_BYTES = 4


class Blocks:
    """One block of each of Q candidates (fields of ``KernelConfig``) on a GPU; attributes are arrays [Q].

    ``waves_per_simd`` counts waves of 64 lanes; ``loads_a`` and ``loads_b`` are the load instructions that a thread
    issues per k-step; ``pipeline`` are the columns of ``PipelineCosts``.
    """

    def __init__(self, candidates: pd.DataFrame, hardware: Hardware, coefficients: Coefficients) -> None:
        self.candidates, self.hardware, self.coefficients = candidates, hardware, coefficients
        self.size = {name: candidates[name].to_numpy(np.float64) for name in SIZES}
        self.vectors = capped_vectors(candidates)
        self.element_bytes = element_bytes(candidates["dtype"])
        self.double_lds = double_lds(candidates)
        self.physical = candidates["pipeline"].map(coefficients.physical).tolist()
        costs = [coefficients.pipelines[name] for name in self.physical]
        self.pipeline = {
            field: np.array([getattr(row, field) for row in costs], np.float64) for field in PipelineCosts.model_fields
        }
        self._set_waves()

    def _set_waves(self) -> None:
        """Set waves and loads: wavelet has further waves that do all the loading, else every wave does both."""
        k, wave_size = self.size, self.hardware.wave_size
        load_waves = self.coefficients.occupancy.wavelet_load_waves
        self.wavelet = (self.candidates["pipeline"] == "wavelet").to_numpy()
        self.matrix_waves = k["wave_m"] * k["wave_n"] * k["wave_k"]
        self.waves = self.matrix_waves + load_waves * self.wavelet
        self.waves_per_simd = self.waves * wave_size / 64.0 / self.coefficients.iteration.simds
        loading = np.where(self.wavelet, load_waves, self.matrix_waves) * wave_size
        vec_a, vec_b, _ = self.vectors
        self.loads_a = np.maximum(np.ceil(k["tile_m"] * k["tile_k"] / (loading * vec_a)), 1.0)
        self.loads_b = np.maximum(np.ceil(k["tile_n"] * k["tile_k"] / (loading * vec_b)), 1.0)

    @cached_property
    def vgprs(self) -> np.ndarray:
        """Addresses + accumulators + loads in flight + matrix fragments, registers per lane."""
        k, law, wave_size = self.size, self.coefficients.registers, self.hardware.wave_size
        sets = self.pipeline["staging_sets"]
        vec_a, vec_b, _ = self.vectors
        in_flight = (self.loads_a * vec_a + self.loads_b * vec_b) * self.element_bytes / 4.0 * sets
        accumulators = k["tile_m"] * k["tile_n"] / (self.matrix_waves * wave_size)
        rows = (k["tile_m"] / k["wave_m"] + k["tile_n"] / k["wave_n"]) / k["warp_tile_m"]
        fragments = rows * 4.0 * k["warp_tile_k"] / 16.0
        total = law.base + law.per_load * self.loads_a * sets + accumulators + in_flight + fragments
        return total * law.wave32 if wave_size == 32 else total

    @cached_property
    def vgpr_budget(self) -> np.ndarray:
        """Registers per lane that the occupancy hint leaves to a wave."""
        law, waves = self.coefficients.registers, self.waves_per_simd
        two_blocks = self.candidates["pipeline"].isin(TWO_BLOCK_PIPELINES).to_numpy() | ~self.double_lds
        hinted = np.minimum(waves * np.where(two_blocks, 2.0, 1.0), np.maximum(waves, law.hinted_waves))
        budget = self.hardware.vgprs_per_simd_lane / np.maximum(hinted, 1.0)
        if self.hardware.wave_size == 32:
            budget = budget / law.wave32_budget
        return np.minimum(budget, self.hardware.max_vgprs_per_wave)

    @property
    def spill_ratio(self) -> np.ndarray:
        """Registers over the budget, as a share of it."""
        return np.maximum(self.vgprs / self.vgpr_budget - 1.0, 0.0)

    @cached_property
    def lds_bytes(self) -> np.ndarray:
        """Operand buffers, or the C tile that is shuffled through LDS where that is larger."""
        k = self.size
        operands = (k["tile_m"] + k["tile_n"]) * k["tile_k"] * self.element_bytes
        buffers = np.where(self.double_lds, 2.0, 1.0)
        shuffled = np.minimum(self.matrix_waves * k["warp_tile_m"] * k["warp_tile_n"], k["tile_m"] * k["tile_n"])
        return np.maximum(operands * buffers * self.coefficients.lds.padding, shuffled * ACCUMULATOR_BYTES)

    @cached_property
    def occupancy(self) -> np.ndarray:
        """Resident blocks per compute unit by registers, LDS and wave slots; fractions are averages."""
        law, waves = self.coefficients.occupancy, self.waves_per_simd
        registers = np.minimum(self.vgprs, self.vgpr_budget) * waves
        by_registers = np.floor(self.hardware.vgprs_per_simd_lane / registers + law.rounding)
        by_lds = np.floor(self.hardware.lds_bytes / self.lds_bytes)
        return np.minimum(np.minimum(by_registers, by_lds), law.max_waves / waves)

    @cached_property
    def faults(self) -> np.ndarray:
        """'' or why the kernel cannot run."""
        k, hardware = self.size, self.hardware
        rest = [k[f"tile_{x}"] % (k[f"wave_{x}"] * k[f"warp_tile_{x}"]) for x in "mnk"]
        most = self.coefficients.occupancy.max_threads
        refused = self.coefficients.registers.refused_at * self.vgpr_budget
        conditions = {
            "the tile is not a multiple of waves x warp tile": np.logical_or.reduce([axis != 0 for axis in rest]),
            f"the block has more than {most} threads": self.waves * hardware.wave_size > most,
            f"the block needs more than {hardware.lds_kib} KiB of LDS": np.ceil(self.lds_bytes) > hardware.lds_bytes,
            "the kernel needs far more registers than a wave can have": self.vgprs > refused,
            "not one block fits on a compute unit": self.occupancy < 1.0,
        }
        return np.select(list(conditions.values()), list(conditions), "")


def estimate(candidates: pd.DataFrame, hardware: Hardware, coefficients: Coefficients) -> pd.DataFrame:
    """Return the resources of Q candidates, a row each: ``vgprs`` per lane, ``lds_bytes``, ``occupancy``, ``fault``."""
    block = Blocks(candidates, hardware, coefficients)
    columns = {
        "vgprs": np.ceil(block.vgprs).astype(np.int64),
        "lds_bytes": np.ceil(block.lds_bytes).astype(np.int64),
        "occupancy": block.occupancy,
        "fault": block.faults,
    }
    return pd.DataFrame(columns, index=candidates.index)
