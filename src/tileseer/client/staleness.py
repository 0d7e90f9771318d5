"""Picks that went stale: what measured times of another day, driver or library say of them, and what to measure again.

A pick is the candidate with the fastest old time of its problem. Only candidates with a time in both count.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tileseer.conv.operation import Operation
from tileseer.conv.problem import DIMS, frame, of_rows
from tileseer.core.errors import UserError
from tileseer.dataset import bootstrap, find_db, provenance, recording, schema
from tileseer.families import candidates
from tileseer.families.registry import of_arch
from tileseer.model import index as published
from tileseer.model.model import Model
from tileseer.model.schema import Summary

PROBLEM = ["operation", "problem_key"]
PAIR = [*PROBLEM, "candidate"]
TRUST = 0.5
"""Share of the model in how close candidates are thought to be; the rest is what was measured. One time may be an
accident; docs/results.md has what the share does."""


def times(path: Path) -> pd.DataFrame:
    """Measured pairs of a recording's folder, a dataset or a find-db: ``PAIR``, ``DIMS``, ``ms``."""
    if path.is_dir():
        rows = recording.times(path)
    elif path.suffix == ".parquet":
        rows = _of_dataset(path)
    else:
        rows = _of_database(path)
    if rows.empty:
        raise UserError(f"{path}: there is no measured time in it")
    return rows


def _of_dataset(path: Path) -> pd.DataFrame:
    table = schema.read(path)
    told = provenance.of_table(table, path)
    names = ["problem_key", "kernel", "split_k", "latency_ms", "layer_family", *DIMS]
    rows = table.select(names).to_pandas().dropna(subset="latency_ms").rename(columns={"latency_ms": "ms"})
    labels = [candidates.label(name, split) for name, split in zip(rows["kernel"], rows["split_k"], strict=True)]
    return rows.assign(operation=told.operation, candidate=labels)


def _of_database(path: Path) -> pd.DataFrame:
    kind = of_arch("_miopen").part("kernel").KERNEL
    found = find_db.read([path], "", frozenset(kind.choices["solver"])).times
    problems = frame([problem for problem, _ in found])
    names = [kind(p.variant, p.dtype, p.ndim, solver).name for p, solver in found]  # type: ignore[call-arg]
    operation = problems["variant"] + "_" + problems["dtype"]
    return problems.assign(operation=operation, candidate=names, ms=list(found.values()))


@dataclass(frozen=True)
class Stale:
    """What keeping the old picks costs."""

    figures: dict[str, Any]
    """``efficiency``: the best new time over that of the old pick."""
    picks: pd.DataFrame
    """Of each problem with a stale pick, the costliest first: ``PROBLEM``, ``DIMS``, ``old``, ``new``, ``efficiency``
    (0..1)."""


def compare(old: pd.DataFrame, new: pd.DataFrame) -> Stale:
    """Stale picks of problems with two candidates or more in both."""
    both = old.merge(new[[*PAIR, "ms"]], on=PAIR, suffixes=("_old", "_new"))
    both = both[both.groupby(PROBLEM)["candidate"].transform("size") > 1]
    if both.empty:
        raise UserError("OLD and NEW have no problem with two candidates in common; give two files of one GPU")
    of_problem = both.groupby(PROBLEM)
    kept = both.loc[of_problem["ms_old"].idxmin()]
    best = both.loc[of_problem["ms_new"].idxmin()]
    kept = kept.assign(
        old=kept["candidate"], new=best["candidate"].to_numpy(),
        efficiency=best["ms_new"].to_numpy() / kept["ms_new"].to_numpy(),
    )  # fmt: skip
    stale = kept[kept["efficiency"] < 1].sort_values("efficiency", kind="stable")
    figures = {
        "problems": len(kept),
        "stale": len(stale),
        "efficiency": Summary.of(kept["efficiency"].to_numpy()).model_dump(),
        "interval": bootstrap.of_mean(kept["efficiency"].to_numpy()),
    }
    return Stale(figures, stale[[*PROBLEM, *DIMS, "old", "new", "efficiency"]].reset_index(drop=True))


def first(old: pd.DataFrame, models: Path, budget: int) -> pd.DataFrame:
    """The ``budget`` pairs to measure again first, with ``behind``: how far behind a rival each is thought to be.

    A pick goes stale where another candidate is close. The fastest of a problem goes with its closest rival; how close
    they are is an even mean of measured times and the model's scores, both logarithms (``TRUST``).
    """
    time = np.log(old["ms"].to_numpy())
    expected = -scores(old, models)
    problem = old.groupby(PROBLEM).ngroup().to_numpy()
    mixed = np.where(np.isfinite(expected), (1 - TRUST) * time + TRUST * expected, time)
    rows = old.assign(behind=behind(problem, mixed))
    rows = rows[np.isfinite(rows["behind"])].sort_values(["behind", *PAIR], kind="stable")
    return rows[[*PAIR, *DIMS, "ms", "behind"]].head(budget).reset_index(drop=True)


def behind(problem: np.ndarray, time: np.ndarray) -> np.ndarray:
    """How far each pair is behind the fastest of its problem, and that behind the next; infinite without a rival."""
    of_problem = pd.Series(time).groupby(problem)
    gap = time - of_problem.transform("min").to_numpy()
    is_fastest = np.zeros(len(time), bool)
    is_fastest[of_problem.idxmin()] = True
    rivals = pd.Series(np.where(is_fastest, np.inf, gap)).groupby(problem).transform("min").to_numpy()
    return np.where(is_fastest, rivals, gap)


def scores(rows: pd.DataFrame, models: Path) -> np.ndarray:
    """Score of each pair by the published model of its operation, float64 [n]; NaN where there is none."""
    index = published.verify(models)
    found = np.full(len(rows), np.nan)
    operations = rows["operation"].to_numpy(object)
    for operation in sorted(set(operations) & set(index.operations)):
        model = Model.read(models / index.operations[operation].folder)
        at = np.flatnonzero(operations == operation)
        candidate = pd.Index(model.pool["candidate"]).get_indexer(rows["candidate"].iloc[at])
        at, candidate = at[candidate >= 0], candidate[candidate >= 0]
        part = rows.iloc[at]
        number, keys = pd.factorize(part["problem_key"])
        distinct = part.drop_duplicates("problem_key").set_index("problem_key").loc[keys]
        asked = Operation.parse(operation)
        problems = frame(of_rows(asked.variant, asked.dtype, distinct[list(DIMS)].to_numpy()))
        found[at] = model.predict(problems, number, candidate)
    if not np.isfinite(found).any():
        raise UserError(f"{models}: the models know no pair of OLD; give models of the same kernels and operations")
    return found
