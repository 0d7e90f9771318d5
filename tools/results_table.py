#!/usr/bin/env python3
"""Print the table of docs/results.md from validation reports: every figure with its interval and its noise floor."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tileseer.core import documents

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
        report = documents.read_json(path)
        where = f"{report['arch']}, {report['operation']} | {report['device_kind']} | {report['n_problems']}"
        for name, content, behind in rows(report):
            print(f"| {where} | {name} | {_figures(content)} | {behind} |")
            where = " | | "


def rows(report: dict[str, Any]) -> list[tuple[str, dict[str, Any], str]]:
    """Return what is shown of a report: name, an entry with ``efficiency``, and how far it is behind."""
    found = [("**the model**", report, "")]
    if "reference_trainer" in report:
        theirs = report["reference_trainer"]
        low, high = theirs["ahead"]["interval"]
        found.append(("reference trainer", theirs, f"{theirs['ahead']['mean']:.2f} ({low:.2f} to {high:.2f})"))
    single = report["baselines"]["best_single_kernel"]
    model = report["efficiency"]["mean"]
    found.append(("best single kernel", single, f"{model - single['efficiency']['mean']:.2f}"))
    for name, text in FLOORS.items():
        if name in report["noise_floor"]:
            floor = report["noise_floor"][name]
            found.append((text, floor, f"{model - floor['efficiency']['mean']:.2f}"))
    return found


def _figures(content: dict[str, Any]) -> str:
    interval = content.get("interval", {})
    cells = []
    for name in ("mean", "median", "p10"):
        value = f"{content['efficiency'][name]:.2f}"
        if name in interval:
            value += f" ({interval[name][0]:.2f} to {interval[name][1]:.2f})"
        cells.append(value)
    return " | ".join(cells)


if __name__ == "__main__":
    main()
