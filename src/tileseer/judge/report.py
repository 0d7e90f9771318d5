"""The report: one page of tables and pictures that shows what came out, and all judged layers as CSV beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import pandas as pd

from tileseer.core import documents, templates
from tileseer.core.checkout import Source
from tileseer.core.code_digest import version_of
from tileseer.core.errors import UserError
from tileseer.data.provenance import Recording
from tileseer.data.recordings import vendor_models
from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.judge import baselines, pictures
from tileseer.judge.evaluation import Evaluation
from tileseer.judge.figures import LONGEST, figures, groups, longest_layers
from tileseer.judge.layers import read_layers
from tileseer.judge.verdict import COVERED_TIME, faults, in_words, meaning_of_times, next_step, verdict_of, worth_using
from tileseer.learn.model_schema import Origin, Summary, same_origin
from tileseer.libraries.registry import library_of_arch
from tileseer.problems.problem_csv import without_defaults

ONE_DEVICE = "one report shows one device"
LISTED = 10
"""Layers listed of an operation."""
MOST_PARTS = 16
"""Networks in the picture of time."""
WINNERS = 3
"""Kernels listed of a kind of layers."""
LOUD = 1.25
"""A part is worth more training problems if its share of the lost time is so many times its share of the time."""
NOISY = 99.0
"""Efficiency, percent, that a pick without error misses where the times are too noisy to tell candidates apart."""
WORTH_TIMING = 0.5
"""Points of efficiency that timing two picks has to gain."""
Row = Mapping[str, Any]
"""Cells by column, in the order of the columns; the first one names the row. A number is right-aligned."""
Rows = Callable[["Operation"], Iterable[Row]]


class KernelSet(Protocol):
    """The kernels to ship of one operation (``serve.serving_files.Kernels``)."""

    operation: str
    pool_size: int
    pruned_size: int
    oracle_within_pruned: dict[str, Summary]


@dataclass(frozen=True)
class Operation:
    """What came out of one operation."""

    evaluation: Evaluation
    layers: pd.DataFrame
    """Of ``layers.LAYERS``."""
    kernels: KernelSet

    @property
    def name(self) -> str:
        """Direction and data type."""
        return self.evaluation.operation

    @property
    def ran(self) -> pd.DataFrame:
        """The layers that a candidate ran."""
        return self.layers[self.layers["best_us"].notna()]

    @property
    def label(self) -> str:
        """The title of a picture or table: operation, arch, device kind, and the layers that it leaves out."""
        name = f"{self.name}, {self.evaluation.arch} ({self.evaluation.device_kind})"
        missing = self.evaluation.without_candidate
        return f"{name}, without {missing:,} layers that have no candidate" if missing else name


@dataclass(frozen=True)
class Table:
    """A table of the page."""

    caption: str
    rows: Sequence[Row]


def read_operations(evaluations: Sequence[Path], kernels: Sequence[KernelSet]) -> list[Operation]:
    """Read the evaluations, their layers beside them, in the order forward, bwd_data, bwd_weight.

    ``UserError`` when a file is missing or has another form, when an operation lacks one, or when they differ in arch,
    device or device kind.
    """
    found = {path: documents.read_document(path, Evaluation) for path in evaluations}
    for path, one in found.items():
        same_origin(path, one, found[evaluations[0]], evaluations[0], ONE_DEVICE)
    names = sorted(one.operation for one in found.values())
    if sorted(one.operation for one in kernels) != sorted(set(names)):
        raise UserError(f"kernels: give one list for each operation of the evaluations, {', '.join(names)}")
    sets = {one.operation: one for one in kernels}
    operations = [
        Operation(one, read_layers(path.with_suffix(".parquet")), sets[one.operation]) for path, one in found.items()
    ]
    order = [f"{variant}_{dtype}" for variant in VARIANTS for dtype in sorted(DTYPES)]
    return sorted(operations, key=lambda one: order.index(one.name))


def layers_as_csv(operations: Sequence[Operation]) -> str:
    """Return all judged layers as CSV."""
    abouts = (dict(Origin.of(one.evaluation)) for one in operations)
    tables = [one.layers.assign(**about)[[*about, *one.layers]] for one, about in zip(operations, abouts, strict=True)]
    table = pd.concat(tables)
    texts = table.select_dtypes(exclude="number").columns
    # A spreadsheet takes what begins with one of these for a formula.
    table[texts] = table[texts].apply(lambda column: column.str.replace(r"^(?=[=+@-])", "'", regex=True))
    return table.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def render_report(
    operations: Sequence[Operation], recording: Recording, template: Path, call: str, source: Source, settings: str,
    layers: str,
) -> str:  # fmt: skip
    """Return the page as HTML that loads nothing; the same results and template give the same text.

    ``call`` is the command that made the results, ``source`` the checkout that makes the page, ``settings`` the digest
    of the configuration, ``layers`` the name of the file of ``layers_as_csv`` beside it. ``UserError`` when the
    template is missing or broken.
    """
    first = operations[0].evaluation
    pipelines = sorted({name for one in operations for name in one.ran["pipeline"]})
    environment = templates.environment(template.parent).overlay(autoescape=True)
    environment.filters["number"] = lambda value: f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
    environment.tests["text"] = lambda value: isinstance(value, str)

    def together(title: str, rows: Rows, by: str = "") -> list[Table]:
        found: list[Row] = [{"operation": one.name, **row} for one in operations for row in rows(one)]
        found = sorted(found, key=lambda row: row[by]) if by else found
        return [Table(f"{title}, {first.arch} ({first.device_kind})", found)] if found else []

    def each(title: str, rows: Rows) -> list[Table]:
        return [Table(f"{title}, {one.label}", found) for one in operations if (found := list(rows(one)))]

    recorded = [{"subject": subject, "description": text} for subject, text in recording.description().items()]

    with templates.mistakes_named(template):
        return environment.get_template(template.name).render(
            first=first,
            version=version_of("tileseer"),
            headline=_headline([one.evaluation for one in operations]),
            layers=layers,
            worth=meaning_of_times(first.device_kind, first.device),
            verdicts=[_verdict(one.evaluation, _parts(operations)) for one in operations],
            next=next_step(first.arch, [one.evaluation for one in operations], call, layers.removesuffix(".csv")),
            overview=[
                (f"{first.arch} ({first.device_kind})", picture)
                for picture in (pictures.spread(_spread(operations)), pictures.time_by_part(*_time_by_part(operations)))
            ],
            limits=together("Limits of what is possible that are missed", _limits),
            figures=[
                *together("Efficiency of the picks that ship", _figures),
                *together("Time of the picks that ship, with all uses of the layers", _sums),
            ],
            ship=together("The few kernels to ship", _ship),
            losses=[
                *together("What would improve the models", _advice),
                *together("All networks, the worst first, by time", _networks, "efficiency, %"),
            ],
            more=[
                *each("Loss against the fastest candidate, by kind of layer and by evidence", _kinds),
                *each("The worst picks", _worst),
                *each("The layers on which picks lose most time, with all their uses", _costliest),
                *each("The layers that take most time with their picks and all their uses", _longest),
            ],
            pictures=[
                (one.label, picture)
                for one in operations
                for picture in (
                    pictures.winners(one.ran, pipelines),
                    pictures.roofline(one.ran, one.evaluation.peak_tflops, one.evaluation.memory_tb_per_s),
                )
            ],
            kernels=each("The kernels that win most layers of each kind", _winners),
            alternatives=[
                *together("The picks beside other libraries", _libraries),
                *each("Efficiency of each way to choose", _choosers),
            ],
            sources=[
                *together("Quality of the times", _times),
                *([Table("How the times were recorded", recorded)] if recording.kind == "recorded" else []),
            ],
            recording=recording,
            source=source,
            settings=settings,
        )


def _headline(evaluations: list[Evaluation]) -> str:
    """Return in a few words whether to use the models, what that gains, and what they are not enough for."""
    uses = [worth_using(one) for one in evaluations]
    refused = [one.operation for one, use in zip(evaluations, uses, strict=True) if use.word == "no"]
    used = [one for one, use in zip(evaluations, uses, strict=True) if use.word != "no"]
    where = "In the simulation: " if evaluations[0].device_kind == "simulated" else ""
    if not used:
        return f"{where}do not use it yet: what runs today is faster".capitalize()
    name = min(used[0].speeds, key=lambda one: used[0].speeds[one])
    low, *_, high = sorted(one.speeds.get(name, 1.0) for one in (*used, *used[:1]))
    speed = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
    tenth = 100 - min(one.efficiency.p10 for one in used)
    gain = f"{speed} times as fast as {in_words(name)}"
    text = f"{where}use it: {gain}; one layer in ten is more than {tenth:.0f} % from the fastest."
    timed = sorted(one.best_of_2.mean for one in used)
    if refused:
        text += f" Not for {', '.join(refused)}."
    if far := sum(any(faults(one)) for one in used):
        text += (
            f" Untimed picks of {far} of {len(evaluations)} operations miss a limit; the faster of two that are timed "
            f"has {' to '.join(dict.fromkeys((f'{timed[0]:.1f}', f'{timed[-1]:.1f}')))} % of the fastest's speed."
        )
    return text[0].upper() + text[1:]


def _verdict(one: Evaluation, by: Literal["network", "kind"]) -> dict[str, Any]:
    """Return the row of an operation in the first table: two questions, and what answers them."""
    network, made = one.worst_network, verdict_of(one)
    yes = {"level": "good", "word": "yes", "reason": made.word}
    level, missed = "limited" if one.covered_time >= COVERED_TIME else "bad", len(made.reasons)
    far = {"level": level, "word": "not yet", "reason": f"{missed} limit{'s' * (missed > 1)} missed"}
    possible = "" if one.possible is None else f" of {one.possible.mean:.1f}"
    cells = {
        "picks slower": f"{one.harmed:.1f} %",
        "mean efficiency": f"{one.efficiency.mean:.1f}{possible} %",
        "fastest of 2, timed": f"{one.best_of_2.mean:.1f} %",
        "time over the fastest": f"{one.sum_over_best:.3f}",
    }
    if by == "network":
        cells["worst network"] = f"{network.network} {network.by_time:.1f} %" if network else "none"
    answers = {"use": worth_using(one), "near": far if made.reasons else yes}
    return {"operation": one.operation, "cells": cells, **answers}


def _limits(of: Operation) -> Iterator[Row]:
    if missed := "; ".join(faults(of.evaluation)):
        yield {"missed": missed}


def _spread(operations: Sequence[Operation]) -> dict[str, dict[str, Summary | None]]:
    """Return by operation the efficiencies of ways to choose, as far as they are known."""
    return {
        one.name: {
            "pick": one.evaluation.efficiency, "fastest of 2": one.evaluation.best_of_2,
            "best possible untimed": one.evaluation.possible,
            "without a model": one.evaluation.best_baseline.efficiency,
        }
        for one in operations
    }  # fmt: skip


def _parts(operations: Sequence[Operation]) -> Literal["network", "kind"]:
    """Return the column of the parts that layers are of: a recording of others has no networks."""
    return "network" if any(one.evaluation.networks for one in operations) else "kind"


def _time_by_part(operations: Sequence[Operation]) -> tuple[str, dict[str, tuple[float, float]]]:
    """Return what the parts are, and by part the time lost against the fastest and won beside no model, percent.

    The parts are networks, or kinds of layers where there are none; the time of all fastest candidates is 100.
    """
    ran = pd.concat([one.ran for one in operations])
    by = _parts(operations)
    parts = {name: figures(rows) for name, rows in groups(ran, by)}
    whole = sum(part.time_us for part in parts.values()) or 1.0
    found = {
        name: (
            100 * part.time_us * (part.sum_over_best - 1) / whole,
            100 * part.time_us * (part.sum_without_model - part.sum_over_best) / whole,
        )
        for name, part in parts.items()
    }
    shown = sorted(found, key=lambda name: (-sum(map(abs, found[name])), name))[:MOST_PARTS]
    return f"{by}s" if by == "network" else "kinds of layers", {name: found[name] for name in shown}


def _figures(of: Operation) -> Iterator[Row]:
    one = of.evaluation
    yield {
        "mean, %": one.efficiency.mean, "best possible mean without timing, %": _mean(one.possible),
        "mean without a model, %": one.best_baseline.efficiency.mean,
        "P10, %": one.efficiency.p10, "worst layer, %": one.efficiency.min,
        "fastest of 2, timed, mean, %": one.best_of_2.mean, "fastest of 3, timed, mean, %": one.best_of_3.mean,
        "layers": one.layers, "more layers without a candidate": one.without_candidate,
        "their share of the time, %": 100 - one.covered_time,
    }  # fmt: skip


def _sums(of: Operation) -> Iterator[Row]:
    one = of.evaluation
    yield {
        "all picks over the fastest": f"{one.sum_over_best:.3f}",
        "possible without timing": "not known" if one.sum_possible is None else f"{one.sum_possible:.3f}",
        "without a model": f"{one.sum_without_model:.3f}",
        f"share of the lost time in the {LONGEST} longest layers, %": one.lost_in_longest,
        "worst of these over the fastest": f"{one.worst_of_longest:.2f}",
        "picks slower than without a model by 2 % or more, %": one.harmed,
        "their time over that without a model": f"{one.harm_factor:.2f}",
    }


def _mean(summary: Summary | None) -> float | str:
    return "not known" if summary is None else summary.mean


def _ship(of: Operation) -> Iterator[Row]:
    reached = of.kernels.oracle_within_pruned
    unseen = reached.get("validation")
    yield {
        "kernels": f"{of.kernels.pruned_size} of {of.kernels.pool_size}",
        "loss, %": f"{100 - reached['train'].mean:.2f}",
        "loss on unseen layers, %": f"{100 - unseen.mean:.2f}" if unseen else "",
        "P10 loss on unseen layers, %": f"{100 - unseen.p10:.2f}" if unseen else "",
    }


def _networks(of: Operation) -> Iterator[Row]:
    for one in of.evaluation.networks:
        yield {
            "network": one.network, "run": one.run, "efficiency, %": one.by_time, "layers": one.layers,
            "layers without a candidate": one.without_candidate, "picks that failed": one.failed,
        }  # fmt: skip


def _kinds(of: Operation) -> Iterator[Row]:
    """Yield all kinds of layers, those that cost the most time first, then the classes of evidence."""
    whole = of.evaluation
    by_time = sorted(whole.by_kind.items(), key=lambda item: (-item[1].time_us, item[0]))
    evidence = {f"evidence: {name}": part for name, part in whole.by_evidence.items()}
    for name, part in [*by_time, *evidence.items()]:
        yield {
            "layers of a kind": name, "layers": part.layers, "loss of the pick, %": 100 - part.efficiency.mean,
            "P10, %": part.efficiency.p10,
            "least possible loss without timing, %": 100 - part.possible.mean if part.possible else "not known",
            "time over that of the fastest": f"{part.sum_over_best:.3f}",
            "loss of the fastest of 2, timed, %": 100 - part.best_of_2.mean,
            "share of the time, %": 100 * part.time_us / whole.time_us if whole.time_us else 0.0,
        }  # fmt: skip


def _short_names(of: Operation) -> Callable[[str], str]:
    """Return what shortens a candidate's name to the words that not all candidates of the operation have."""
    words = {name: re.split("[_@]", name) for name in {*of.ran["pick"], *of.ran["best"]} if name}
    common = set.intersection(*map(set, words.values())) if len(words) > 1 else set()
    return lambda name: " ".join(word for word in words.get(name, []) if word not in common)


