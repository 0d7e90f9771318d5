"""What every device offers, real or not."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import numpy as np

from tileseer.core.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

STATUSES = (
    *("ok", "unsupported", "compile_error", "compile_timeout"),
    *("run_timeout", "crash", "wrong_result", "throttled", "contended", "skipped"),
)
"""Results of a pair; only ``ok`` rows have a time and take part in rankings."""
NO_FAILURE = ("ok", "unsupported", "skipped")
"""Results of pairs that ran or that were not run."""
TIMES_MS = (1e-6, 3.6e6)
"""Between 1 ns and an hour: what a launch can take."""
SPEEDS_TFLOPS = (1e-16, 1e6)
"""From 2 FLOP an hour to more than any GPU has."""


def list_failures(counts: Mapping[str, int]) -> str:
    """Return how many pairs failed in which way, in words; empty if none did. ``counts`` is by status."""
    failed = [(name, counts[name]) for name in STATUSES if counts.get(name) and name not in NO_FAILURE]
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in failed)


def are_times(milliseconds: np.ndarray) -> np.ndarray:
    """Return which numbers can be the times of launches, bool [n]."""
    return (milliseconds >= TIMES_MS[0]) & (milliseconds <= TIMES_MS[1])


def are_speeds(tflops: np.ndarray) -> np.ndarray:
    """Return which numbers can be the speeds of kernels, bool [n]."""
    return (tflops >= SPEEDS_TFLOPS[0]) & (tflops <= SPEEDS_TFLOPS[1])


DeviceKind = Literal["simulated", "recorded", "measured"]
DEVICE_KINDS: tuple[DeviceKind, ...] = get_args(DeviceKind)
"""Where a time comes from. It travels with every row to the model manifest, the report and the selection."""

NO_TIMES = (
    "an emulated GPU has no times to train on; build its verdicts, results/verdicts/ARCH.tsv, or set another device"
)


def refuse_unless_emulated(arch: str) -> None:
    """Raise a ``UserError`` if an arch is not emulated, or the emulated GPU, a distribution of its own, is missing."""
    if importlib.util.find_spec("tileseer_emulated") is None:
        raise UserError(
            "tileseer_emulated, which executes kernels on an emulated GPU, is not installed; "
            "pip install -e packages/amdgpu_emulator -e packages/tileseer_emulated in a checkout of Tileseer"
        )
    from tileseer_emulated import ARCHS

    if arch not in ARCHS:
        what = "CDNA GPUs with waves of 64 lanes" if arch.startswith("gfx") else "AMD GPUs"
        raise UserError(f"{arch} is not emulated, only {what}; choose {', '.join(ARCHS)}")


@dataclass(frozen=True)
class Times:
    """Outcomes of n measured pairs; all arrays have n entries, in the order of the request."""

    status: np.ndarray
    """uint8, index into ``STATUSES``."""
    latency_ms: np.ndarray
    """float64, one launch: the mean of a simulated device's launches, the median of a real one's samples; NaN unless
    the status is ``ok``."""
    latency_cv: np.ndarray
    """float64, relative standard deviation of the launches or samples; NaN unless ``ok`` with two or more."""
    samples: np.ndarray
    """int32, launches or samples behind the latency; 0 unless the status is ``ok``."""
    sentinel: np.ndarray
    """float64, drift of the device when each pair was measured: time of the sentinel pair over its first one. NaN where
    it is unknown."""
    error: list[str] | None = None
    """The device's message for each pair that is not ``ok``, fit for the journal; absent if there is none."""
    non_zero: np.ndarray | None = None
    """int64, non-zero elements of the output, -1 where they were not counted; absent if they never are."""
    seconds: float | None = None
    """Simulated duration of all this; absent where wall time counts."""


class Device(Protocol):
    """A source of kernel times."""

    name: str
    """Product, for example ``gfx950_mi355x``."""
    kind: str
    """One of ``DEVICE_KINDS``; it travels with every row."""
    largest_batch: int
    """Pairs that one call of ``measure`` may have at most: a slow device streams its results in small batches."""
    differs: bool
    """Whether times differ from run to run, as those of a GPU do: pairs are measured in random order, some twice."""

    def identity(self) -> str:
        """Return the hex digest of everything that a stored time depends on besides the pair itself."""

    def measure(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, problem_index: np.ndarray, candidate_index: np.ndarray
    ) -> Times:
        """Time n pairs: rows ``problem_index`` of ``problems`` with rows ``candidate_index`` of ``candidates``.

        ``problems`` has the fields of ``Problem`` (one direction), ``candidates`` those of the kernel and
        ``split_k``; both index arrays are int [n].
        """
