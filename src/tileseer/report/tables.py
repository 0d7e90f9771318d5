"""The tables: one function a table, from the results to rows; numbers stay numbers until the page prints them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tileseer.report.measured import kernels, records
from tileseer.report.network_figures import octaves
from tileseer.report.published import EFFICIENCY, SOURCE
from tileseer.report.results import OperationResult, Results
from tileseer.validation.schema import (
    LearningShare,
    Learnt,
    Selectors,
    Stratum,
    Summary,
    Validation,
    WorstPick,
)

Cell = str | int | float
SUMMARY = ("mean", "median", "p10", "min")
FLOOR = "noise floor, mean, %"
PADS = ("pad_d", "pad_h", "pad_w")
STEPS = ("stride_d", "stride_h", "stride_w", "dilation_d", "dilation_h", "dilation_w")
DEFAULTS = frozenset([*(f"{name}=1" for name in ("Di", "Z", *STEPS)), *(f"{name}=0" for name in PADS)])
"""Dimensions of a problem that a reader expects and that are not printed."""


@dataclass(frozen=True)
class Table:
    """A table whose first column names its rows. Texts are left-aligned, numbers right-aligned."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    searched: bool = False
    """Whether the reader can search, filter by the columns ``filters``, sort and save it; it scrolls in a box."""
    filters: tuple[str, ...] = ()


Tabulate = Callable[[Results], list[Table]]

METRICS: tuple[tuple[str, Callable[[Validation], Cell]], ...] = (
    ("problems", lambda v: v.n_problems),
    ("problems on which nothing ran, not scored", lambda v: v.n_without_measurement),
    ("candidates", lambda v: v.n_candidates),
    ("supported candidates a problem, mean", lambda v: v.mean_pool_size),
    ("efficiency, mean, %", lambda v: v.efficiency.mean),
    ("efficiency, median, %", lambda v: v.efficiency.median),
    ("efficiency, 10th percentile, %", lambda v: v.efficiency.p10),
    ("efficiency, minimum, %", lambda v: v.efficiency.min),
    ("picks within 2 % of the best, %", lambda v: v.within_2_percent),
    ("picks below 80 % of the best, %", lambda v: v.below_80_percent),
    ("best candidate is the pick (top 1), %", lambda v: v.top1),
    ("the pick ties with the best, within the noise, %", lambda v: v.ties.picks),
    ("problems whose best is not alone within the noise, %", lambda v: v.ties.problems_with_several),
    ("candidates that tie with the best, itself included, mean", lambda v: v.ties.mean_candidates),
    ("best candidate is in the top 3, %", lambda v: v.top3),
    ("best candidate is in the top 5, %", lambda v: v.top5),
)


def metrics(results: Results) -> list[Table]:
    """Return one table: a row a metric, a column an operation."""
    validations = [result.validation for result in results.operations]
    return [
        Table(
            f"Validation, {results.arch} ({results.device_kind})",
            ("metric", *(validation.operation for validation in validations)),
            tuple((name, *(value(validation) for validation in validations)) for name, value in METRICS),
        )
    ]


def bounds(results: Results) -> list[Table]:
    """Return the model beside what it could reach at best, the reference's trainer, and networks left out."""
    return [
        Table(
            f"The model and its bounds, {result.label}",
            ("way to choose", *_percents(), "95 % interval of the mean", "what it knows"),
            tuple(_bounds(result.validation)),
        )
        for result in results.operations
    ]


def _bounds(validation: Validation) -> list[tuple[Cell, ...]]:
    low, high = validation.interval["mean"]
    rows: list[tuple[Cell, ...]] = [
        ("model", *_row(validation.efficiency), f"{low:.1f} to {high:.1f}", "features of problem and candidate")
    ]
    floors = validation.noise_floor
    rows += [
        (name, *_row(floor.efficiency), "", floor.meaning)
        for name, floor in (
            ("perfect selector", floors.perfect_selector),
            ("perfect model", floors.perfect_model),
            ("against true best", floors.against_true_best),
        )
        if floor is not None
    ]
    if validation.reference_trainer is not None:
        theirs = validation.reference_trainer
        low, high = theirs.ahead.interval
        ahead = f"ours is {theirs.ahead.mean:.2f} points ahead ({low:.2f} to {high:.2f})"
        rows.append(("reference trainer", *_row(theirs.efficiency), ahead, theirs.meaning))
    if validation.leave_network_out is not None:
        meaning = "as the model, but the other networks join the training problems; fewer trees"
        rows.append(("networks left out in turn", *_row(validation.leave_network_out.efficiency), "", meaning))
    return rows