def _worst(of: Operation) -> Iterator[Row]:
    return _layers(of, of.ran.sort_values(["efficiency", "problem_key"]))


def _longest(of: Operation) -> Iterator[Row]:
    return _layers(of, longest_layers(of.ran))


def _costliest(of: Operation) -> Iterator[Row]:
    lost = of.ran["uses"] * (of.ran["pick_us"] - of.ran["best_us"])
    return _layers(of, of.ran.loc[lost[lost > 0].sort_values(ascending=False, kind="stable").index])


def _layers(of: Operation, rows: pd.DataFrame) -> Iterator[Row]:
    short = _short_names(of)
    for row in rows.head(LISTED).to_dict("records"):
        yield {
            "layer": f"{row['network']}: {row['layer']}" if row["layer"] else row["network"],
            "efficiency, %": 100 * row["efficiency"], "pick": short(row["pick"]), "best": short(row["best"]),
            "best, µs": row["best_us"], "uses": int(row["uses"]), "evidence": row["evidence"],
            "problem": without_defaults(row["problem"]),
        }  # fmt: skip


def _winners(of: Operation) -> Iterator[Row]:
    short = _short_names(of)
    for kind, rows in of.ran.groupby("kind", sort=True):
        wins = rows["best"].value_counts().sort_index().sort_values(ascending=False, kind="stable")
        for name, count in wins.head(WINNERS).items():
            yield {
                "layers of a kind": kind, "layers": len(rows), "kernel": short(str(name)),
                "layers won, %": 100 * count / len(rows),
            }  # fmt: skip


