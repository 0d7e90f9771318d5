"""What the simulated device is told of kernels, by the family that they belong to."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class KernelTerms:
    """Q candidates in the terms of the simulator, and what they can run of P problems."""

    columns: Mapping[str, np.ndarray]
    """By the names of ``devices.timing.KERNEL_TERMS``, [Q] each; flags are bool."""
    ids: np.ndarray
    """Hash of what makes a kernel another one to the device, uint64 [Q]: what its deviations are drawn from."""
    shape: np.ndarray
    """Where the kernel lies in the smooth part of the deviation, float64 [features, Q]."""
    fits: np.ndarray
    """Whether a block fits on a compute unit, bool [Q]."""
    verdicts: np.ndarray
    classes: np.ndarray
    """Verdicts of the support rules, uint8 [P, classes], and the class of each candidate [Q]; 0 is supported."""
