"""A dataset in memory: problems, candidates, and the status and time of each pair of them that was tried."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tileseer.core.errors import UserError, require, shown
from tileseer.core.reading import ReadFromFolder, path_of
from tileseer.data.dataset_files import CODE, MAKE_AGAIN, read_tables
from tileseer.data.provenance import Taken
from tileseer.facts.hardware import Hardware
from tileseer.libraries import candidates as candidate_tables
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.libraries.registry import library_of_arch
from tileseer.measure.device import STATUSES, DeviceKind
from tileseer.problems.problem import problems_of_frame
from tileseer.problems.shapes import implicit_gemm

OK = STATUSES.index("ok")
OF_CANDIDATES = ("kernel", "kernel_id", "resources_from", *candidate_tables.RESOURCES, *CODE)
"""Columns of a kernel that its candidates have."""
READ_ONE = "one: Dataset.read('results/datasets/ARCH/OPERATION')"
_OF_PAIRS = ("problem", "candidate", "status", "latency_ms", "tflops", "relative_error", "sentinel", "rank")
"""Fields of ``Dataset`` with an entry per pair."""


@dataclass(frozen=True, eq=False)
class Dataset(ReadFromFolder):
    """n tried pairs of P problems and Q candidates; a candidate is a kernel with its launch knob split-K.

    A pair that is missing was refused, or was not measured: who picks it neither wins nor loses.

    ``problems`` has P rows (``problem_key``, ``layer_family``, ``split`` train|validation, ``network``, ``layer``
    and the fields of ``Problem``), ``candidates`` Q rows (``candidate``, ``kernel``, ``kernel_id``, ``split_k``, the
    fields of the kernel, the resources of the build and ``aliases``, other names of the same machine code). All arrays
    have n entries. Efficiency is a pair's measured TFLOPS over the best measured TFLOPS of the same problem.
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
    relative_error: np.ndarray
    """float64, relative standard error of the latency: its coefficient of variation over the root of the samples, but
    at least ``between_runs``; NaN where it is unknown."""
    sentinel: np.ndarray
    """float64, how far the device had drifted when the pair was measured: the time of its sentinel pair over that
    one's first time, NaN where it is unknown."""
    rank: np.ndarray
    """float64, place of the candidate in the order in which a library itself would try them for the problem, NaN where
    it is unknown, or no library offers the candidates."""

    source: str | None = None
    """Whose times these are, where others published them."""
    taken: Taken | None = None
    """Library, date and driver of the times."""
    library: str | None = None
    """Library that offered the candidates, and its version."""
    between_runs: float | None = None
    """Relative standard deviation of a time from run to run; None if it was not measured, or is zero."""
    between_source: str | None = None
    """The runs that say so."""

    @classmethod
    def read(cls, folder: Path | str) -> Dataset:
        """Read a dataset, measured here or recorded elsewhere; ``UserError`` if it is damaged.

        Problems are in the order of their keys, candidates of their names and split-K, pairs of both.
        """
        folder = path_of("folder", folder)
        tables = read_tables(folder)
        recording, operation = tables.recording, str(tables.operation)
        problems = tables.problems.sort_values("problem_key")
        place = np.empty(len(problems), np.int32)
        place[problems.index] = np.arange(len(problems))
        candidates, candidate = _candidates(tables.kernels, tables.pairs, folder)
        problem = place[tables.pairs["problem"].to_numpy()]
        order = np.lexsort((candidate, problem))
        problem, candidate, pairs = problem[order], candidate[order], tables.pairs.iloc[order]
        status = pd.Categorical(pairs["status"], categories=STATUSES).codes.astype(np.uint8)
        milliseconds = np.where(status == OK, pairs["median_us"].to_numpy(np.float64) / 1000.0, np.nan)
        cv = np.where(status == OK, pairs["cv"].to_numpy(np.float64), np.nan)
        within = cv / np.sqrt(np.maximum(pairs["samples"].to_numpy(), 1))
        found = recording.between_runs.get(operation)
        between = found.relative if found else None
        problems = problems.reset_index(drop=True)
        flops = implicit_gemm(problems, tables.operation.variant)["flops"].to_numpy()
        return cls(
            arch=recording.arch,
            operation=operation,
            device=recording.device,
            device_kind=recording.kind,
            problems=problems,
            candidates=candidates,
            problem=problem,
            candidate=candidate,
            status=status,
            latency_ms=milliseconds,
            tflops=flops[problem] / milliseconds * 1e-9,
            # Samples of one worker that agree with each other say nothing of the next worker.
            relative_error=within if between is None else np.fmax(within, between),
            source=recording.provenance.get("source"),
            taken=recording.taken,
            library=recording.library,
            between_runs=between,
            between_source=found.source if found else None,
            sentinel=pairs["sentinel"].to_numpy(np.float64),
            rank=pairs["rank"].to_numpy(np.float64),
        )

    def with_estimates(self, hardware: Hardware, coefficients: Coefficients) -> Dataset:
        """Return the same with resources by formula, where no compiler described the kernels and there is a formula."""
        estimate = library_of_arch(self.arch).estimate
        if set(self.candidates["resources_from"]) != {"unknown"} or estimate is None:
            return self
        found = estimate(self.candidates, hardware, coefficients)[list(candidate_tables.RESOURCES)]
        columns = found.astype({"vgprs": "float64"})
        return replace(self, candidates=self.candidates.assign(resources_from="estimated", **columns))

    def only(self, keep: np.ndarray) -> Dataset:
        """Return some of the pairs, by mask or by position, of the same problems and candidates."""
        rows = _places("keep", keep, len(self.problem), "pairs (of a mask of problems: mask[dataset.problem])")
        kept: dict[str, Any] = {name: getattr(self, name)[rows] for name in _OF_PAIRS}
        return replace(self, **kept)

    def followed_by(self, other: Dataset) -> Dataset:
        """Return these and behind them the problems, candidates and pairs of another data type, as if of this one.

        ``UserError`` where the other's arch, direction, device or kind of times is another.
        """
        require("other", other, Dataset, READ_ONE)
        for name in ("arch", "device", "device_kind", "direction"):
            if getattr(self, name) != getattr(other, name):
                raise UserError(
                    f"{name} is {getattr(self, name)} of one dataset and {getattr(other, name)} of the other; "
                    "join those of one device, that differ in the data type alone"
                )
        problems = pd.concat([self.problems, other.problems], ignore_index=True)
        problems["dtype"] = self.problems["dtype"].iloc[0]
        # The same layer in both data types is one.
        problems["layer_family"] = [problem.layer_family for problem in problems_of_frame(problems)]
        candidates = pd.concat([self.candidates, other.candidates], ignore_index=True)
        offset = {"problem": len(self.problems), "candidate": len(self.candidates)}
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name) + offset.get(name, 0)])
            for name in _OF_PAIRS
        }
        return replace(self, problems=problems, candidates=candidates, **joined)

    @property
    def direction(self) -> str:
        """The operation without its data type, such as ``bwd_data``."""
        return self.operation.rpartition("_")[0]

    @cached_property
    def ok(self) -> np.ndarray:
        """Whether each pair ran and has a time, bool [n]."""
        return self.status == OK

    @cached_property
    def trains(self) -> np.ndarray:
        """Which problems a model may learn from, bool [P]."""
        return (self.problems["split"] == "train").to_numpy()

    @cached_property
    def held_out(self) -> np.ndarray:
        """Which problems were set aside for validation, bool [P]."""
        return (self.problems["split"] == "validation").to_numpy()

    @cached_property
    def proven(self) -> np.ndarray:
        """Which candidates ran on at least one training problem, bool [Q].

        Others (never built, always failing, never measured) are no candidates: nothing is known about them.
        """
        ran = self.ok & self.trains[self.problem]
        return np.bincount(self.candidate[ran], minlength=len(self.candidates)) > 0

    @cached_property
    def best_tflops(self) -> np.ndarray:
        """Best measured TFLOPS of each problem, float64 [P]; 0 where nothing ran."""
        best = np.zeros(len(self.problems))
        np.maximum.at(best, self.problem[self.ok], self.tflops[self.ok])
        return best

    @cached_property
    def efficiency(self) -> np.ndarray:
        """Efficiency of each pair, float64 [n] in 0..1: 0 where it did not run."""
        efficiency = np.zeros(len(self.problem))
        efficiency[self.ok] = self.tflops[self.ok] / self.best_tflops[self.problem[self.ok]]
        return efficiency

    def grid(self, problems: np.ndarray) -> np.ndarray:
        """Return the efficiency of every candidate for some problems (int [R]), [R, Q]; 0 if nothing was measured."""
        return self.spread_out(problems, self.efficiency, 0.0)

    def spread_out(self, problems: np.ndarray, values: np.ndarray, missing: float) -> np.ndarray:
        """Return one value per pair as a table of some problems (int [R]) and all candidates, float64 [R, Q]."""
        problems = _places("problems", problems, len(self.problems), "problems")
        values = np.asarray(values)
        if values.shape != self.problem.shape:
            raise UserError(f"values is {shown(values)}; give one for each of the {len(self.problem):,} pairs")
        position = np.full(len(self.problems), -1)
        position[problems] = np.arange(len(problems))
        rows = position[self.problem] >= 0
        table = np.full((len(problems), len(self.candidates)), missing)
        table[position[self.problem[rows]], self.candidate[rows]] = values[rows]
        return table


