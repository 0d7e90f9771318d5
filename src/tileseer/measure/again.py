"""Repeat measurements: how far two workers differ, and close contenders in turns.

What one worker measures one after the other shares its memory and its moment, so the scatter of its samples says
little about the next run. Some pairs are therefore drawn at random and measured once more by another worker. And where
kernels are close to a problem's best, the few fastest are repeated, there and back (A B C C B A), so that a drift in
between cancels. The rows go to a journal of their own beside the first one, in the folder ``again``.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tileseer.core import exact
from tileseer.facts.benchmark import Timing
from tileseer.measure import journal
from tileseer.measure.journal import IDENTITY, pair_text

FOLDER = "again"
SHARE = 0.1
"""Of a budget, for repeat measurements."""
LEAST_PAIRS_FOR_NOISE = 8
"""Pairs under which nothing is said about the noise between runs."""
MEDIAN_DIFFERENCE = 0.9539
"""Median absolute difference of two normal numbers, in their standard deviations."""
NOTHING = journal.SCHEMA.empty_table()


def journal_again(first: Path) -> Path:
    """Return the journal of the repeat measurements of a chunk, whose first journal is given."""
    return first.parent / FOLDER / first.name


def counted(second: pa.Table, rows: pa.Table) -> pa.Table:
    """Return the rows of the device in the second journal that count: the ``ok`` ones about pairs of ``rows``."""
    second = _ok(second)
    return second.filter(pc.is_in(pair_text(second), value_set=pair_text(rows).combine_chunks()))


def drawn(rows: pa.Table, count: int, seed: int) -> pa.Table:
    """Return up to ``count`` rows at random, of the ``ok`` ones with several samples."""
    usable = _ok(rows)
    usable = usable.filter(pc.greater(usable["samples"], 1)).sort_by([(name, "ascending") for name in IDENTITY])
    chosen = np.random.default_rng(seed).permutation(usable.num_rows)[:count]
    return usable.take(pa.array(chosen))


def contenders(rows: pa.Table, most: int, close: float) -> list[np.ndarray]:
    """Return the rows of the ``most`` fastest of each problem whose second kernel is within ``close`` of the first."""
    table = pd.DataFrame({name: rows[name].to_pandas() for name in ("problem_key", "latency_ms", "status", *IDENTITY)})
    table = table[table["status"] == "ok"].sort_values(["problem_key", "latency_ms", *IDENTITY])
    best = table.groupby("problem_key")["latency_ms"].transform("first")
    near = table[table["latency_ms"] <= best * (1 + close)]
    groups = [part.index.to_numpy()[:most] for _, part in near.groupby("problem_key")]
    return [group for group in groups if len(group) > 1]


def plan_again(rows: pa.Table, second: pa.Table, gpu: Timing, seed: int) -> pa.Table:
    """Return the rows that are still to be repeated, in their order, some of them twice.

    ``rows`` are those of the first journal that count, ``second`` those of the second one.
    """
    had = Counter(pair_text(second).to_pylist())
    draw = drawn(rows, gpu.pairs_again, seed)
    draw = draw.filter(pa.array([text not in had for text in pair_text(draw).to_pylist()], pa.bool_()))
    pairs = pair_text(rows).to_pylist()
    close = contenders(rows, gpu.contenders, gpu.close)
    # There and back: the mean of a row's two places is the same for all.
    groups = [np.concatenate([group, group[::-1]]) for group in close if any(had[pairs[row]] < 2 for row in group)]
    turns = [groups[turn] for turn in np.random.default_rng(seed).permutation(len(groups))]
    return pa.concat_tables([draw, rows.take(pa.array(np.concatenate([np.empty(0, np.int64), *turns])))])


def differences(rows: pa.Table, second: pa.Table, gpu: Timing, seed: int) -> list[float]:
    """Return the logarithm of the second time over the first one of the drawn pairs, in ascending order."""
    if not second.num_rows:
        return []
    draw = drawn(rows, gpu.pairs_again, seed)
    index = pc.index_in(pair_text(draw), value_set=pair_text(second).combine_chunks())
    later = second["latency_ms"].take(index.combine_chunks()).to_numpy()
    change = exact.log(later / draw["latency_ms"].to_numpy())
    return [round(float(value), 6) for value in np.sort(change[np.isfinite(change)])]


def noise_between_runs(differences: Sequence[float]) -> float | None:
    """Return the relative standard deviation of a time from run to run; None where too few pairs tell.

    Robust, from the median of the differences, because a few pairs differ by much more.
    """
    if len(differences) < LEAST_PAIRS_FOR_NOISE:
        return None
    return float(np.median(np.abs(differences))) / MEDIAN_DIFFERENCE


def combined(rows: pa.Table, second: pa.Table) -> pa.Table:
    """Return ``rows`` with the mean of both times, where there is a second one; its several times count as one."""
    if not second.num_rows:
        return rows
    later = pd.Series(second["latency_ms"].to_numpy()).groupby(np.asarray(pair_text(second))).mean()
    repeated = later.reindex(pair_text(rows).to_pylist()).to_numpy()
    first = rows["latency_ms"].to_numpy()
    mean = np.where(np.isnan(repeated), first, (first + repeated) / 2)
    tflops = rows["tflops"].to_numpy() * first / mean
    for name, values in (("latency_ms", mean), ("tflops", tflops)):
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(values, from_pandas=True))
    return rows


def _ok(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.equal(rows["status"], "ok"))