def learning_curve(results: Results) -> list[Table]:
    """Return the learning curves: of shares of the training problems, and of active measuring."""
    shares = [
        Table(
            f"Models of a part of the training problems, {result.label}",
            ("training problems", "of all, about, %", "pairs", *_percents(), "interval of the mean", FLOOR),
            tuple(
                (*_of_share(share), result.validation.noise_floor.best.efficiency.mean)
                for share in result.validation.learning_curve or ()
            ),
        )
        for result in results.operations
        if result.validation.learning_curve
    ]
    return shares + [
        Table(
            f"Active measuring: models of the pairs of the first rounds, {result.label}",
            ("round", "training pairs", "of the supported, %", *_percents(), FLOOR),
            tuple((str(r.round), r.pairs, r.share, *_row(r.efficiency), _floor(a.noise_floor)) for r in a.rounds),
        )
        for result in results.operations
        if (a := result.validation.active) is not None
    ]


def _of_share(share: LearningShare) -> tuple[Cell, ...]:
    low, high = share.interval["mean"]
    return f"{share.problems:,}", share.share, share.pairs, *_row(share.efficiency), f"{low:.1f} to {high:.1f}"


def transfer(results: Results) -> list[Table]:
    """Return what a prior gives with a part of the measured rows; nothing where the model has none."""
    return [
        Table(
            f"Models of few measured pairs, prior of {' '.join(t.prior[name] for name in ('operation', 'arch'))} "
            f"({t.prior['device_kind']}), {result.label}{_seen(t.seen_by_prior)}",
            ("training pairs", "of those measured, %", "mean with the prior, %", "its interval", "p10, %",
             "mean without it, %", "its interval", "p10, %", FLOOR),
            tuple(
                (str(s.pairs), s.share, *_learnt(s.with_prior), *_learnt(s.without_prior), _floor(t.noise_floor))
                for s in t.shares
            ),
        )
        for result in results.operations
        if (t := result.validation.transfer) is not None
    ]  # fmt: skip


def _seen(problems: int) -> str:
    return f"; the prior was trained on {problems} of the layers that it is judged on" if problems else ""


def _learnt(model: Learnt | None) -> tuple[Cell, ...]:
    if model is None:
        return "", "", ""
    low, high = model.interval["mean"]
    return model.efficiency.mean, f"{low:.1f} to {high:.1f}", model.efficiency.p10


def kinds(results: Results) -> list[Table]:
    """Return the efficiency by kind of layer and by distance to the training problems."""
    return [
        table
        for result in results.operations
        for table in (
            _strata(result, "Efficiency by kind of layer", result.validation.by_layer_kind),
            _strata(result, "Efficiency by distance to training", result.validation.by_distance_to_training),
        )
    ]


def choosers(results: Results) -> list[Table]:
    """Return the efficiency of the model and of the baselines."""
    return [
        Table(
            f"Efficiency of each way to choose, {result.label}",
            ("way to choose", *_percents(), FLOOR),
            tuple(
                (name, *_row(summary), "" if floor is None else floor.mean)
                for name, (summary, floor) in result.choosers().items()
            ),
        )
        for result in results.operations
    ]


def baselines(results: Results) -> list[Table]:
    """Return what each baseline means; it is the same for all operations."""
    meanings = {name: b.meaning for r in results.operations for name, b in r.validation.baselines.items()}
    rows = tuple((name.replace("_", " "), meaning) for name, meaning in meanings.items())
    return [Table(f"The baselines, {results.arch} ({results.device_kind})", ("baseline", "meaning"), rows)]


def dimensions(results: Results) -> list[Table]:
    """Return the efficiency on 2D and 3D problems."""
    return [_strata(result, "Efficiency by dimensionality", result.validation.by_ndim) for result in results.operations]


def networks(results: Results) -> list[Table]:
    """Return the efficiency on each network."""
    return [_strata(result, "Efficiency by network", result.validation.by_network) for result in results.operations]


def worst(results: Results) -> list[Table]:
    """Return the picks that are farthest from the best."""
    return [
        Table(
            f"Worst picks, {result.label}",
            ("layer", "efficiency, %", "pick", "best", "problem", "spoke for the pick", "like training"),
            tuple(
                (
                    f"{w.network}: {w.layer}",
                    w.efficiency,
                    w.pick,
                    w.best,
                    _without_defaults(w.problem),
                    _reasons(w),
                    _novelty(w),
                )
                for w in result.validation.worst
            ),
        )
        for result in results.operations
    ]


def _reasons(worst: WorstPick) -> str:
    reasons = (
        f"{s.feature} {s.contribution:+.2f} ({s.of_pick:g}, best {s.of_best:g})" for s in worst.spoke_for_the_pick
    )
    return "; ".join(reasons) or "not known"


