"""The table of judged layers: one row for each, from which every figure of picks follows.

Beside the columns of ``LAYERS`` a table has one for each other library that was timed (``time_of``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.core import exact, parquet
from tileseer.data.dataset import Dataset
from tileseer.facts.hardware import Hardware
from tileseer.judge import baselines
from tileseer.judge.ranking import Scored
from tileseer.learn.evidence import EVIDENCE_CLASSES
from tileseer.problems.kinds import layer_kinds
from tileseer.problems.problem import DIMS
from tileseer.problems.shapes import implicit_gemm, roofline_us

_TEXTS = ("problem_key", "network", "layer", "problem", "kind", "evidence", "pick", "best", "pipeline", "own")
_NUMBERS = (
    "efficiency", "efficiency_of_2", "efficiency_of_3", "possible", "timed", "best_us", "pick_us", "own_us",
    "estimated_us", *baselines.MEANINGS,
)  # fmt: skip
_KNOWN = ("uses", "flop", "bytes", "gemm_m", "gemm_k")
LAYERS = parquet.schema(
    [*((name, pa.string()) for name in _TEXTS), *((name, pa.float64()) for name in (*_NUMBERS, *_KNOWN))], _NUMBERS
)
"""Text is empty, and a number missing, where there is none.

* ``problem``: the 19 dimensions; ``kind``: that of ``layer_kinds``; ``evidence``: how it stands to what trained
* ``pick``, ``best``: the candidate that is picked, and the fastest; ``pipeline``: of the best
* ``own``: what the library that offers the candidates would run itself
* ``efficiency``: of the pick, ``efficiency_of_2`` and ``_of_3`` of the fastest of a short list, in 0..1; 0 for what
  did not run, missing where no candidate ran
* ``possible``: efficiency of a pick that knows every true time, missing where the noise of times is not known;
  ``timed``: share of what is offered that has a time