def _places(name: str, given: np.ndarray, count: int, of: str) -> np.ndarray:
    """Return the rows that a mask or an array of positions says, int; ``UserError`` for what is neither."""
    rows = np.asarray(given)
    if rows.dtype == bool and rows.shape == (count,):
        return np.flatnonzero(rows)
    if rows.ndim != 1 or (rows.size and (rows.dtype.kind not in "iu" or rows.min() < -count or rows.max() >= count)):
        raise UserError(f"{name} is {shown(given)}; give a mask of the {count:,} {of}, or their positions")
    return rows.astype(np.intp)


def _candidates(kernels: pd.DataFrame, pairs: pd.DataFrame, folder: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Return one row a candidate, by name and split-K, and for each pair the row of its candidate, int32 [n].

    Kernels that were built, with each split-K that they were built for, or that occurs where that is unknown.
    """
    is_alias = kernels["alias_of"] != ""
    names = kernels[is_alias].sort_values("kernel").groupby("alias_of")["kernel"].agg(candidate_tables.ALIASES.join)
    rows = kernels.assign(number=np.arange(len(kernels)), aliases=[names.get(name, "") for name in kernels["kernel"]])
    built = rows["build_status"] == "ok" if "build_status" in rows else True
    rows = rows[~is_alias & built]
    if "split_k" in rows:
        rows = rows.explode("split_k")
    else:
        rows = rows.merge(pd.DataFrame({"split_k": pairs["split_k"].unique() if len(pairs) else [1]}), how="cross")
    rows = rows.astype({"split_k": "int64"}).sort_values(["kernel", "split_k"], ignore_index=True)
    known = pd.MultiIndex.from_frame(rows[["number", "split_k"]].astype("int64"))
    candidate = known.get_indexer(pd.MultiIndex.from_frame(pairs[["kernel", "split_k"]].astype("int64")))
    if (candidate < 0).any():
        row = pairs.iloc[int((candidate < 0).argmax())]
        raise UserError(
            f"{folder / 'pairs.parquet'}: a pair of {kernels['kernel'][row['kernel']]} with split-K {row['split_k']}, "
            f"which kernels.parquet does not have as a built kernel of its own; {MAKE_AGAIN}"
        )
    table = candidate_tables.with_fields(rows[[*OF_CANDIDATES, "split_k"]])
    return table.assign(aliases=rows["aliases"]), candidate.astype(np.int32)