def _novelty(worst: WorstPick) -> str:
    if worst.distance_percentile is None:
        return "not known"
    words = [f"farther from training than {worst.distance_percentile:.0f} % of training problems from one another"]
    if worst.outside_training:
        words.append("outside: " + ", ".join(worst.outside_training))
    if worst.nearest_training_problem:
        words.append("nearest: " + _without_defaults(worst.nearest_training_problem))
    return "; ".join(words)


def _without_defaults(problem: str) -> str:
    return " ".join(dimension for dimension in problem.split() if dimension not in DEFAULTS)


def published(results: Results) -> list[Table]:
    """Return what the reference has published of its models for the operations that are shown."""
    rows: list[tuple[Cell, ...]] = [
        (name, *(float(value) for value in (theirs.mean, theirs.median, theirs.p10)))
        for name, theirs in EFFICIENCY.items()
        if name in {result.validation.operation for result in results.operations}
    ]
    caption = f"Published elsewhere, not comparable with {results.arch} ({results.device_kind}): {SOURCE}"
    return [Table(caption, ("operation", "mean, %", "median, %", "p10, %"), tuple(rows))] if rows else []


def best(results: Results) -> list[Table]:
    """Return the fastest candidate of every shape of every operation, in one table, and the model's pick beside it."""
    has_library = any(result.library_us for result in results.operations)
    rows = [
        (
            f"{shape.network}: {shape.layer}" if shape.layer else shape.network, result.validation.operation,
            _without_defaults(shape.problem), shape.candidate, shape.pipeline, float(shape.tflops),
            1e3 * float(shape.latency_ms), "" if np.isnan(shape.runner_up) else float(shape.runner_up), int(shape.ran),
            _ties(result, shape), *_pick(result, shape), *([_library_time(result, shape)] if has_library else []),
        )
        for result in results.operations
        if result.measured
        for shape in records(result.measured.shapes.sort_values(["network", "layer", "problem"], kind="stable"))
    ]  # fmt: skip
    header = (
        "layer", "operation", "problem", "best candidate", "pipeline", "TFLOPS", "time, µs", "second best, %",
        "candidates that ran", "of them tied with the best", "the model's pick", "pick, %",
        *(["cuDNN, µs"] if has_library else []),
    )  # fmt: skip
    caption = f"The fastest candidate of each shape, {results.arch} ({results.device_kind})"
    return [Table(caption, header, tuple(rows), True, ("operation", "pipeline"))] if rows else []


def _ties(result: OperationResult, shape: Any) -> Cell:
    pick = result.validation.picks.get(shape.problem_key)
    return "" if pick is None or pick.ties is None else pick.ties


def _pick(result: OperationResult, shape: Any) -> tuple[Cell, Cell]:
    """Return the model's pick and its efficiency; of the best candidate only that it is the same."""
    pick = result.validation.picks.get(shape.problem_key)
    if pick is None:
        return "", ""
    return ("the best" if pick.candidate == shape.candidate else pick.candidate), pick.efficiency


def _library_time(result: OperationResult, shape: Any) -> Cell:
    return result.library_us.get(shape.problem_key, "")


def resources(results: Results) -> list[Table]:
    """Return how fast the candidates are that spill, use scratch or accumulation registers; nothing if unknown."""
    tables = []
    for result in results.operations:
        if not result.measured:
            continue
        rows: list[tuple[Cell, ...]] = []
        table = result.measured.resources
        for column, name in _CODE.items():
            for words, part in ((f"no {name}", table[table[column] == 0]), (name, table[table[column] > 0])):
                if len(part):
                    mean, most = float(part["efficiency"].mean()), float(part["efficiency"].max())
                    rows.append((words, len(part), float(part[column].median()), mean, most))
        if rows:
            header = ("candidates with", "candidates", "median of it", "mean efficiency, %", "best candidate, %")
            tables.append(Table(f"What the code uses, and speed, {result.label}", header, tuple(rows)))
    return tables


_CODE = {
    "vgpr_spills": "spilled registers",
    "scratch_bytes": "scratch, bytes a lane",
    "agprs": "accumulation registers",
}
"""Columns of ``Measured.resources`` that only a compiler knows, in words."""


def support(results: Results) -> list[Table]:
    """Return what became of the pairs of each pipeline, scheduler and option."""
    return [
        Table(
            f"Support and wins, {result.label}",
            ("kernels", "options", "candidates", "pairs", "supported, %", "of these ran, %", "shapes won"),
            tuple(
                (
                    kernels(group), group.options, int(group.candidates), int(group.pairs),
                    float(group.supported), float(group.ok), int(group.wins),
                )
                for group in records(result.measured.groups)
            ),
        )
        for result in results.operations
        if result.measured
    ]  # fmt: skip


