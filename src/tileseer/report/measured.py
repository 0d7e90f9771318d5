"""What the report shows of the measurements themselves: the best of each shape, and where kernels win, fail and vary.

Shapes are the validation problems on which anything ran: layers of real networks, one row each. Counts of pairs are
over all problems.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tileseer.conv.implicit_gemm import implicit_gemm
from tileseer.conv.problem import DIMS
from tileseer.core.errors import UserError
from tileseer.dataset import efficiency
from tileseer.dataset.measurements import Measurements
from tileseer.devices.base import STATUSES
from tileseer.gpu.hardware import Hardware
from tileseer.validation.ranking import has_validation_split

_OPTIONS: dict[str, Callable[[Any], str | bool]] = {
    "double_smem_buffer": lambda on: on and "double LDS",
    "two_stage": lambda on: on and "two-stage",
    "split_image": lambda on: on and "split image",
    "explicit_gemm": lambda on: on and "explicit GEMM",
    "num_groups_to_merge": lambda count: count > 1 and f"{count} groups merged",
    "split_k": lambda count: count > 1 and "split-K",
    "specialization": lambda name: name != "default" and name.replace("_", " "),
    "streamk": lambda kind: kind != "none" and "stream-K",
}
"""By field of a candidate: its option in words, if it has one."""
NO_SCHEDULER = "-"
"""Of kernels whose family has one way to order loads and products."""
PLAIN = "plain"
"""The option of a kernel without any."""
DRIFT_BANDS = (-0.03, -0.01, -0.003, 0.003, 0.01, 0.03)
"""Relative changes of the sentinel's time between which pairs are counted together."""
BY_A_COMPILER = {
    "vgpr_spills": "spilled registers",
    "scratch_bytes": "scratch, bytes a lane",
    "agprs": "accumulation registers",
}
"""Resources of a kernel that only a compiler knows, in words."""


@dataclass(frozen=True)
class Measured:
    """What one dataset shows."""

    shapes: pd.DataFrame
    """A row a shape: ``problem_key``, ``network``, ``layer``, ``problem``, ``ndim``, ``candidate`` (the fastest), its
    ``pipeline``, ``tile``, ``tflops`` and ``latency_ms``, ``runner_up`` (its TFLOPS in percent of the best, NaN
    without one), ``ran`` (candidates with a time), ``gemm_m``, ``gemm_k`` and ``intensity`` (FLOP a byte of main
    memory)."""
    groups: pd.DataFrame
    """A row a (``pipeline``, ``scheduler``, ``options``): ``candidates``, ``pairs``, ``supported``, ``ok`` (shares in
    percent: of the pairs, and of those supported) and ``wins`` (shapes on which one is the fastest)."""
    statuses: pd.DataFrame
    """Pairs by pipeline (index) and status (columns, those that occur)."""
    noise: pd.DataFrame
    """A row a (``pipeline``, ``decade``): ``pairs`` and the ``median`` and ``p90`` of the relative standard error of
    the mean time, percent; ``decade`` is the power of ten of the time in ms. Empty where it is unknown."""
    drift: pd.DataFrame
    """A row a (``pipeline``, ``band``) in which a pair ran: ``pairs`` and their ``share`` of the pipeline's, percent;
    ``band`` counts the ``DRIFT_BANDS`` that the sentinel's change is above. Empty where there is no sentinel."""
    resources: pd.DataFrame
    """A row a candidate that ran on a shape: ``pipeline``, ``vgprs``, ``lds_kib``, ``occupancy``, ``efficiency``, the
    mean over the shapes on which it ran, percent; and what only a compiler knows, NaN where none was asked: ``agprs``,
    ``vgpr_spills`` and ``scratch_bytes``. No row of candidates of which nothing is known."""
    resources_from: tuple[str, ...]
    peak_tflops: float
    """Dense matrix peak for the operation's data type."""
    memory_tb_per_s: float
    """Peak bandwidth of the main memory."""


