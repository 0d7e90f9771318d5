"""A dataset in memory: problems, candidates, and one status and time for each measured pair of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tileseer.dataset import provenance, schema
from tileseer.kernels import candidates as candidate_tables
from tileseer.measure.device import STATUSES, DeviceKind
from tileseer.problems.problem import DIMS

OK = STATUSES.index("ok")
SKIPPED = STATUSES.index("skipped")
NOT_IN_POOL = [STATUSES.index(status) for status in ("unsupported", "compile_error", "compile_timeout")]
"""Statuses known before a selection: such a pair is never a candidate. Every other failure is the selection's risk."""
_OF_PAIRS = ("problem", "candidate", "status", "latency_ms", "tflops", "relative_error", "sentinel", "rank")
"""Fields of ``Dataset`` with an entry per pair."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """n pairs of P problems and Q candidates; a candidate is a kernel with its launch knob split-K.

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
    library: str | None = None
    """Library that offered the candidates, and its version."""
    between_runs: float | None = None
    """Relative standard deviation of a time from run to run; None if it was not measured, or is zero."""

    @classmethod
    def read(cls, path: Path) -> Dataset:
        """Read a dataset file; ``UserError`` if it is damaged, or a row is ``ok`` and has no time."""
        dataset = cls.of_table(schema.read_rows(path), path)
        # Arrow keeps the memory of the rows otherwise, several times that of the dataset.
        pa.default_memory_pool().release_unused()
        return dataset

    @classmethod
    def of_table(cls, table: pa.Table, path: Path) -> Dataset:
        """The content of a dataset file; ``path`` names it in errors."""
        origin = provenance.provenance_of(table, path)
        table, aliases = _without_aliases(table)
        layout = [schema.LAYOUT.name] if schema.LAYOUT.name in table.column_names else []
        problem, problems = _distinct(table, ["problem_key"], (*schema.PROBLEM, *layout))
        candidate, kernels = _distinct(table, ["kernel", "split_k"], (*schema.BUILD, "split_k"))
        status = pc.index_in(table["status"].cast("string"), value_set=pa.array(STATUSES))
        between = origin.between_runs.relative if origin.between_runs else None
        within = table["latency_cv"].to_numpy() / np.sqrt(np.maximum(table["samples"].to_numpy(), 1))
        names = [aliases.get(name, "") for name in kernels["kernel"]]
        return cls(
            arch=origin.arch,
            operation=origin.operation,
            device=origin.device,
            device_kind=origin.device_kind,
            problems=problems,
            candidates=candidate_tables.with_fields(kernels).assign(aliases=names),
            problem=problem,
            candidate=candidate,
            status=status.to_numpy().astype(np.uint8),
            latency_ms=table["latency_ms"].to_numpy(),
            tflops=table["tflops"].to_numpy(),
            # Samples of one worker that agree with each other say nothing of the next worker.
            relative_error=within if between is None else np.fmax(within, between),
            source=origin.recording.provenance.get("source") if origin.recording else None,
            library=origin.recording.library if origin.recording else origin.library,
            between_runs=between,
            sentinel=table["sentinel"].to_numpy(),
            rank=table["rank"].to_numpy().astype(np.float64),
        )

    def only(self, keep: np.ndarray) -> Dataset:
        """Some of the pairs, by mask or by position, of the same problems and candidates."""
        kept: dict[str, Any] = {name: getattr(self, name)[keep] for name in _OF_PAIRS}
        return replace(self, **kept)

    def followed_by(self, other: Dataset) -> Dataset:
        """These, and behind them the problems, candidates and pairs of the other data type, as if of this one."""
        problems = pd.concat([self.problems, other.problems], ignore_index=True)
        problems["dtype"] = self.problems["dtype"].iloc[0]
        candidates = pd.concat([self.candidates, other.candidates], ignore_index=True)
        offset = {"problem": len(self.problems), "candidate": len(self.candidates)}
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name) + offset.get(name, 0)])
            for name in _OF_PAIRS
        }
        return replace(self, problems=problems, candidates=candidates, **joined)

    @cached_property
    def ok(self) -> np.ndarray:
        """Whether each pair ran and has a time, bool [n]."""
        return self.status == OK

    @cached_property
    def in_pool(self) -> np.ndarray:
        """Whether a selector could choose each pair's candidate for its problem, bool [n]."""
        return ~np.isin(self.status, NOT_IN_POOL)

    @cached_property
    def tried(self) -> np.ndarray:
        """Whether each pair of the pool was measured or failed: who picks a skipped one neither wins nor loses."""
        return np.asarray(self.in_pool & (self.status != SKIPPED))

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
        """Efficiency of every candidate for some problems (int [R]), float64 [R, Q]: 0 where nothing was measured."""
        return self.spread_out(problems, self.efficiency, 0.0)

    def spread_out(self, problems: np.ndarray, values: np.ndarray, missing: float) -> np.ndarray:
        """One value per pair as a table of some problems (int [R]) and all candidates, float64 [R, Q]."""
        position = np.full(len(self.problems), -1)
        position[problems] = np.arange(len(problems))
        rows = position[self.problem] >= 0
        table = np.full((len(problems), len(self.candidates)), missing)
        table[position[self.problem[rows]], self.candidate[rows]] = values[rows]
        return table


def _without_aliases(table: pa.Table) -> tuple[pa.Table, dict[str, str]]:
    """The rows of kernels that were measured themselves, and by kernel its other names, in their order."""
    stand_in = table["alias_of"].cast(pa.string())
    is_alias = pc.not_equal(stand_in, "")
    if not pc.any(is_alias).as_py():
        return table, {}
    pairs = pa.table({"kernel": table["kernel"].cast(pa.string()), "alias_of": stand_in}).filter(is_alias)
    names = pairs.to_pandas().drop_duplicates().sort_values("kernel").groupby("alias_of")["kernel"]
    return table.filter(pc.invert(is_alias)), names.agg(candidate_tables.ALIASES.join).to_dict()


def _distinct(table: pa.Table, keys: list[str], columns: Sequence[str]) -> tuple[np.ndarray, pd.DataFrame]:
    """For each row the number of its distinct key, and one row of ``columns`` per key, in key order."""
    number = np.zeros(table.num_rows, np.int64)
    for key in keys:
        coded = table[key].combine_chunks().dictionary_encode()
        place = np.unique(coded.dictionary.to_numpy(zero_copy_only=False), return_inverse=True)[1]
        number = number * len(place) + place[coded.indices.to_numpy()]
    number = pd.factorize(number, sort=True)[0].astype(np.int32)
    first = np.unique(number, return_index=True)[1]
    rows = table.select(list(dict.fromkeys(columns))).take(pa.array(first)).to_pandas()
    for name, values in rows.items():
        if isinstance(values.dtype, pd.CategoricalDtype):
            rows[name] = values.astype(str)
        elif name in (*DIMS, "ndim", "split_k", "lds_bytes") and not values.hasnans:
            # A kernel that was not built has no LDS: its column stays a float.
            rows[name] = values.astype("int64")
        elif name in schema.CODE:
            rows[name] = values.astype("float64")
    return number, rows
