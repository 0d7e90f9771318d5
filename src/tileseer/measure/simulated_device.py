"""A simulated GPU. Every time that it returns is SIMULATED and says so.

The model is fitted for one GPU, data type and direction and assumed for everything else; see
docs/internals/simulated-device.md for what may and may not be read into its numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import numpy as np
import pandas as pd

from tileseer.core.code_digest import digest_of_code
from tileseer.core.errors import UserError
from tileseer.facts.hardware import Hardware
from tileseer.libraries.costs import deviation, timing
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.libraries.registry import library_of_arch
from tileseer.measure.device import STATUSES, Times, are_times
from tileseer.problems.shapes import implicit_gemm

PAIR_OVERHEAD_S = 0.01
"""Assumed time of a pair on a real GPU besides its timed launches; it counts against a budget only."""
OK, UNSUPPORTED, CRASH = (STATUSES.index(name) for name in ("ok", "unsupported", "crash"))
_CHUNK = 1 << 14
"""Pairs evaluated together; small enough for the caches, without influence on the results."""
CODE_OF_TIMES = (
    "tileseer/core/content_hash.py",
    "tileseer/libraries/costs",
    *(f"tileseer/libraries/*/{module}.py" for module in ("cost", "kernel", "pipelines", "resources")),
    "tileseer/measure/simulated_device.py",
    "tileseer/problems/shapes.py",
)
"""Code that a stored time depends on, of every library; a rule decides only which pairs are asked for."""


class SimulatedDevice:
    """Times kernels by formula plus reproducible deviation plus noise; same seed, same bits for the same pair."""

    kind = "simulated"
    largest_batch = 2**31 - 1
    differs = False

    def __init__(self, hardware: Hardware, coefficients: Coefficients, seed: int, repeats: int = 10) -> None:
        self.name = hardware.name
        self.hardware = hardware
        self.coefficients = coefficients
        self._seed = seed
        self._repeats = repeats

    def identity(self) -> str:
        """Return the SHA-256 of coefficients, product, seed, repeats and the syntax of the simulator's modules."""
        parts = {
            "coefficients": self.coefficients.model_dump(),
            "hardware": self.hardware.model_dump(),
            "seed": self._seed,
            "repeats": self._repeats,
            "modules": digest_of_code(*CODE_OF_TIMES),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def measure(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, problem_index: np.ndarray, candidate_index: np.ndarray
    ) -> Times:
        """Time n pairs as ``Device.measure`` says; their order, number and company make no difference.

        Kernels that break a support rule or exceed the device's resources come back as ``unsupported``.
        """
        n = len(problem_index)
        latency, cv, drift = np.full((3, n), np.nan)
        status, samples = np.full(n, UNSUPPORTED, np.uint8), np.zeros(n, np.int32)
        # What overflows by wrong coefficients is refused below.
        with np.errstate(all="ignore"):
            for at, truth, bits, crash in self._truths(problems, candidates, problem_index, candidate_index):
                status[at] = np.where(crash, CRASH, OK)
                mean, spread, drift[at] = deviation.noisy_us(
                    truth, bits, self._seed, self._repeats, self.coefficients.noise
                )
                latency[at] = np.where(crash, np.nan, mean / 1000.0)
                cv[at] = np.where(crash, np.nan, spread)
                samples[at] = np.where(crash, 0, self._repeats)
        if not are_times(latency[status == OK]).all():
            raise UserError(
                "simulated device: a time is 0, no number, or an hour or more; correct config/simulated_device.yaml"
            )
        seconds = float(np.nansum(latency * samples)) / 1000 + n * PAIR_OVERHEAD_S
        return Times(status, latency, cv, samples, drift, seconds=seconds)

    def truth_us(self, problems: pd.DataFrame, candidates: pd.DataFrame) -> np.ndarray:
        """Time without noise of each of P problems with each of Q candidates, microseconds [P, Q].

        NaN where the pair cannot run or crashes. It is for regret curves, never a feature or a label.
        """
        shape = len(problems), len(candidates)
        times = np.full(shape, np.nan)
        for at, truth, _, crash in self._truths(problems, candidates, *(index.ravel() for index in np.indices(shape))):
            times.flat[at] = np.where(crash, np.nan, truth)
        return times

    def _truths(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, problem_index: np.ndarray, candidate_index: np.ndarray
    ) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield the pairs that can run, in chunks: positions, noise-free times, random bits, and which crash."""
        if not len(problem_index):
            return
        # Only the rows that occur, so that few pairs cost little.
        p, of_problem = pd.factorize(problem_index, sort=True)
        q, of_candidate = pd.factorize(candidate_index, sort=True)
        model = _Model(problems.iloc[of_problem], candidates.iloc[of_candidate], self)
        for at in model.runnable(p, q):
            truth, bits = model.truth_us(p[at], q[at])
            yield at, truth, bits, deviation.crashes(bits, self.coefficients)


class _Model:
    """Terms of problems and candidates, and from them the noise-free time of pairs."""

    def __init__(self, problems: pd.DataFrame, candidates: pd.DataFrame, device: SimulatedDevice) -> None:
        self._variant = str(problems["variant"].iloc[0])
        self._hardware, self._coefficients = device.hardware, device.coefficients
        self._set_problems(problems)
        library = library_of_arch(device.hardware.arch)
        cost = library.made_here(library.cost)
        kernels = cost(problems, candidates, self._variant, device.hardware, device.coefficients)
        law = device.coefficients.deviation
        self._fits, self._verdicts, self._classes = kernels.fits, kernels.verdicts, kernels.classes
        self._kernel_terms = {name: kernels.columns[name].astype(np.float32) for name in timing.KERNEL_TERMS}
        self._kernel_ids = kernels.ids
        self._device_bits = deviation.device_bits(device.name)
        self._kernel_deviation = deviation.kernel_deviation(self._device_bits, kernels.ids, law)
        self._kernel_waves = deviation.kernel_waves(kernels.shape, law)

    def runnable(self, p: np.ndarray, q: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the positions of the pairs (rows ``p``, ``q``) that can run, in chunks."""
        width = self._verdicts.shape[1]
        runs = self._fits[q] & (self._verdicts.ravel()[p * np.int64(width) + self._classes[q]] == 0)
        positions = np.flatnonzero(runs)
        for start in range(0, len(positions), _CHUNK):
            yield positions[start : start + _CHUNK]

    def truth_us(self, p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Time (microseconds, float32) and the random bits of n pairs."""
        problem = {name: values[p] for name, values in self._problem_terms.items()}
        kernel = {name: values[q] for name, values in self._kernel_terms.items()}
        formula = timing.formula_us(self._variant, problem, kernel, self._hardware, self._coefficients)
        bits = deviation.pair_bits(self._device_bits, self._problem_ids[p], self._kernel_ids[q])
        waves = np.zeros(len(p), np.float32)
        for of_problem, of_kernel in zip(self._problem_waves, self._kernel_waves, strict=True):
            waves += of_problem[p] * of_kernel[q]
        change = self._kernel_deviation[q] + deviation.pair_deviation(bits, waves, self._coefficients.deviation)
        floor = np.float32(self._hardware.launch_floor_us)
        return (formula - floor) * np.exp(change) + floor, bits

    def _set_problems(self, problems: pd.DataFrame) -> None:
        gemm = implicit_gemm(problems, self._variant)
        self._problem_terms = {name: gemm[name].to_numpy(np.float32) for name in timing.PROBLEM_TERMS}
        self._problem_ids = deviation.problem_ids(problems, self._variant)
        size = {name: gemm[name].to_numpy() for name in gemm}
        extents = (size[name] for name in ("gemm_m", "gemm_n", "gemm_k", "gemm_batch"))
        tiles = size["gemm_m"] * size["gemm_n"] * size["gemm_batch"] / 4096
        reuse = size["bytes_read"] / size["bytes_written"]
        shape = (*extents, tiles, reuse, size["run_a"], size["run_c"], 1 + size["sub_gemms"])
        self._problem_waves = deviation.problem_waves(np.log2(np.stack(shape)), self._coefficients.deviation)
