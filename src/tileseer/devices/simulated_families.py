"""The simulated device of any arch: of NVIDIA's too, whose kernels it times as if they were CK Tile's."""

from __future__ import annotations

import hashlib
from importlib import resources as package_files

import numpy as np
import pandas as pd

from tileseer import families
from tileseer.devices.base import Times
from tileseer.devices.simulated import SimulatedDevice
from tileseer.families.cutlass import simulated as cutlass
from tileseer.gpu.coefficients import Coefficients
from tileseer.gpu.hardware import Hardware


class SimulatedCutlassDevice(SimulatedDevice):
    """Times CUTLASS kernels by the formulas for CK Tile, with the sizes of an NVIDIA GPU; no coefficient is its own."""

    def identity(self) -> str:
        """Return the SHA-256 of what the simulated device depends on, and of the way kernels are told to it."""
        words = package_files.files(cutlass.__package__) / "simulated.py"
        return hashlib.sha256(super().identity().encode() + words.read_bytes()).hexdigest()

    def measure(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, problem_index: np.ndarray, candidate_index: np.ndarray
    ) -> Times:
        """Time n pairs as ``Device.measure`` says."""
        return super().measure(problems, cutlass.in_simulator_words(candidates), problem_index, candidate_index)

    def truth_us(self, problems: pd.DataFrame, candidates: pd.DataFrame) -> np.ndarray:
        """Return the times without noise, as ``SimulatedDevice.truth_us`` says."""
        return super().truth_us(problems, cutlass.in_simulator_words(candidates))


def simulated(hardware: Hardware, coefficients: Coefficients, seed: int, repeats: int = 10) -> SimulatedDevice:
    """Return the simulated device of a product, by the kernels that its arch runs."""
    kind = SimulatedCutlassDevice if families.of_arch(hardware.arch) is families.CUTLASS else SimulatedDevice
    return kind(hardware, coefficients, seed, repeats)
