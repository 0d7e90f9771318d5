"""The tables that a reader decides by: verdict, kernels to ship, winners, every shape, losses, what to do next."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from tileseer.compile.cost import ESTIMATED_BYTES, ESTIMATED_SECONDS
from tileseer.gpus.hardware import target
from tileseer.kernels.registry import family_of_arch
from tileseer.learn.validation_report import Distance, Stratum, WorstPick
from tileseer.report import tables
from tileseer.report.measured import LABEL, Measured, classes, records, short
from tileseer.report.results import OperationResult, Results
from tileseer.report.tables import Cell, Copied, PageTable, Row, each_operation, together
from tileseer.serve import verdict as verdicts

FEW = 3
"""Worst networks in the verdict, kernels of a class, parts of each kind."""
LOUD = 1.25
"""A part is worth more training problems if its share of the loss is so many times its share of the problems."""
STEEP = 0.3
"""Points that the last step of a learning curve gained, from which more training problems are worth it."""
NOISY = 99.0
"""Efficiency, percent, that a selector without error misses where the times are too noisy to tell candidates apart."""


@partial(together, "Verdict")
def verdict(results: Results) -> Iterable[Row]:
    """Whether each model is good enough, and why."""
    for result in results.operations:
        if (shipped := result.evaluation) is None:
            continue
        yield {
            "operation": shipped.operation, "verdict": verdicts.verdict_words(shipped), "mean, %": shipped.first.mean,
            "10th percentile, %": shipped.first.p10, "best of 2, mean, %": shipped.best_of_2.mean,
            "best of 3, mean, %": shipped.best_of_3.mean, "by time, %": shipped.by_time,
            "possible mean, %": shipped.possible.mean, "layers": shipped.layers,
            "layers without a candidate": shipped.without_candidate, "time covered, %": shipped.covered_time,
            "worst layer, %": shipped.worst_layer.efficiency,
            "worst networks": ", ".join(f"{one.network} {one.efficiency:.1f} %" for one in shipped.networks[:FEW]),
        }  # fmt: skip


@partial(together, "Kernels to ship")
def ship(results: Results) -> Iterable[Row]:
    """The few kernels that are enough, with their price."""
    for result in results.operations:
        if (kernels := result.kernels) is None:
            continue
        costs: Row = {}
        # What comes with its library is not compiled.
        if family_of_arch(kernels.arch).toolchain:
            candidates = pd.DataFrame() if result.measured is None else result.measured.candidates
            code = candidates.groupby("kernel")["code_bytes"].max() if len(candidates) else pd.Series(dtype=float)
            sizes = code.reindex(kernels.pruned)
            is_measured = bool(sizes.notna().all())
            size = float(sizes.sum()) if is_measured else ESTIMATED_BYTES * kernels.pruned_size
            costs = {"machine code, MB": f"{size / 1e6:.2f} ({'measured' if is_measured else 'estimated'})"}
            # Of kernels that were compiled, `tileseer ship` has what their builds took.
            if not is_measured:
                costs["CPU minutes to compile"] = f"{ESTIMATED_SECONDS * kernels.pruned_size / 60:.0f} (estimated)"
        of_unseen = kernels.oracle_within_pruned.get("validation")
        yield {
            "operation": kernels.operation, "kernels": f"{kernels.pruned_size} of {kernels.pool_size}",
            "loss on training problems, %": f"{100 - kernels.oracle_within_pruned['train'].mean:.2f}",
            "loss on unseen problems, %": "" if of_unseen is None else f"{100 - of_unseen.mean:.2f}",
            "10th percentile, %": "" if of_unseen is None else of_unseen.p10,
            **costs,
            "names": Copied("\n".join(kernels.pruned), f"Copy {kernels.pruned_size} names"),
        }  # fmt: skip


@partial(each_operation, "The kernels of the set, the one that adds most first")
def shipped(result: OperationResult) -> Iterable[Row]:
    """Each kernel of the set, with its other names."""
    if result.kernels is None or result.measured is None:
        return
    seen = result.measured
    rows = {row.kernel: row for row in reversed(records(seen.candidates.sort_values("candidate")))}
    won = pd.Series(seen.wins.sum(axis=0)).groupby(seen.candidates["kernel"].to_numpy()).sum() * 100 / len(seen.shapes)
    for number, kernel in enumerate(result.kernels.pruned, 1):
        yield {
            "kernel": str(number), **_label(rows[kernel]), "shapes won of the whole pool, %": float(won[kernel]),
            "other names": ", ".join(rows[kernel].aliases.split()), "name": Copied(kernel, "Copy"),
        }  # fmt: skip


@partial(each_operation, "The kernels that win most of each class of shapes")
def wins(result: OperationResult) -> Iterable[Row]:
    """Which kernels win where, by size, filter, channels and groups; candidates of the same time share a shape."""
    if (seen := result.measured) is None:
        return
    rows = records(seen.candidates)
    for kind, name, own in classes(seen.shapes):
        won = 100 * seen.wins[own].mean(axis=0)
        for place in np.argsort(-won, kind="stable")[:FEW]:
            if won[place] > 0:
                yield {
                    "class": f"{kind}: {name}", "shapes": int(own.sum()), **_label(rows[place]),
                    "shapes won, %": float(won[place]),
                    "mean efficiency of it alone, %": 100 * float(seen.efficiency[own, place].mean()),
                    "best of the roofline, median, %": float(seen.shapes.loc[own, "roof"].median()),
                }  # fmt: skip


def best(results: Results) -> list[PageTable]:
    """The fastest candidate of every shape of every operation, in one table, and the model's pick beside it."""
    rows = [row for result in results.operations if result.measured for row in _best(result, result.measured, results)]
    fastest = tables.table_of(f"The fastest candidate of each shape, {results.label}", rows)
    return [replace(table, searched=True, filters=("operation", "pipeline")) for table in fastest]