def of(measurements: Measurements, hardware: Hardware) -> Measured:
    """What ``measurements`` show of the problems that are judged. ``UserError`` when none of them has a time."""
    candidates = measurements.candidates.assign(options=options(measurements.candidates))
    if "scheduler" not in candidates:
        candidates["scheduler"] = NO_SCHEDULER
    held_out = np.arange(len(measurements.problems))
    if has_validation_split(measurements):
        held_out = held_out[(measurements.problems["split"] == "validation").to_numpy()]
    speed = efficiency.spread_out(measurements, held_out, np.nan_to_num(measurements.tflops), 0.0)
    rows, speed = held_out[speed.max(axis=1, initial=0.0) > 0], speed[speed.max(axis=1, initial=0.0) > 0]
    if not len(rows):
        raise UserError(f"{measurements.operation}: no validation problem has a measured time")
    dtype = str(measurements.problems["dtype"].iloc[0])
    peak = hardware.peak_tflops_fp32 if dtype == "fp32" else hardware.peak_tflops_16bit
    return Measured(
        shapes=_shapes(measurements, rows, speed),
        groups=_groups(measurements, candidates, speed.argmax(axis=1)),
        statuses=_statuses(measurements, candidates),
        noise=_noise(measurements, candidates),
        drift=_drift(measurements, candidates),
        resources=_resources(candidates, speed),
        resources_from=tuple(sorted(set(candidates["resources_from"]))) if "resources_from" in candidates else (),
        peak_tflops=peak,
        memory_tb_per_s=hardware.hbm_tb_per_s,
    )


def options(candidates: pd.DataFrame) -> list[str]:
    """What each candidate has beside tile, pipeline and scheduler, in words; ``PLAIN`` if nothing."""
    # A family whose kernels have no such field has none of these options.
    known = candidates[[name for name in _OPTIONS if name in candidates]]
    words = ([_OPTIONS[str(name)](value) for name, value in row.items()] for row in known.to_dict("records"))
    return [", ".join(str(word) for word in row if word) or PLAIN for row in words]


def records(table: pd.DataFrame) -> list[Any]:
    """The rows of a table, their columns as attributes."""
    return list(table.itertuples(index=False))


def kernels(group: Any) -> str:
    """Name of a row of ``Measured.groups``: its pipeline, and its scheduler if its family has several."""
    return str(group.pipeline) if group.scheduler == NO_SCHEDULER else f"{group.pipeline} {group.scheduler}"


def _shapes(measurements: Measurements, rows: np.ndarray, speed: np.ndarray) -> pd.DataFrame:
    problems = measurements.problems.iloc[rows].reset_index(drop=True)
    candidates = measurements.candidates
    variant = measurements.operation.rpartition("_")[0]
    gemm = implicit_gemm(problems, variant)
    best = speed.argmax(axis=1)
    tflops = speed.max(axis=1)
    second = np.sort(speed, axis=1)[:, -2] if speed.shape[1] > 1 else np.zeros(len(rows))
    moved = gemm["bytes_read"].to_numpy(np.float64) + gemm["bytes_written"].to_numpy(np.float64)
    flops = gemm["flops"].to_numpy(np.float64)
    tiles = candidates["candidate"].tolist()
    if "tile_m" in candidates:
        tiles = [f"{m}x{n}x{k}" for m, n, k in candidates[["tile_m", "tile_n", "tile_k"]].to_numpy()]
    return pd.DataFrame(
        {
            "problem_key": problems["problem_key"].astype(str),
            "network": problems["network"].astype(str),
            "layer": problems["layer"].astype(str),
            "problem": [
                " ".join(f"{name}={value}" for name, value in zip(DIMS, row, strict=True))
                for row in problems[list(DIMS)].to_numpy()
            ],
            "ndim": problems["ndim"].to_numpy(),
            "candidate": candidates["candidate"].to_numpy()[best],
            "pipeline": candidates["pipeline"].to_numpy()[best],
            "tile": np.array(tiles)[best],
            "tflops": tflops,
            "latency_ms": flops / tflops * 1e-9,
            "runner_up": np.where(second > 0, 100 * second / tflops, np.nan),
            "ran": (speed > 0).sum(axis=1),
            "gemm_m": gemm["gemm_m"].to_numpy(np.float64),
            "gemm_k": gemm["gemm_k"].to_numpy(np.float64),
            "intensity": flops / moved,
        }
    )


