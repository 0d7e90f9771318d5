"""The tables of figures: one function a table, from the results to rows; the page prints the numbers."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial, wraps

import numpy as np
import pandas as pd

from tileseer.learn.model_schema import Summary
from tileseer.learn.validation_report import Validation
from tileseer.problems.problem_csv import DEFAULTS
from tileseer.report.results import OperationResult, Results


@dataclass(frozen=True)
class Copied:
    """A cell with a button that copies a text."""

    text: str
    button: str


Cell = str | int | float | Copied
Row = Mapping[str, Cell]
"""Cells by column, in the order of the columns; the first one names the row."""
FLOOR = "noise floor, mean, %"
FEWEST_ROWS = 3
"""Of fewer, no column is folded."""
TOP_FEATURES = 5
SLOWER = 1.02
"""What takes so many times as long is slower; less is within the noise."""
USUAL = frozenset(f"{name}={value}" for name, value in DEFAULTS.items() if name != "G")
"""Dimensions of a problem that a reader expects and that are not printed."""


@dataclass(frozen=True)
class PageTable:
    """A table whose first column names its rows. Texts are left-aligned, numbers right-aligned."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    searched: bool = False
    """Whether the reader can search, filter by the columns ``filters``, sort and save it; it scrolls in a box."""
    filters: tuple[str, ...] = ()

    def folded(self) -> "PageTable":
        """The table without columns that have one value, which its caption says instead, or none."""
        kept, captions = [0], [self.caption]
        for number in range(1, len(self.header)):
            values = {row[number] for row in self.rows}
            if len(self.rows) < FEWEST_ROWS or len(values) > 1 or isinstance(next(iter(values)), Copied):
                kept.append(number)
            elif value := next(iter(values)):
                text = f"{value:g}" if isinstance(value, float) else value
                captions.append(f"{self.header[number]}: {text}")
        return replace(
            self,
            caption="; ".join(captions),
            header=tuple(self.header[number] for number in kept),
            rows=tuple(tuple(row[number] for number in kept) for row in self.rows),
        )


Tabulate = Callable[[Results], list[PageTable]]


def table_of(caption: str, rows: Iterable[Row]) -> list[PageTable]:
    """A table with the columns of its first row; none without rows."""
    rows = list(rows)
    return [PageTable(caption, tuple(rows[0]), tuple(tuple(row.values()) for row in rows))] if rows else []


def each_operation(title: str, rows: Callable[[OperationResult], Iterable[Row]]) -> Tabulate:
    """Make a table an operation of a function that gives its rows; none where there are no rows."""
    return wraps(rows)(
        lambda results: [t for result in results.operations for t in table_of(f"{title}, {result.label}", rows(result))]
    )


def together(title: str, rows: Callable[[Results], Iterable[Row]]) -> Tabulate:
    """Make one table of a function that gives its rows for all operations; none where there are no rows."""
    return wraps(rows)(lambda results: table_of(f"{title}, {results.label}", rows(results)))