* ``best_us``, ``pick_us``, ``own_us``: microseconds; ``estimated_us``: a library's or by roofline, where nothing ran
* ``fixed_order`` and so on: efficiency of each choice without a model (``baselines.MEANINGS``)
* ``uses``: in all runs of networks; ``flop``, ``bytes``: useful work, and what is moved once; ``gemm_m``, ``gemm_k``
"""
DRAWS_OF_NOISE = 64
SEED = 1
Truth = Callable[[pd.DataFrame, pd.DataFrame], np.ndarray]
"""Noise-free microseconds of each of Q candidates on each of R problems, float64 [R, Q]; NaN where it cannot run."""


def time_of(library: str) -> str:
    """Return the column with the microseconds of another library."""
    return f"us of {library}"


def libraries_of(layers: pd.DataFrame) -> dict[str, str]:
    """Return the other libraries of a table, and the column of each."""
    return {name.removeprefix(time_of("")): name for name in map(str, layers) if name.startswith(time_of(""))}


def write_layers(path: Path, layers: pd.DataFrame) -> None:
    """Write a table as Parquet."""
    schema = pa.schema([*LAYERS, *(pa.field(name, pa.float64()) for name in libraries_of(layers).values())])
    parquet.write_table(pa.Table.from_pandas(layers, schema, preserve_index=False).replace_schema_metadata(), path)


def read_layers(path: Path) -> pd.DataFrame:
    """Read a table; ``UserError`` if it is damaged or of another form."""
    return parquet.read_table(path, LAYERS).to_pandas()


def judged_layers(
    scored: Scored,
    gpu: Hardware,
    uses: pd.DataFrame,
    libraries: pd.DataFrame,
    truth: Truth | None = None,
) -> pd.DataFrame:
    """Return the judged problems of a ranking as a table, by key; those that no candidate ran are among them.

    ``uses`` are rows of ``problem_table.USES``; without any, each layer counts once. ``libraries`` has microseconds by
    problem key, a column for each library. ``truth``: of a device that knows its true times.
    """
    dataset = scored.dataset
    rows = np.union1d(scored.rows, scored.without)
    problems = dataset.problems.iloc[rows].reset_index(drop=True)
    keys = problems["problem_key"]
    gemm = implicit_gemm(problems, str(problems["variant"].iloc[0])).astype(np.float64)
    names = dataset.candidates["candidate"].to_numpy()
    error = dataset.spread_out(scored.rows, dataset.relative_error, np.nan)
    best_us = (gemm["flops"] * 1e-6)[np.isin(rows, scored.rows)].to_numpy() / dataset.best_tflops[scored.rows]
    judgement: dict[str, np.ndarray] = {
        "evidence": np.array(EVIDENCE_CLASSES)[scored.expected.classes],
        "pick": np.append(names, "")[scored.picks],
        "best": names[scored.best],
        "pipeline": dataset.candidates["pipeline"].astype(str).to_numpy()[scored.best],
        "efficiency": scored.picked,
        "efficiency_of_2": scored.fastest_of(2),
        "efficiency_of_3": scored.fastest_of(3),
        "possible": _perfect(scored, truth) if truth else best_possible(scored.achieved, error),
        "timed": ((scored.achieved > 0) & scored.pool).sum(axis=1) / np.maximum(scored.pool.sum(axis=1), 1),
        "best_us": best_us,
        "pick_us": _time(best_us, scored.picked),
        "own": np.full(len(best_us), ""),
        **baselines.score_baselines(scored, gpu),
    }
    if scored.own is not None:
        judgement |= {"own": names[scored.own], "own_us": _time(best_us, judgement["own_choice"])}
    table = pd.DataFrame(
        {
            "problem_key": keys,
            "network": problems["network"].astype(str),
            "layer": problems["layer"].astype(str),
            "problem": [" ".join(map("{}={}".format, DIMS, row)) for row in problems[list(DIMS)].to_numpy().tolist()],
            "kind": layer_kinds(problems),
            "uses": keys.map(uses.groupby("problem_key")["occurrences"].sum()).fillna(0.0) if len(uses) else 1.0,
            "flop": gemm["flops"], "bytes": gemm["unique_bytes"], "gemm_m": gemm["gemm_m"], "gemm_k": gemm["gemm_k"],
        }
    ).join(pd.DataFrame(judgement, index=np.flatnonzero(np.isin(rows, scored.rows))))  # fmt: skip
    table = table.reindex(columns=[*LAYERS.names]).fillna(dict.fromkeys(_TEXTS, ""))
    table = table.assign(**{time_of(name): keys.map(libraries[name]) for name in map(str, libraries)})
    bound_us = roofline_us(problems, gpu)
    known = table[list(libraries_of(table).values())].min(axis=1)
    estimate = known.fillna(pd.Series(bound_us * (table["best_us"] / bound_us).median()))
    table["estimated_us"] = estimate.where(table["best_us"].isna())
    return table.sort_values("problem_key", ignore_index=True)


def _time(best_us: np.ndarray, efficiency: np.ndarray) -> np.ndarray:
    """Return the microseconds of candidates with an efficiency, NaN of those that did not run."""
    return np.divide(best_us, efficiency, out=np.full(len(best_us), np.nan), where=efficiency > 0)


def _perfect(scored: Scored, truth: Truth) -> np.ndarray:
    """Return the efficiency of picks that know every true time, and which pairs fail, float64 [R]."""
    measured = scored.achieved
    true_us = truth(scored.problems, scored.dataset.candidates)
    true_us = np.where(scored.pool & (measured > 0) & ~np.isnan(true_us), true_us, np.inf)
    return np.where(np.isfinite(true_us.min(axis=1)), measured[np.arange(len(measured)), true_us.argmin(axis=1)], 0.0)


def best_possible(measured: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Return what knowing the measured times would be worth on other draws of their noise, float64 [R].

    The best of many noisy times is a lucky one (the winner's curse), so even who knows every true time scores below 1.
    ``measured`` are efficiencies, ``error`` the relative standard errors of the times, both float64 [R, Q]. A single
    unknown error (NaN) is taken as the median of the others; where all are unknown, NaN is returned. A parametric
    bootstrap: noise of that size is drawn around the measured times.
    """
    if not np.isfinite(error).any():
        return np.full(len(measured), np.nan)
    draw, rows = np.random.default_rng(SEED), np.arange(len(measured))
    ran = measured > 0
    spread = np.where(ran, np.where(np.isfinite(error), error, np.median(error[np.isfinite(error)])), 0.0)
    log_speed = exact.log(np.where(ran, measured, 1.0))
    best = np.where(ran, measured, -np.inf).argmax(axis=1)
    perfect = np.zeros(len(measured))
    for _ in range(DRAWS_OF_NOISE):
        again = np.where(ran, log_speed + spread * draw.standard_normal(measured.shape), -np.inf)
        perfect += exact.exp(again[rows, best] - again.max(axis=1))
    return perfect / DRAWS_OF_NOISE


def noise_basis(dataset: Dataset, truth: Truth | None) -> str:
    """Return in words what the possible efficiencies rest on."""
    if truth is not None:
        return "noise-free times of the simulated device"
    if not np.isfinite(dataset.relative_error).any():
        return "not known: single timings, and nobody timed the same again"
    one_run, between = "spread of the timed launches, drawn again around the measured times", dataset.between_runs
    if not between:
        return one_run
    source = f" ({dataset.between_source})" if dataset.between_source else ""
    return f"{one_run}; at least {100 * between:.2f} %, by which a time differs from run to run{source}"
