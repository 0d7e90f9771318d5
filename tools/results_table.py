"""Print the table of docs/internals/results.md from validation reports: each figure with interval and noise floor."""

import argparse
from pathlib import Path

from tileseer.core import documents
from tileseer.learn.model_schema import Summary
from tileseer.learn.validation_report import Intervals, Validation

HEADER = (
    "| arch, operation | times | problems | | mean | median | 10th percentile | points of mean behind the model |\n"
    "|---|---|---|---|---|---|---|---|"
)

FLOORS = {"perfect_model": "floor: knows all but the single pair", "perfect_selector": "floor: knows every true time"}


def main() -> None:
    """Print the rows of each report, in the order given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="+", type=Path, help="results/validation/ARCH/OPERATION.json")
    print(HEADER)
    for path in parser.parse_args().reports:
        report = documents.read_document(path, Validation)
        where = f"{report.arch}, {report.operation} | {report.device_kind} | {report.n_problems}"
        for name, summary, interval, behind in rows(report):
            print(f"| {where} | {name} | {_figures(summary, interval)} | {behind} |")
            where = " | | "


def rows(report: Validation) -> list[tuple[str, Summary, Intervals, str]]:
    """What is shown of a report: name, figures, their intervals, and points of mean behind the model."""
    found = [("**the model**", report.efficiency, report.interval, "")]
    single = report.baselines["best_single_kernel"].efficiency
    found.append(("best single kernel", single, {}, f"{report.efficiency.mean - single.mean:.2f}"))
    for name, text in FLOORS.items():
        if floor := getattr(report.noise_floor, name):
            behind = f"{report.efficiency.mean - floor.efficiency.mean:.2f}"
            found.append((text, floor.efficiency, floor.interval, behind))
    return found


def _figures(summary: Summary, interval: Intervals) -> str:
    cells = []
    for name in ("mean", "median", "p10"):
        value = f"{getattr(summary, name):.2f}"
        if name in interval:
            value += f" ({interval[name][0]:.2f} to {interval[name][1]:.2f})"
        cells.append(value)
    return " | ".join(cells)


if __name__ == "__main__":
    main()