def _libraries(of: Operation) -> Iterator[Row]:
    for other in of.evaluation.libraries:
        yield {
            "library": other.library, "layers": other.layers,
            "time of the library over that of the pick, geometric mean": f"{other.speed:.3f}",
            "picks slower by 2 % or more, %": other.slower,
        }  # fmt: skip


def _choosers(of: Operation) -> Iterator[Row]:
    """Yield the picks beside their bound, and choosing without a model."""
    one = of.evaluation
    low, high = one.interval
    said = f"what ships; {one.basis}; 95 % interval of the mean {low:.1f} to {high:.1f}"
    known = {"best possible": (one.possible, f"knows every true time, times nothing: {one.possible_basis}")}
    ways = {
        "pick": (one.efficiency, f"{said}; {one.within_2_percent:.1f} % are within 2 % of the best"),
        **{name: (summary, meaning) for name, (summary, meaning) in known.items() if summary},
        "fastest of 2": (one.best_of_2, "the first two, each timed"),
        "fastest of 3": (one.best_of_3, "the first three, each timed"),
        **{name: (way.efficiency, baselines.MEANINGS[name]) for name, way in one.baselines.items()},
    }
    for name, (summary, meaning) in ways.items():
        yield {
            "way to choose": name.replace("_", " "), "mean, %": summary.mean, "median, %": summary.median,
            "P10, %": summary.p10, "minimum, %": summary.min, "meaning": meaning,
        }  # fmt: skip


