"""The tables of figures: one function a table, from the results to rows; the page prints the numbers."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial, wraps

from tileseer.learn.model_schema import Summary
from tileseer.report.results import OperationResult, Results


@dataclass(frozen=True)
class Copied:
    """A cell with a button that copies a text."""

    text: str
    button: str


@dataclass(frozen=True)
class Badge:
    """A cell with a coloured word."""

    word: str
    colour: str
    """``good``, ``limited`` or ``bad``."""


Cell = str | int | float | Copied | Badge
Row = Mapping[str, Cell]
"""Cells by column, in the order of the columns; the first one names the row."""
NARROW, LONG = 7, 120
"""Columns, and characters of a cell, of a table that shares its row of the page with another one."""
TOP_FEATURES = 5


@dataclass(frozen=True)
class PageTable:
    """A table whose first column names its rows. Texts are left-aligned, numbers right-aligned."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    searched: bool = False
    """Whether the reader can search, filter by the columns ``filters``, sort and save it; it scrolls in a box."""
    filters: tuple[str, ...] = ()

    @property
    def wide(self) -> bool:
        """Whether it has a row of the page for itself."""
        longest = max(len(cell) for row in self.rows for cell in row if isinstance(cell, str))
        return self.searched or len(self.header) > NARROW or longest > LONG


Tabulate = Callable[[Results], list[PageTable]]


def table_of(caption: str, rows: Iterable[Row]) -> list[PageTable]:
    """Return a table with the columns of its first row; none without rows."""
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


@partial(each_operation, "Efficiency of each way to choose")
def choosers(result: OperationResult) -> Iterable[Row]:
    """Yield the picks beside their bounds, and choosing without a model."""

    def row(name: str, summary: Summary, meaning: str, ends: str = "") -> Row:
        return {"way to choose": name, **_cells(summary), "95 % interval of the mean": ends, "meaning": meaning}

    shipped = result.evaluation
    meaning = f"what ships; {shipped.basis}; {shipped.within_2_percent:.1f} % are within 2 % of the best"
    yield row("pick", shipped.first, meaning, interval(shipped.interval["mean"]))
    floor = shipped.noise_floor
    yield row("perfect selector", floor.perfect_selector, f"knows every true time, times nothing: {floor.basis}")
    yield row("fastest of 2", shipped.best_of_2, "the first two, each timed")
    yield row("fastest of 3", shipped.best_of_3, "the first three, each timed")
    for name, baseline in shipped.baselines.items():
        yield row(name.replace("_", " "), baseline.efficiency, baseline.meaning)


@partial(together, "The picks beside other libraries")
def libraries(results: Results) -> Iterable[Row]:
    """Yield the speed of the picks relative to other libraries; nothing where none was timed."""
    for result in results.operations:
        for other in result.evaluation.libraries:
            yield {
                "operation": result.evaluation.operation, "library": other.library, "layers": other.layers,
                "time of the library over that of the pick, geometric mean": f"{other.speed:.3f}",
                "picks slower by 2 % or more, %": other.slower,
            }  # fmt: skip


@partial(together, "How the times were recorded")
def recorded(results: Results) -> Iterable[Row]:
    """Yield the description of a recording; nothing without one."""
    recording = results.operations[0].data
    if recording.kind == "recorded":
        yield from ({"subject": subject, "description": text} for subject, text in recording.description().items())


@partial(together, "Drift: models of earlier times of this GPU, layers left out, evaluated on these times")
def drift(results: Results) -> Iterable[Row]:
    """Yield what models of earlier times are worth on these; nothing where a recording replaced no other."""
    for result in results.operations:
        found = result.evaluation.drift
        if found:
            yield {
                "operation": result.evaluation.operation, "layers": found.layers,
                "first pick on its own times, mean, %": found.before.mean, "first pick, mean, %": found.first.mean,
                "P10, %": found.first.p10, "tuned, best of 2, mean, %": found.best_of_2.mean,
                "tuned, best of 3, mean, %": found.best_of_3.mean,
                "fastest of the earlier times, mean, %": found.fastest_before.mean,
                "same fastest, %": found.same_fastest, "earlier time over this one, median": found.time_ratio,
                "earlier times taken with": str(found.earlier or "not known"),
            }  # fmt: skip


@partial(together, "Reality check: the picks on times recorded on a GPU of the same target")
def reality(results: Results) -> Iterable[Row]:
    """Yield the efficiency of a model of simulated times on recorded ones; nothing where there are none."""
    for result in results.operations:
        for check in result.manifest.reality_check:
            origin = check.recording
            yield {
                "operation": origin.operation, "mean, %": check.efficiency.mean,
                "95 % interval": interval(check.interval["mean"]), "P10, %": check.efficiency.p10,
                "a random candidate, mean, %": check.by_chance.mean,
                "data": f"{origin.arch}: {check.n_problems} layers, {check.candidates} candidates",
            }  # fmt: skip


def _cells(summary: Summary) -> dict[str, Cell]:
    return {"mean, %": summary.mean, "median, %": summary.median, "P10, %": summary.p10, "minimum, %": summary.min}


def interval(ends: list[float]) -> str:
    """Return an interval in words."""
    low, high = ends
    return f"{low:.1f} to {high:.1f}"


@partial(together, "Models and data")
def provenance(results: Results) -> Iterable[Row]:
    """Yield where the numbers come from, and what the models look at."""
    for result in results.operations:
        evaluation, manifest = result.evaluation, result.manifest
        yield {
            "operation": evaluation.operation, "measurement": str(result.data.measurement_id),
            "training rows": manifest.training_rows, "training problems": manifest.unique_problems,
            "candidates": evaluation.candidates,
            "candidates timed of those offered, mean, %": evaluation.timed,
            "resources": ", ".join(name.replace("_", " ") for name in result.measured.resources_from) or "unknown",
            "features with most splits": ", ".join(list(result.importances)[:TOP_FEATURES]),
            "source of the reality check": "; ".join(one.source or "this project" for one in manifest.reality_check),
        }  # fmt: skip