def _groups(measurements: Measurements, candidates: pd.DataFrame, winners: np.ndarray) -> pd.DataFrame:
    count = len(candidates)
    ok = measurements.status == efficiency.OK
    table = candidates[["pipeline", "scheduler", "options"]].assign(
        candidates=1,
        pairs=np.bincount(measurements.candidate, minlength=count),
        could=np.bincount(measurements.candidate[efficiency.in_pool(measurements)], minlength=count),
        ran=np.bincount(measurements.candidate[ok], minlength=count),
        wins=np.bincount(winners, minlength=count),
    )
    found = table.groupby(["pipeline", "scheduler", "options"], sort=True, as_index=False).sum()
    found["supported"] = 100 * found["could"] / np.maximum(found["pairs"], 1)
    found["ok"] = 100 * found["ran"] / np.maximum(found["could"], 1)
    return found.drop(columns=["could", "ran"])


def _statuses(measurements: Measurements, candidates: pd.DataFrame) -> pd.DataFrame:
    pipelines = candidates["pipeline"].to_numpy()[measurements.candidate]
    statuses = pd.Categorical.from_codes(measurements.status, pd.Index(STATUSES))
    return pd.crosstab(pipelines, statuses)


def _noise(measurements: Measurements, candidates: pd.DataFrame) -> pd.DataFrame:
    if measurements.relative_error is None:
        return pd.DataFrame()
    known = np.flatnonzero((measurements.status == efficiency.OK) & np.isfinite(measurements.relative_error))
    table = pd.DataFrame(
        {
            "pipeline": candidates["pipeline"].to_numpy()[measurements.candidate[known]],
            "decade": np.floor(np.log10(measurements.latency_ms[known])).astype(int),
            "error": 100 * measurements.relative_error[known],
        }
    )
    errors = table.groupby(["pipeline", "decade"], sort=True)["error"]
    found = {"pairs": errors.size(), "median": errors.median(), "p90": errors.quantile(0.9)}
    return pd.DataFrame(found).reset_index()


def _drift(measurements: Measurements, candidates: pd.DataFrame) -> pd.DataFrame:
    if measurements.sentinel is None:
        return pd.DataFrame()
    known = np.flatnonzero((measurements.status == efficiency.OK) & np.isfinite(measurements.sentinel))
    pipeline = candidates["pipeline"].to_numpy()[measurements.candidate[known]]
    table = pd.DataFrame(
        {"pipeline": pipeline, "band": np.digitize(measurements.sentinel[known] - 1, DRIFT_BANDS), "pairs": 1}
    )
    found = table.groupby(["pipeline", "band"], sort=True, as_index=False).sum()
    found["share"] = 100 * found["pairs"] / found.groupby("pipeline")["pairs"].transform("sum")
    return found


def _resources(candidates: pd.DataFrame, speed: np.ndarray) -> pd.DataFrame:
    if "vgprs" not in candidates:
        return pd.DataFrame(columns=list(BY_A_COMPILER))
    share = speed / speed.max(axis=1, keepdims=True)
    ran = (speed > 0).sum(axis=0)
    table = pd.DataFrame(
        {
            "pipeline": candidates["pipeline"],
            "vgprs": candidates["vgprs"].astype(float),
            "lds_kib": candidates["lds_bytes"] / 1024,
            "occupancy": candidates["occupancy"].astype(float),
            "efficiency": 100 * share.sum(axis=0) / np.maximum(ran, 1),
            **{name: candidates[name].astype(float) if name in candidates else np.nan for name in BY_A_COMPILER},
        }
    )
    return table[(ran > 0) & table["vgprs"].notna()].reset_index(drop=True)