METRICS: tuple[tuple[str, Callable[[Validation], Cell]], ...] = (
    ("problems", lambda v: v.n_problems),
    ("problems on which nothing ran, not scored", lambda v: v.n_without_measurement),
    ("candidates", lambda v: v.n_candidates),
    ("supported candidates per problem, mean", lambda v: v.mean_pool_size),
    ("efficiency, mean, %", lambda v: v.efficiency.mean),
    ("the same as a share of a perfect model's mean, %", lambda v: "" if (s := v.of_perfect_model) is None else s),
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


@partial(together, "Validation")
def metrics(results: Results) -> Iterable[Row]:
    """A row a metric, a column an operation."""
    validations = [result.validation for result in results.operations]
    return ({"metric": name, **{v.operation: value(v) for v in validations}} for name, value in METRICS)


@partial(each_operation, "The model and its bounds")
def bounds(result: OperationResult) -> Iterable[Row]:
    """The model beside what it could reach at best, the reference's trainer, and networks left out."""

    def row(name: str, summary: Summary, ends: str, meaning: str) -> Row:
        return {"way to choose": name, **_cells(summary), "95 % interval of the mean": ends, "what it uses": meaning}

    report, floors = result.validation, result.validation.noise_floor
    yield row("model", report.efficiency, interval(report.interval["mean"]), "features of problem and candidate")
    for name in ("perfect_selector", "perfect_model", "against_true_best"):
        if floor := getattr(floors, name):
            yield row(name.replace("_", " "), floor.efficiency, "", floor.meaning)
    if theirs := report.reference_trainer:
        low, high = theirs.ahead.interval
        ahead = f"ours is {theirs.ahead.mean:.2f} points ahead ({low:.2f} to {high:.2f})"
        yield row("reference trainer", theirs.efficiency, ahead, theirs.meaning)
    if layers := report.leave_layer_out:
        name = f"model, mean of {len(layers.repeats)} deals of the layers to {layers.folds} folds"
        yield row(name, layers.efficiency, interval(layers.interval["mean"]), layers.meaning)


@partial(each_operation, "Efficiency of each way to choose")
def choosers(result: OperationResult) -> Iterable[Row]:
    """Efficiency of the model and of the baselines, and what each baseline means."""
    meanings = {name.replace("_", " "): baseline.meaning for name, baseline in result.validation.baselines.items()}
    for name, (summary, floor) in result.choosers().items():
        best = "" if floor is None else floor.mean
        yield {"way to choose": name, **_cells(summary), FLOOR: best, "meaning": meanings.get(name, "")}


@partial(each_operation, "Efficiency by network")
def networks(result: OperationResult) -> Iterable[Row]:
    """Efficiency on each network, lowest first."""
    strata = result.validation.by_network
    for name, stratum in sorted(strata.items(), key=lambda item: (item[1].efficiency.mean, item[0])):
        floor = "" if stratum.noise_floor is None else stratum.noise_floor.best.mean
        trains = "yes" if stratum.in_training else "no"
        cells = {"problems": stratum.n_problems, **_cells(stratum.efficiency)}
        yield {"part": name, **cells, FLOOR: floor, "other layers train": trains}


def without_defaults(problem: str) -> str:
    """The dimensions of a problem that are not ``USUAL``."""
    return " ".join(dimension for dimension in problem.split() if dimension not in USUAL)


@partial(together, "Time of what others run over that of the pick, recorded times")
def rivals(results: Results) -> Iterable[Row]:
    """Against the choice of a library and of PyTorch, on the unseen problems; nothing where none was timed."""
    for result in results.operations:
        if result.measured is None:
            continue
        best = result.measured.shapes.set_index("problem_key")["latency_ms"]
        picks = {key: 1e5 * best[key] / p.efficiency for key, p in result.validation.picks.items() if p.efficiency > 0}
        for name in result.library_us:
            times = pd.DataFrame({"theirs": result.library_us[name], "ours": pd.Series(picks)}).dropna()
            gain = times["theirs"] / times["ours"]
            if len(gain):
                yield {
                    "operation": result.validation.operation,
                    "against": str(name),
                    "layers": len(gain),
                    "geometric mean": f"{np.exp(np.log(gain).mean()):.3f}",
                    "10th percentile": f"{np.percentile(gain, 10):.3f}",
                    "90th percentile": f"{np.percentile(gain, 90):.3f}",
                    "slower by 2 % or more, %": float(100 * (gain <= 1 / SLOWER).mean()),
                    "sum of times": f"{times['theirs'].sum() / times['ours'].sum():.3f}",
                }


@partial(each_operation, "Whole networks")
def runs(result: OperationResult) -> Iterable[Row]:
    """What the picks cost whole runs of networks."""
    for run in result.validation.end_to_end or ():
        floor = run.noise_floor.best
        yield {
            "run": f"{run.network}, {run.run}", "layers": run.n_layers, "picks that failed": run.n_failed,
            "time of the best over time of the picks, %": run.end_to_end,
            "the same of the noise floor, %": floor.end_to_end,
            "efficiency weighted by FLOP, %": run.flop_weighted, "of the noise floor, %": floor.flop_weighted,
            "FLOP scored, %": run.flop_scored,
        }  # fmt: skip


@partial(together, "How the times were recorded")
def recorded(results: Results) -> Iterable[Row]:
    """What a recording says of its making; nothing without one."""
    return ({"what": what, "how": how} for what, how in results.recorded_with.items())


@partial(together, "Reality check: picks on recorded times of the same GPU target, which the model has not learnt from")
def reality(results: Results) -> Iterable[Row]:
    """How a model of simulated times does on recorded ones; nothing where there are none."""
    for result in results.operations:
        for check in result.manifest.reality_check:
            origin = check.recording
            yield {
                "operation": origin.operation, "times": f"{origin.arch} ({origin.device_kind})",
                "problems": check.n_problems, "candidates": check.candidates, **_cells(check.efficiency),
                "95 % interval of the mean": interval(check.interval["mean"]),
                "any of them by chance, mean, %": check.by_chance.mean, "source": check.source or "this project",
            }  # fmt: skip


def _cells(summary: Summary) -> dict[str, Cell]:
    return {f"{name}, %": value for name, value in summary.model_dump().items()}


def interval(ends: list[float]) -> str:
    """An interval in words."""
    low, high = ends
    return f"{low:.1f} to {high:.1f}"


@partial(together, "Provenance")
def provenance(results: Results) -> Iterable[Row]:
    """Where the numbers come from, and what the models look at."""
    for result in results.operations:
        validation, manifest = result.validation, result.manifest
        sources = result.measured.resources_from if result.measured else ()
        yield {
            "operation": validation.operation, "device": validation.device, "kind of times": validation.device_kind,
            "training rows": manifest.training_rows, "training problems": manifest.unique_problems,
            "validation problems": validation.n_problems, "candidates": validation.n_candidates,
            "candidates timed of those offered, mean, %": validation.oracle.mean_coverage,
            "resources": ", ".join(name.replace("_", " ") for name in sources) or "not known",
            "LightGBM": manifest.lightgbm,
            "features that the trees split on most": ", ".join(list(result.importances)[:TOP_FEATURES]),
        }  # fmt: skip
