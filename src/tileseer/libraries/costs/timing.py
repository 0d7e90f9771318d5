"""The time of a kernel on a problem by formula: blocks over compute units, caches, reduction.

All arrays are float32 and every operation is elementwise, so a pair's time does not depend on its neighbours.
Formulas and their basis: docs/internals/simulated-device.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tileseer.facts.hardware import Hardware
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.problems.shapes import implicit_gemm

MEGABYTE = 1e6
"""The fit counted cache sizes in 10^6 bytes."""
TERABYTES_PER_S = 1e6
"""Bytes per microsecond in one TB/s."""

PROBLEM_TERMS = (
    "gemm_m", "gemm_n", "gemm_k", "gemm_batch", "sub_gemms", "bytes_read", "bytes_written", "filter_bytes",
    "element_bytes",
)  # fmt: skip
KERNEL_TERMS = (
    "tile_m", "tile_n", "tile_k", "num_groups_to_merge", "occupancy", "step_latency", "step_cost", "ends_latency",
    "ends_cost", "address_share", "split_k", "streamk", "two_stage", "split_image",
)  # fmt: skip

Terms = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class KernelTerms:
    """Q candidates in the terms of the simulator, and what they can run of P problems."""

    columns: Terms
    """By the names of ``KERNEL_TERMS``, [Q] each; flags are bool."""
    ids: np.ndarray
    """Hash of what makes a kernel another one to the device, uint64 [Q]: what its noise is drawn from."""
    fits: np.ndarray
    """Whether a block fits on a compute unit, bool [Q]."""
    verdicts: np.ndarray
    classes: np.ndarray
    """Verdicts of the support rules, uint8 [P, classes], and the class of each candidate [Q]; 0 is supported."""

    def in_single_precision(self) -> dict[str, np.ndarray]:
        """Return the columns as ``formula_us`` takes them, float32 [Q] each."""
        return {name: np.asarray(self.columns[name], np.float32) for name in KERNEL_TERMS}


def problem_terms(problems: pd.DataFrame, variant: str) -> dict[str, np.ndarray]:
    """Return the ``PROBLEM_TERMS`` of P problems, float32 [P] each."""
    gemm = implicit_gemm(problems, variant)
    return {name: gemm[name].to_numpy(np.float32) for name in PROBLEM_TERMS}


def formula_us(
    variant: str, problem: Terms, kernel: Terms, hardware: Hardware, coefficients: Coefficients
) -> np.ndarray:
    """Return the formulas' time of n pairs in microseconds, float32 [n].

    ``problem`` holds ``PROBLEM_TERMS``, ``kernel`` ``KERNEL_TERMS`` (flags as 0 and 1), float32 [n] each.
    """
    launch = _Launch(problem, kernel, hardware, coefficients)
    partials = launch.split() if variant == "bwd_weight" else None
    time = _slower(launch.compute_us(), launch.memory_us()) + np.float32(hardware.launch_floor_us)
    if partials is not None:
        time += launch.reduction_us(partials)
    return time * (1 + np.float32(coefficients.split_image) * kernel["split_image"])


class _Launch:
    """Blocks of a launch: tiles, k-steps a block, and the share of the tiles that lies inside the matrix."""

    def __init__(self, problem: Terms, kernel: Terms, hardware: Hardware, coefficients: Coefficients) -> None:
        self.problem, self.kernel, self.hardware, self.coefficients = problem, kernel, hardware, coefficients
        merged = kernel["num_groups_to_merge"]
        rows, columns = problem["gemm_m"] * merged, problem["gemm_n"] * merged
        self.tiles_m, self.tiles_n = np.ceil(rows / kernel["tile_m"]), np.ceil(columns / kernel["tile_n"])
        self.steps = np.ceil(problem["gemm_k"] / kernel["tile_k"])
        self.blocks = self.tiles_m * self.tiles_n
        self.blocks *= np.ceil(problem["gemm_batch"] / merged)
        self.blocks *= problem["sub_gemms"]
        self.slots = kernel["occupancy"] * np.float32(hardware.compute_units)
        self.inside_m = np.minimum(rows / (self.tiles_m * kernel["tile_m"]), 1)
        self.inside_n = np.minimum(columns / (self.tiles_n * kernel["tile_n"]), 1)

    def split(self) -> np.ndarray:
        """Deal the k-steps of each tile to blocks, under split-K or stream-K; return the partial results of a tile."""
        kernel, tiles, steps = self.kernel, self.blocks, self.steps
        split = np.minimum(kernel["split_k"], np.maximum(np.floor(steps / 2), 1))
        streamk = kernel["streamk"] > 0
        work = tiles * steps
        persistent = np.minimum(self.slots, work)
        self.blocks = np.where(streamk, persistent, tiles * split)
        self.steps = np.ceil(np.where(streamk, work / persistent, steps / split))
        return np.where(streamk, np.minimum(np.maximum(persistent / tiles, 1), steps), split)

    def reduction_us(self, partials: np.ndarray) -> np.ndarray:
        """Return the time to add up partial weight gradients in fp32, and of the second launch of two-stage kernels."""
        law, hardware = self.coefficients.splitting, self.hardware
        gradient = self.problem["filter_bytes"] * np.float32(4) / self.problem["element_bytes"]
        passes = np.minimum(partials, np.float32(law.reduction_passes))
        adding = gradient * passes * _us_per_byte(hardware.hbm_tb_per_s, law.reduction_bandwidth)
        adding = np.where(self.kernel["streamk"] > 0, adding * np.float32(law.streamk_reduction), adding)
        second = np.float32(hardware.launch_floor_us * law.second_launch) + gradient * (
            np.float32(law.second_traffic) * _us_per_byte(hardware.hbm_tb_per_s, law.second_bandwidth)
        )
        return np.where(partials > 1, adding, np.float32(0)) + self.kernel["two_stage"] * second

    def compute_us(self) -> np.ndarray:
        """Return the time of whole rounds of resident blocks, the last round partly filled."""
        law, kernel, hardware = self.coefficients.schedule, self.kernel, self.hardware
        outside = np.float32(law.masked_rows) * (1 - self.inside_m)
        outside += np.float32(law.masked_columns) * (1 - self.inside_n)
        paid = 1 - np.float32(law.masked) * outside * kernel["address_share"]
        latency, cost = kernel["step_latency"] * paid, kernel["step_cost"] * paid

        def round_of(blocks: np.ndarray) -> np.ndarray:
            ends = _slower(kernel["ends_latency"], blocks * kernel["ends_cost"])
            return self.steps * _slower(latency, blocks * cost) + ends

        whole = np.floor(self.blocks / self.slots)
        rest = self.blocks - whole * self.slots
        # Rounding must not open another block per unit.
        last = np.maximum(np.ceil(rest / np.float32(hardware.compute_units) - np.float32(1e-4)), 1)
        cycles = whole * round_of(kernel["occupancy"]) + np.where(rest > 0.5, round_of(last), np.float32(0))
        return cycles / np.float32(hardware.clock_ghz * 1e3)

    def memory_us(self) -> np.ndarray:
        """Return the time of the slowest of L2, last-level cache and main memory."""
        law, problem, kernel, hardware = self.coefficients.memory, self.problem, self.kernel, self.hardware
        traffic = kernel["tile_m"] * self.inside_m + kernel["tile_n"] * self.inside_n
        traffic = traffic * kernel["tile_k"] * problem["element_bytes"] * self.blocks * self.steps
        moved = problem["bytes_read"] + problem["bytes_written"]
        missed = np.maximum(traffic * self._l2_miss(), problem["bytes_read"])
        missed += problem["bytes_written"]
        spilled = moved / np.float32(max(hardware.llc_mib, 0.1) * MEGABYTE * law.llc_usable) - 1
        to_hbm = np.clip(spilled, np.float32(law.least_hbm if hardware.llc_mib else 1.0), 1)
        hbm_bytes = np.maximum(moved, missed * np.float32(law.hbm_reread)) * to_hbm

        llc_bandwidth = max(hardware.llc_tb_per_s, hardware.hbm_tb_per_s)
        time = traffic * _us_per_byte(hardware.l2_tb_per_s, law.l2)
        time = np.maximum(time, missed * _us_per_byte(llc_bandwidth, law.llc))
        time = np.maximum(time, hbm_bytes * _us_per_byte(hardware.hbm_tb_per_s, law.hbm))
        active = np.minimum(self.blocks / np.float32(hardware.compute_units), 1)
        return time / np.clip(active * np.float32(law.active_slope), np.float32(law.least_active), 1)

    def _l2_miss(self) -> np.ndarray:
        """Return the share of block traffic that misses L2; the blocks of a die form a patch of rows and columns."""
        kernel, hardware = self.kernel, self.hardware
        patch = np.minimum(self.slots, self.blocks) / np.float32(hardware.xcds)
        patch_n = np.minimum(np.maximum(np.sqrt(patch), 1), self.tiles_n)
        patch_m = np.minimum(np.maximum(patch / patch_n, 1), self.tiles_m)
        edge = patch_m * kernel["tile_m"] + patch_n * kernel["tile_n"]
        miss = np.minimum(edge / (patch * (kernel["tile_m"] + kernel["tile_n"])), 1)
        held = edge * kernel["tile_k"] * self.problem["element_bytes"] * np.float32(self.coefficients.memory.l2_tiles)
        return np.clip(miss * np.maximum(held / np.float32(hardware.l2_mib * MEGABYTE), 1), 0, 1)


def _slower(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the time of two things that hide each other, but for what is close: a norm of fourth powers."""
    squares = one * one, other * other
    return np.sqrt(np.sqrt(squares[0] * squares[0] + squares[1] * squares[1]))


def _us_per_byte(bandwidth: float, efficiency: float) -> np.float32:
    return np.float32(1.0 / (TERABYTES_PER_S * bandwidth * efficiency))