def _best(result: OperationResult, seen: Measured, results: Results) -> Iterable[Row]:
    has_library = any("cuDNN" in one.library_us for one in results.operations)
    library_us = result.library_us.get("cuDNN", pd.Series(dtype=float)).to_dict()
    labels = {row.candidate: row for row in records(seen.candidates)}
    for shape in records(seen.shapes.sort_values(["network", "layer", "problem"], kind="stable")):
        pick = result.validation.picks.get(shape.problem_key)
        same = pick and (pick.candidate == shape.candidate or pick.efficiency == 100)
        label = labels[shape.candidate]
        cells: dict[str, Cell] = {
            "layer": f"{shape.network}: {shape.layer}" if shape.layer else shape.network,
            "operation": result.validation.operation,
            "problem": tables.without_defaults(shape.problem),
            **_label(label),
            "equal": int(shape.equal - 1),
            "TFLOPS": float(shape.tflops),
            "of the roofline, %": float(shape.roof),
            "µs": 1e3 * float(shape.latency_ms),
            "pick": "the best" if same else short(labels[pick.candidate]) if pick else "",
            "pick, %": pick.efficiency if pick else "",
        }
        library = {"cuDNN, µs": library_us.get(shape.problem_key, "")} if has_library else {}
        line = replay(result, label, shape.problem)
        yield cells | library | ({"replay": Copied(line, "Copy")} if line else {})


def replay(result: OperationResult, label: Any, problem: str) -> str:
    """A command that measures one candidate on one problem again; empty for what no driver of ours can run."""
    if not label.tile:
        return ""
    report = result.validation
    variant, _, dtype = report.operation.rpartition("_")
    device = (
        f"--arch {target(report.arch)} --product {report.device}"
        if report.device_kind == "simulated"
        else "--driver driver.so --module kernels.so"
    )
    dims = tables.without_defaults(problem).replace(" ", ",")
    return f"tileseer bench {device} --variant {variant} --dtype {dtype} --candidate {label.candidate} --problem {dims}"


def _label(row: Any) -> dict[str, Cell]:
    return {name: getattr(row, name) for name in LABEL}


def _parts(result: OperationResult) -> Iterator[tuple[str, str, Stratum, float]]:
    """Each part of the problems, by kind, and its share of what is lost there against the possible mean."""
    report = result.validation
    kinds: dict[str, Mapping[str, Stratum]] = {
        "layers": report.by_layer_kind,
        "distance to training, octaves": {_octaves(part): part for part in report.by_distance or ()},
        "network": report.by_network,
    }
    for kind, parts in kinds.items():
        lost = {
            name: max(0.0, part.noise_floor.best.mean - part.efficiency.mean) * part.n_problems
            for name, part in parts.items()
        }
        total = sum(lost.values()) or 1.0
        for name in sorted(lost, key=lambda name: (-lost[name], name)):
            yield kind, name, parts[name], 100 * lost[name] / total


def _octaves(distance: Distance) -> str:
    """The class of a distance in words."""
    if not distance.of_a_known_kind:
        return "kind not trained on"
    if distance.above is None:
        return "unknown"
    return f"above {distance.above:g}" + ("" if distance.up_to is None else f", up to {distance.up_to:g}")