def failures(results: Results) -> list[Table]:
    """Return how many pairs of each pipeline ended in which status."""
    return [
        Table(
            f"Pairs by status, {result.label}",
            ("pipeline", *(name.replace("_", " ") for name in result.measured.statuses.columns)),
            tuple((str(name), *map(int, row)) for name, row in result.measured.statuses.iterrows()),
        )
        for result in results.operations
        if result.measured
    ]


def runs(results: Results) -> list[Table]:
    """Return what the picks cost whole runs of networks."""
    return [
        Table(
            f"Whole networks, {result.label}",
            ("run", "layers", "picks that failed", "time of the best over time of the picks, %",
             "the same of the noise floor, %", "efficiency weighted by FLOP, %", "of the noise floor, %",
             "FLOP scored, %"),
            tuple(
                (f"{r.network}, {r.run}", r.n_layers, r.n_failed, r.end_to_end, r.noise_floor.best.end_to_end,
                 r.flop_weighted, r.noise_floor.best.flop_weighted, r.flop_scored)
                for r in result.validation.end_to_end or ()
            ),
        )
        for result in results.operations
        if result.validation.end_to_end
    ]  # fmt: skip


def distances(results: Results) -> list[Table]:
    """Return the efficiency by octaves to the nearest training problem."""
    return [
        Table(
            f"Efficiency by octaves to the nearest training problem, {result.label}",
            ("octaves", "problems", *_percents(), FLOOR),
            tuple(
                (octaves(d), d.n_problems, *_row(d.efficiency), _floor(d.noise_floor))
                for d in result.validation.by_distance or ()
            ),
        )
        for result in results.operations
        if result.validation.by_distance
    ]


def provenance(results: Results) -> list[Table]:
    """Return where the numbers come from."""
    return [
        Table(
            f"Provenance, {results.arch} ({results.device_kind})",
            ("operation", "device", "kind of times", "training rows", "training problems", "validation problems",
             "candidates", "candidates timed of those offered, mean, %", "resources", "LightGBM"),
            tuple(_provenance(result) for result in results.operations),
        )
    ]  # fmt: skip


def recorded(results: Results) -> list[Table]:
    """Return what a recording says of its making; nothing without one."""
    caption = f"How the times were recorded, {results.arch} ({results.device_kind})"
    rows = tuple(results.recorded_with.items())
    return [Table(caption, ("what", "how"), rows)] if rows else []


def _provenance(result: OperationResult) -> tuple[Cell, ...]:
    validation, manifest = result.validation, result.manifest
    known = result.measured.resources_from if result.measured else ()
    return (
        validation.operation, validation.device, validation.device_kind, manifest.training_rows,
        manifest.unique_problems, validation.n_problems, validation.n_candidates,
        "not known" if validation.oracle is None else validation.oracle.mean_coverage,
        ", ".join(name.replace("_", " ") for name in known) or "not known", manifest.lightgbm,
    )  # fmt: skip


def cross_validation(results: Results) -> list[Table]:
    """Return what cross-validation on the training problems promised."""
    return [
        Table(
            f"Cross-validation, {results.arch} ({results.device_kind})",
            (
                "operation", "training problems", "training rows", "out-of-fold mean, %", "out-of-fold p10, %",
                "validation mean, %", "validation p10, %", "RMSE, lowest to highest fold", "R², lowest to highest fold",
            ),
            tuple(_training(result) for result in results.operations),
        )
    ]  # fmt: skip


def _training(result: OperationResult) -> tuple[Cell, ...]:
    manifest, seen = result.manifest, result.manifest.out_of_fold_efficiency
    unseen = result.validation.efficiency
    return (
        manifest.operation, manifest.unique_problems, manifest.training_rows, seen.mean, seen.p10, unseen.mean,
        unseen.p10, _range([fold.rmse for fold in result.folds]), _range([fold.r2 for fold in result.folds]),
    )  # fmt: skip


def _range(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{min(known):.3f} to {max(known):.3f}" if known else "a ranking has none"


def _strata(result: OperationResult, title: str, strata: Mapping[str, Stratum]) -> Table:
    return Table(
        f"{title}, {result.label}",
        ("part", "problems", *_percents(), FLOOR),
        tuple((name, s.n_problems, *_row(s.efficiency), _floor(s.noise_floor)) for name, s in strata.items()),
    )


def _floor(known: Selectors[Summary] | None) -> Cell:
    """Mean of the best that a model can do, or of the selector that knows every true time."""
    return "" if known is None else known.best.mean


def _percents() -> tuple[str, ...]:
    return tuple(f"{name}, %" for name in SUMMARY)


def _row(summary: Summary) -> tuple[float, ...]:
    return tuple(getattr(summary, name) for name in SUMMARY)
