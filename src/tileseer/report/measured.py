"""What the report shows of the measurements themselves: the best of each shape, which kernels win, and how sure it is.

Shapes are the problems that are judged and on which anything ran: layers of real networks, one row each. Counts of
pairs are over all problems.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tileseer.core.errors import UserError
from tileseer.data.dataset import Dataset
from tileseer.facts.hardware import Hardware
from tileseer.learn.ranking import dims_text, has_validation_split
from tileseer.measure.device import STATUSES, list_failures
from tileseer.problems.problem import DIMS
from tileseer.problems.shapes import implicit_gemm

DRIFT = 0.01
"""A pair was measured on a drifted device if the sentinel's time had changed by more than this share."""
LABEL = ("pipeline", "tile", "waves", "flags")
"""Columns that name a candidate in short."""
_LAYOUT_WORD = re.compile(r"n[gcdhw]+")
"""A layout in a name: it says no more than the number of dimensions beside it."""


@dataclass(frozen=True)
class Measured:
    """What one dataset shows of P shapes and Q candidates."""

    shapes: pd.DataFrame
    """A row a shape: ``problem_key``, ``network``, ``layer``, ``problem``, ``candidate`` (the fastest), ``equal`` (how
    many candidates have just its time), ``tflops`` and ``latency_ms``, ``gemm_m``, ``gemm_k``, ``intensity`` (FLOP a
    byte of main memory), ``roof`` (``tflops`` in percent of what peak and bandwidth allow), and its class of each of
    ``CLASSES``."""
    efficiency: np.ndarray
    """[P, Q], 0 where a candidate did not run."""
    candidates: pd.DataFrame
    """Q rows: ``candidate``, ``kernel``, ``LABEL``, ``aliases`` and ``code_bytes`` (NaN if unknown)."""
    health: dict[str, Any]
    """Of all pairs: ``timed``, ``failed`` in words, ``error`` (median relative standard error of a time, percent) and
    ``drifted`` (share of the pairs, percent); None where nobody knows."""
    resources_from: tuple[str, ...]
    peak_tflops: float
    """Dense matrix peak for the operation's data type."""
    memory_tb_per_s: float
    """Peak bandwidth of the main memory."""

    @property
    def wins(self) -> np.ndarray:
        """[P, Q], the shape that each candidate wins; candidates of just the same time share it."""
        best = self.efficiency == 1.0
        return best / best.sum(axis=1, keepdims=True)


def measured_of(measurements: Dataset, hardware: Hardware) -> Measured:
    """Return what ``measurements`` show of the judged problems. ``UserError`` when none of them has a time."""
    held_out = np.arange(len(measurements.problems))
    if has_validation_split(measurements):
        held_out = held_out[(measurements.problems["split"] == "validation").to_numpy()]
    speed = measurements.spread_out(held_out, np.nan_to_num(measurements.tflops), 0.0)
    rows, speed = held_out[speed.max(axis=1, initial=0.0) > 0], speed[speed.max(axis=1, initial=0.0) > 0]
    if not len(rows):
        raise UserError(f"{measurements.operation}: no validation problem has a measured time")
    dtype = str(measurements.problems["dtype"].iloc[0])
    peak = hardware.peak_tflops(dtype)
    candidates = measurements.candidates
    return Measured(
        shapes=_shapes(measurements, rows, speed, peak, hardware.hbm_tb_per_s),
        efficiency=speed / speed.max(axis=1, keepdims=True),
        candidates=_candidates(measurements),
        health=_health(measurements),
        resources_from=tuple(sorted(set(candidates["resources_from"]))) if "resources_from" in candidates else (),
        peak_tflops=peak,
        memory_tb_per_s=hardware.hbm_tb_per_s,
    )


def records(table: pd.DataFrame) -> list[Any]:
    """Return the rows of a table, their columns as attributes."""
    return list(table.itertuples(index=False))


