"""Measurements in memory: problems, candidates, and one status and time for each measured pair of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from tileseer.devices.base import DeviceKind

_OF_PAIRS = ("problem", "candidate", "status", "latency_ms", "tflops", "relative_error", "sentinel", "rank")
"""Fields of ``Measurements`` with an entry a pair."""


@dataclass(frozen=True)
class Measurements:
    """n pairs of P problems and Q candidates; a candidate is a kernel with its launch knob split-K.

    ``problems`` has P rows (``problem_key``, ``layer_family``, ``split`` train|validation, ``network``, ``layer``
    and the fields of ``Problem``), ``candidates`` Q rows (``candidate``, ``kernel``, ``kernel_id``, ``split_k``, the
    fields of the kernel, the resources of the build and ``aliases``, other names of the same machine code). All arrays
    have n entries.
    """

    arch: str
    operation: str
    device: str
    device_kind: DeviceKind
    problems: pd.DataFrame
    candidates: pd.DataFrame
    problem: np.ndarray
    """int32, row of ``problems``."""
    candidate: np.ndarray
    """int32, row of ``candidates``."""
    status: np.ndarray
    """uint8, index into ``STATUSES``."""
    latency_ms: np.ndarray
    """float64, NaN unless the status is ``ok``."""
    tflops: np.ndarray
    """float64, useful FLOP over the latency, NaN unless the status is ``ok``."""
    relative_error: np.ndarray | None = None
    """float64, relative standard error of the latency: its coefficient of variation over the root of the samples, but
    at least ``between_runs``; NaN where it is unknown; None: unknown for all."""
    sentinel: np.ndarray | None = None
    """float64, how far the device had drifted when the pair was measured: the time of its sentinel pair over that
    one's first time, NaN where it is unknown; None: unknown for all."""
    rank: np.ndarray | None = None
    """float64, place of the candidate in the order in which a library itself would try them for the problem, NaN where
    it is unknown; None: the candidates are offered by no library."""

    source: str | None = None
    """Whose times these are, where others published them."""
    library: str | None = None
    """Library that offered the candidates, and its version."""
    between_runs: float | None = None
    """Relative standard deviation of a time from run to run; None if it was not measured, or is zero."""

    def only(self, keep: np.ndarray) -> Measurements:
        """Some of the pairs, by mask or by position, of the same problems and candidates."""
        rows = {name: getattr(self, name) for name in _OF_PAIRS}
        kept: dict[str, Any] = {name: None if values is None else values[keep] for name, values in rows.items()}
        return replace(self, **kept)

    def followed_by(self, other: Measurements) -> Measurements:
        """These, and behind them the problems, candidates and pairs of the other data type, as if of this one."""
        problems = pd.concat([self.problems, other.problems], ignore_index=True)
        problems["dtype"] = self.problems["dtype"].iloc[0]
        candidates = pd.concat([self.candidates, other.candidates], ignore_index=True)
        offset = {"problem": len(self.problems), "candidate": len(self.candidates)}
        joined: dict[str, Any] = {}
        for name in _OF_PAIRS:
            first, second = getattr(self, name), getattr(other, name)
            known = first is not None and second is not None
            joined[name] = np.concatenate([first, second + offset.get(name, 0)]) if known else None
        return replace(self, problems=problems, candidates=candidates, **joined)
