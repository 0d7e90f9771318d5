"""What every device offers, real or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Times:
    """Outcomes of n measured pairs; all arrays have n entries, in the order of the request."""

    status: np.ndarray
    """uint8, index into ``measurements.STATUSES``."""
    latency_ms: np.ndarray
    """float64, mean over the launches; NaN unless the status is ``ok``."""
    latency_cv: np.ndarray
    """float64, relative standard deviation of the launches; NaN unless ``ok`` with two launches or more."""
    samples: np.ndarray
    """int32, launches behind the mean; 0 unless the status is ``ok``."""


class Device(Protocol):
    """A source of kernel times."""

    name: str
    """Product, for example ``gfx950_mi355x``."""
    kind: str
    """One of ``measurements.DEVICE_KINDS``; it travels with every row."""

    def identity(self) -> str:
        """Return a hex digest of everything that a stored time depends on besides the pair itself."""
        ...

    def measure(
        self,
        problems: pd.DataFrame,
        candidates: pd.DataFrame,
        problem_index: np.ndarray,
        candidate_index: np.ndarray,
    ) -> Times:
        """Time n pairs: rows ``problem_index`` of ``problems`` with rows ``candidate_index`` of ``candidates``.

        ``problems`` has the fields of ``Problem`` (one direction), ``candidates`` those of ``KernelConfig`` and
        ``split_k``; both index arrays are int [n].
        """
        ...
