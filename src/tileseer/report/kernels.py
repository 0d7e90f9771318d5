"""The kernels: which to ship, which win where, the fastest of each layer, and the quality of their times."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from tileseer.problems.problem_csv import without_defaults
from tileseer.report import tables
from tileseer.report.measured import LABEL, classes, records, short
from tileseer.report.results import OperationResult, Results
from tileseer.report.tables import Cell, Copied, PageTable, Row, each_operation, together

WINNERS_OF_A_CLASS = 3
"""Kernels of a class."""
MOST_LAYERS = 3000
"""Layers of an operation in the table of the fastest candidates: with all 92,000 of a recording of MIOpen, a page had
46 MB."""


@partial(together, "The few kernels to ship")
def ship(results: Results) -> Iterable[Row]:
    """Yield the small set of kernels and its loss, as ``tileseer ship`` prints them."""
    for kernels in (result.kernels for result in results.operations):
        reached = kernels.oracle_within_pruned
        losses = {"loss, %": f"{100 - reached['train'].mean:.2f}"}
        if unseen := reached.get("validation"):
            losses["loss on unseen layers, %"] = f"{100 - unseen.mean:.2f}"
            losses["P10 loss on unseen layers, %"] = f"{100 - unseen.p10:.2f}"
        yield {
            "operation": kernels.operation, "kernels": f"{kernels.pruned_size} of {kernels.pool_size}", **losses,
            "names": Copied("\n".join(kernels.pruned), f"Copy {kernels.pruned_size} names"),
        }  # fmt: skip


@partial(each_operation, "The kernels of the set, the one that adds most first")
def shipped(result: OperationResult) -> Iterable[Row]:
    """Yield each kernel of the set, with its other names."""
    seen = result.measured
    rows = {row.kernel: row for row in reversed(records(seen.candidates.sort_values("candidate")))}
    won = pd.Series(seen.wins.sum(axis=0)).groupby(seen.candidates["kernel"].to_numpy()).sum() * 100 / len(seen.shapes)
    for number, kernel in enumerate(result.kernels.pruned, 1):
        yield {
            "kernel": str(number), **_label(rows[kernel]), "layers won among all kernels, %": float(won[kernel]),
            "other names": ", ".join(rows[kernel].aliases.split()), "name": Copied(kernel, "Copy"),
        }  # fmt: skip


@partial(each_operation, "The kernels that win most of each class of layers")
def wins(result: OperationResult) -> Iterable[Row]:
    """Yield which kernels win where, by size, filter, channels and groups; those of the same time share a layer."""
    seen = result.measured
    rows = records(seen.candidates)
    for kind, name, own in classes(seen.shapes):
        won = 100 * seen.wins[own].mean(axis=0)
        for place in np.argsort(-won, kind="stable")[:WINNERS_OF_A_CLASS]:
            if won[place] > 0:
                yield {
                    "class": f"{kind}: {name}", "layers": int(own.sum()), **_label(rows[place]),
                    "layers won, %": float(won[place]),
                    "mean efficiency of this one alone, %": 100 * float(seen.efficiency[own, place].mean()),
                    "roofline share of the best, median, %": float(seen.shapes.loc[own, "roof"].median()),
                }  # fmt: skip


def best(results: Results) -> list[PageTable]:
    """Return the fastest candidate of each layer of every operation, in one table, and the pick beside it."""
    rows = [row for result in results.operations for row in _best(result, results)]
    more = any(len(result.measured.shapes) > MOST_LAYERS for result in results.operations)
    which = f"each layer (those with the worst picks, {MOST_LAYERS:,} of an operation)" if more else "each layer"
    fastest = tables.table_of(f"The fastest candidate of {which}, {results.label}", rows)
    return [replace(table, searched=True, filters=("operation", "pipeline")) for table in fastest]


def _best(result: OperationResult, results: Results) -> Iterable[Row]:
    has_library = any(len(one.library_us) for one in results.operations)
    seen = result.measured
    labels = {row.candidate: row for row in records(seen.candidates)}
    for shape in records(_listed(result).sort_values(["network", "layer", "problem"], kind="stable")):
        pick = result.evaluation.picks.get(shape.problem_key)
        same = pick and (pick.candidate == shape.candidate or pick.efficiency == 100)
        label = labels[shape.candidate]
        cells: dict[str, Cell] = {
            "layer": f"{shape.network}: {shape.layer}" if shape.layer else shape.network,
            "operation": result.evaluation.operation,
            "problem": without_defaults(shape.problem),
            **_label(label),
            "equally fast": int(shape.equal - 1),
            "TFLOPS": float(shape.tflops),
            "of the roofline, %": float(shape.roof) if shape.roof <= 100 else "above 100",
            "µs": 1e3 * float(shape.latency_ms),
            "pick": "the best" if same else short(labels[pick.candidate]) if pick else "",
            "pick, %": pick.efficiency if pick else "",
        }
        library = {"cuDNN, µs": result.library_us.get(shape.problem_key, "")} if has_library else {}
        yield cells | library


def _listed(result: OperationResult) -> pd.DataFrame:
    """Return the layers that the table has: all, or those with the worst picks."""
    shapes, picks = result.measured.shapes, result.evaluation.picks
    efficiency = [picks[key].efficiency if key in picks else np.inf for key in shapes["problem_key"]]
    return shapes.iloc[np.argsort(efficiency, kind="stable")[:MOST_LAYERS]]


def _label(row: Any) -> dict[str, Cell]:
    return {name: getattr(row, name) for name in LABEL}


@partial(together, "Quality of the times")
def health(results: Results) -> Iterable[Row]:
    """Yield the failures, noise and drift of all pairs."""
    for result in results.operations:
        pairs = result.measured.health
        yield {
            "operation": result.evaluation.operation, "pairs timed": pairs["timed"], "failed": pairs["failed"],
            "median standard error of a time, %": _number(pairs["error"], ".2f"),
            "pairs timed while the device had drifted, %": _number(pairs["drifted"], ".1f"),
            "peak, TFLOPS": result.measured.peak_tflops, "peak, TB/s": result.measured.memory_tb_per_s,
        }  # fmt: skip


def _number(value: float | None, number: str) -> str:
    return "unknown" if value is None else format(value, number)