@partial(each_operation, "Where the model loses")
def losses(result: OperationResult) -> Iterable[Row]:
    """The parts of the problems that lose most, of each kind the first few."""
    shown: dict[str, int] = {}
    for kind, name, part, share in _parts(result):
        shown[kind] = shown.get(kind, 0) + 1
        if shown[kind] <= FEW:
            yield {
                "part": f"{kind}: {name}", "problems": part.n_problems, "mean, %": part.efficiency.mean,
                "10th percentile, %": part.efficiency.p10, "possible mean, %": part.noise_floor.best.mean,
                "share of the loss, %": share,
            }  # fmt: skip


@partial(together, "What to do next")
def following(results: Results) -> Iterable[Row]:
    """What would make each model better, as far as its figures say."""
    for result in results.operations:
        for what, why in _next(result):
            yield {"operation": result.validation.operation, "do": what, "because": why}


def _next(result: OperationResult) -> Iterator[tuple[str, str]]:
    report = result.validation
    for kind, name, part, share in _parts(result):
        of_problems = 100 * part.n_problems / report.n_problems
        if kind in ("layers", "distance to training, octaves") and share > LOUD * of_problems and share >= 10:
            yield (
                f"measure more training problems, {kind}: {name}",
                f"they are {of_problems:.0f} % of the problems and {share:.0f} % of the loss",
            )
    steps = [(share.problems, share.efficiency.mean) for share in report.learning_curve or ()]
    for (before, low), (after, high) in list(pairwise(steps))[-1:]:
        if high - low >= STEEP:
            gained = f"the last ones, {before:,} to {after:,}, gained {high - low:.1f} points"
            yield "measure more training problems of all kinds", gained
    if failed := sum(pick.pick_failed for pick in report.worst):
        yield "examine why picked kernels fail", f"{failed} of the worst picks did not run"
    if report.n_without_measurement:
        yield "add kernels", f"no candidate can run {report.n_without_measurement} unseen layers"
    floor = report.noise_floor.perfect_selector.efficiency.mean
    if floor < NOISY:
        yield "time candidates that are close more precisely", f"a perfect selector has {floor:.1f} % on these times"


@partial(each_operation, "Worst picks")
def worst(result: OperationResult) -> Iterable[Row]:
    """The picks that are farthest from the best."""
    seen = result.measured
    labels = {row.candidate: row for row in records(seen.candidates)} if seen else {}
    for pick in result.validation.worst:
        names = {name: short(labels[name]) if name in labels else name for name in (pick.pick, pick.best)}
        line = replay(result, labels[pick.best], pick.problem) if pick.best in labels else ""
        yield {
            "layer": f"{pick.network}: {pick.layer}", "efficiency, %": pick.efficiency, "pick": names[pick.pick],
            "best": names[pick.best], "problem": tables.without_defaults(pick.problem),
            "spoke for the pick": _reasons(pick), "like training": _novelty(pick),
            **({"replay the best": Copied(line, "Copy")} if line else {}),
        }  # fmt: skip


def _reasons(worst: WorstPick) -> str:
    reasons = (
        f"{s.feature} {s.contribution:+.2f} ({s.of_pick:g}, best {s.of_best:g})" for s in worst.spoke_for_the_pick
    )
    return "; ".join(reasons) or "unknown"


def _novelty(worst: WorstPick) -> str:
    words = [f"farther from training than {worst.distance_percentile:.0f} % of training problems from one another"]
    if worst.outside_training:
        words.append("outside: " + ", ".join(worst.outside_training))
    return "; ".join([*words, "nearest: " + tables.without_defaults(worst.nearest_training_problem)])


@partial(together, "How sure the times are")
def health(results: Results) -> Iterable[Row]:
    """Failures, noise and drift of all pairs."""
    for result in results.operations:
        if result.measured is not None:
            pairs = result.measured.health
            failed = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in pairs["failed"].items())
            yield {
                "operation": result.validation.operation, "pairs timed": pairs["timed"], "failed": failed or "none",
                "median standard error of a time, %": _known(pairs["error"], ".2f"),
                "pairs timed while the device had drifted, %": _known(pairs["drifted"], ".1f"),
                "roof, TFLOPS": result.measured.peak_tflops, "TB/s": result.measured.memory_tb_per_s,
            }  # fmt: skip


def _known(value: float | None, number: str) -> str:
    return "not known" if value is None else format(value, number)