def _times(of: Operation) -> Iterator[Row]:
    one, times = of.evaluation, of.evaluation.times
    yield {
        "pairs timed": times.timed, "failed": times.failed,
        "candidates": one.candidates, "candidates timed of those offered, mean, %": one.timed,
        "median standard error of a time, %": "unknown" if times.error is None else f"{times.error:.2f}",
        "pairs timed while the device had drifted, %": "unknown" if times.drifted is None else f"{times.drifted:.1f}",
        "peak, TFLOPS": one.peak_tflops, "peak, TB/s": one.memory_tb_per_s,
    }  # fmt: skip


def _advice(of: Operation) -> Iterator[Row]:
    """Yield what would improve a model, as far as its figures show, and why; something if a limit is missed."""
    one = of.evaluation
    offered, recorded = library_of_arch(one.arch).offered, one.device_kind == "recorded"
    if one.best_of_2.mean - one.efficiency.mean >= WORTH_TIMING:
        change = f"time two picks once ({'tileseer.torch' if offered else 'tileseer tune'})"
        yield _change(
            change, f"the faster one has mean {one.best_of_2.mean:.1f} %, the first {one.efficiency.mean:.1f} %"
        )
    if heavy := list(_heavy(one)):
        more = "add training problems (problems.training_layers, problems.design)"
        yield _change("measure more layers of these kinds" if recorded else more, "; ".join(heavy))
    if one.failed:
        yield _change("repair the kernels that fail", f"{one.failed} picks did not run")
    if one.without_candidate and not offered:
        change = "add kernels (configs.rule_set)"
        if library := vendor_models(one.arch):
            change = f"use {library_of_arch(library).title}'s plans for them (tileseer run --arch {library})"
        yield _change(change, f"{one.without_candidate} layers have none")
    if one.possible and one.possible.mean < NOISY:
        reason = f"who knows every true time reaches {one.possible.mean:.1f} %"
        yield _change("time more precisely (benchmark.timing: thorough)", reason)


def _change(change: str, reason: str) -> Row:
    return {"change": change, "reason": reason}


def _heavy(one: Evaluation) -> Iterator[str]:
    """Yield the kind of layer and the class of evidence that lose most time beside what is possible, if it is much."""
    kinds = {f"kind of layer: {name}": part for name, part in one.by_kind.items()}
    for parts in (kinds, {f"evidence: {name}": part for name, part in one.by_evidence.items()}):
        lost = {
            name: max(0.0, part.sum_over_best - (part.sum_possible or 1.0)) * part.time_us
            for name, part in parts.items()
        }
        if any(lost.values()):
            name = max(lost, key=lambda name: (lost[name], name))
            share, of_time = 100 * lost[name] / sum(lost.values()), 100 * parts[name].time_us / one.time_us
            if share > LOUD * of_time or any(faults(one)):
                yield f"{of_time:.0f} % of the time, {share:.0f} % of what is lost of it ({name})"
