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
from tileseer.libraries.costs import noise, timing
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.libraries.registry import library_of_arch
from tileseer.measure.device import STATUSES, Times, are_times

PAIR_OVERHEAD_S = 0.01
"""Assumed time of a pair on a real GPU besides its timed launches; it counts against a budget only."""
OK, UNSUPPORTED = (STATUSES.index(name) for name in ("ok", "unsupported"))
_CHUNK = 1 << 14
"""Pairs evaluated together; small enough for the caches, without influence on the results."""
CODE_OF_TIMES = (
    "tileseer/core/content_hash.py",
    "tileseer/core/exact.py",
    "tileseer/libraries/costs",
    *(f"tileseer/libraries/*/{module}.py" for module in ("cost", "kernel", "pipelines", "resources")),
    "tileseer/measure/simulated_device.py",
    "tileseer/problems/shapes.py",
)
"""Code that a stored time depends on, of every library; a rule decides only which pairs are asked for."""


class SimulatedDevice:
    """Times kernels by formula plus noise; same seed, same bits for the same pair."""

    kind = "simulated"
    largest_batch = 2**31 - 1
    differs = False

    def __init__(self, hardware: Hardware, coefficients: Coefficients, seed: int, launches: int = 10) -> None:
        self.name = hardware.name
        self.hardware = hardware
        self.coefficients = coefficients
        self._seed = seed
        self._launches = launches

    def identity(self) -> str:
        """Return the SHA-256 of coefficients, product, seed, launches and the syntax of the simulator's modules."""
        parts = {
            "coefficients": self.coefficients.model_dump(),
            "hardware": self.hardware.model_dump(),
            "seed": self._seed,
            "launches": self._launches,
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
            for at, truth, bits in self._truths(problems, candidates, problem_index, candidate_index):
                mean, cv[at], drift[at] = noise.noisy_us(
                    truth, bits, self._seed, self._launches, self.coefficients.noise
                )
                status[at], latency[at], samples[at] = OK, mean / 1000.0, self._launches
        if not are_times(latency[status == OK]).all():
            raise UserError(
                "simulated device: a time is 0, no number, or an hour or more; correct config/simulated_device.yaml"
            )
        seconds = float(np.nansum(latency * samples)) / 1000 + n * PAIR_OVERHEAD_S
        return Times(status, latency, cv, samples, drift, seconds=seconds)

    def truth_us(self, problems: pd.DataFrame, candidates: pd.DataFrame) -> np.ndarray:
        """Time without noise of each of P problems with each of Q candidates, microseconds [P, Q].

        NaN where the pair cannot run. It is for regret curves, never a feature or a label.
        """
        shape = len(problems), len(candidates)
        times = np.full(shape, np.nan)
        for at, truth, _ in self._truths(problems, candidates, *(index.ravel() for index in np.indices(shape))):
            times.flat[at] = truth
        return times

    def _truths(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, problem_index: np.ndarray, candidate_index: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the pairs that can run, in chunks of n: positions, noise-free times (float32), random bits, [n]."""
        if not len(problem_index):
            return
        # Only the rows that occur, so that few pairs cost little.
        p, rows = pd.factorize(problem_index, sort=True)
        q, columns = pd.factorize(candidate_index, sort=True)
        problems, candidates = problems.iloc[rows], candidates.iloc[columns]
        variant, hardware, coefficients = str(problems["variant"].iloc[0]), self.hardware, self.coefficients
        library = library_of_arch(hardware.arch)
        kernels = library.made_here(library.cost)(problems, candidates, variant, hardware, coefficients)
        of_problems, of_kernels = timing.problem_terms(problems, variant), kernels.in_single_precision()
        problem_ids, device = noise.problem_ids(problems, variant), noise.device_bits(self.name)
        floor = np.float32(hardware.launch_floor_us)
        runs = np.flatnonzero(kernels.fits[q] & (kernels.verdicts[p, kernels.classes[q]] == 0))
        for start in range(0, len(runs), _CHUNK):
            at = runs[start : start + _CHUNK]
            problem = {name: values[p[at]] for name, values in of_problems.items()}
            kernel = {name: values[q[at]] for name, values in of_kernels.items()}
            time = timing.formula_us(variant, problem, kernel, hardware, coefficients)
            # Rounded twice, as stored times were when a deviation stood between.
            time = (time - floor) + floor
            yield at, time, noise.pair_bits(device, problem_ids[p[at]], kernels.ids[q[at]])