def labels(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return ``LABEL`` of each candidate: of its name what others lack, and no layout."""
    names = [str(name).replace("@", "_").split("_") for name in candidates["candidate"]]
    common = set.intersection(*map(set, names)) if len(names) > 1 else set()
    table = pd.DataFrame({"pipeline": candidates["pipeline"].astype(str), "tile": "", "waves": ""})
    for column, name in (("tile", "tile"), ("waves", "wave")):
        if f"{name}_m" in candidates:
            sizes = candidates[[f"{name}_{axis}" for axis in "mnk"]].to_numpy()
            table[column] = ["x".join(map(str, row)) for row in sizes]
    flags = []
    for words, label in zip(names, records(table), strict=True):
        rest = [word for word in words if not _LAYOUT_WORD.fullmatch(word)]
        for word in (*label.pipeline.split("_"), label.tile, label.waves):
            if word in rest:
                rest.remove(word)
        flags.append(" ".join(word for word in rest if word not in common))
    return table.assign(flags=flags)


def short(label: Any) -> str:
    """Return the label in one text."""
    return " ".join(text for text in (getattr(label, name) for name in LABEL) if text)


CLASSES: dict[str, tuple[str, ...]] = {
    "rows (M)": ("up to 4,096", "up to 65,536", "more than 65,536"),
    "filter": ("1x1", "3x3", "other filter"),
    "channels per group": ("up to 32", "33 to 256", "more than 256"),
    "groups": ("one group", "some groups", "depthwise"),
}
"""By what shapes are told apart, and the classes in their order."""


def _classes(problems: pd.DataFrame, rows: np.ndarray) -> dict[str, np.ndarray]:
    p = {name: problems[name].to_numpy() for name in DIMS}
    pixel = p["Z"] * p["Y"] * p["X"] == 1
    number = {
        "rows (M)": np.digitize(rows, (4096, 65536), right=True),
        "filter": np.where(pixel, 0, np.where((p["Y"] == 3) & (p["X"] == 3) & np.isin(p["Z"], (1, 3)), 1, 2)),
        "channels per group": np.digitize(p["C"] // p["G"], (32, 256), right=True),
        "groups": np.where(p["G"] == 1, 0, np.where(p["G"] < p["C"], 1, 2)),
    }
    return {name: np.array(words)[number[name]] for name, words in CLASSES.items()}


def classes(shapes: pd.DataFrame) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield each kind of class, each class of it that occurs, and whether a shape is of it, bool [P]."""
    for kind, names in CLASSES.items():
        for name in names:
            of_class = (shapes[kind] == name).to_numpy()
            if of_class.any():
                yield kind, name, of_class


def _shapes(measurements: Dataset, rows: np.ndarray, speed: np.ndarray, peak: float, memory: float) -> pd.DataFrame:
    problems = measurements.problems.iloc[rows].reset_index(drop=True)
    gemm = implicit_gemm(problems, measurements.operation.rpartition("_")[0])
    tflops = speed.max(axis=1)
    dims = problems[list(DIMS)].to_numpy()
    flops = gemm["flops"].to_numpy(np.float64)
    intensity = flops / gemm["unique_bytes"].to_numpy()
    return pd.DataFrame(
        {
            "problem_key": problems["problem_key"].astype(str),
            "network": problems["network"].astype(str),
            "layer": problems["layer"].astype(str),
            "problem": [dims_text(dict(zip(DIMS, row, strict=True))) for row in dims.tolist()],
            "candidate": measurements.candidates["candidate"].to_numpy()[speed.argmax(axis=1)],
            "equal": (speed == tflops[:, None]).sum(axis=1),
            "tflops": tflops,
            "latency_ms": flops / tflops * 1e-9,
            "gemm_m": gemm["gemm_m"].to_numpy(np.float64),
            "gemm_k": gemm["gemm_k"].to_numpy(np.float64),
            "intensity": intensity,
            "roof": 100 * tflops / np.minimum(peak, intensity * memory),
            **_classes(problems, gemm["gemm_m"].to_numpy(np.float64)),
        }
    )


def _candidates(measurements: Dataset) -> pd.DataFrame:
    candidates = measurements.candidates
    code_bytes = candidates["code_bytes"].astype(float) if "code_bytes" in candidates else np.nan
    table = pd.concat([candidates[["candidate", "kernel"]], labels(candidates)], axis=1)
    return table.assign(aliases=candidates.get("aliases", ""), code_bytes=code_bytes)


def _health(measurements: Dataset) -> dict[str, Any]:
    ok = measurements.ok
    counts = np.bincount(measurements.status, minlength=len(STATUSES))
    error, sentinel = (
        values[ok & np.isfinite(values)] for values in (measurements.relative_error, measurements.sentinel)
    )
    return {
        "timed": int(ok.sum()),
        "failed": list_failures(dict(zip(STATUSES, counts.tolist(), strict=True))) or "none",
        "error": 100 * float(np.median(error)) if len(error) else None,
        "drifted": 100 * float((np.abs(sentinel - 1) > DRIFT).mean()) if len(sentinel) else None,
    }
