"""``tileseer explain``: why a model picks a kernel."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from tileseer.cli import options
from tileseer.problems.problem import EXAMPLE, Problem
from tileseer.serve.explain_pick import Explanation, explain_pick

EXAMPLES = (
    f"tileseer explain results/models/gfx950 --problem {EXAMPLE}",
    f"tileseer explain results/models/gfx950 --problem {EXAMPLE} --against NAME --json",
)
_USUAL_FIELDS = asdict(Problem.from_dims("forward", "bf16", N=1))
_HEADS = {
    "predicted_time_over_that_of_the_pick": "time/pick",
    "predicted_efficiency": "efficiency, %",
    "predicted_ms": "predicted, ms",
}
"""What the columns of the ranking are called on a terminal."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_models(parser)
    options.add_problem(parser)
    options.add_layout(parser)
    parser.add_argument("--top", type=options.positive, default=5, help="ranked candidates to show (default: 5)")
    parser.add_argument("--against", metavar="CANDIDATE", help="explain the pick against this one (default: rank 2)")


def run(args: argparse.Namespace) -> int:
    """Show the ranking of a problem's candidates, which features speak for the first against the second, and the
    measured problems that are most like this one.
    """
    problem = options.problem(args)
    options.warn_of_left_out(args)
    explained = explain_pick(args.models, problem, args.top, args.against)
    return options.answer(args, explained.model_dump(), _lines(explained))


def _lines(explained: Explanation) -> Iterator[str]:
    rows = explained.ranking
    yield f"{explained.operation} on {explained.arch} ({explained.device}), device kind: {explained.device_kind}"
    yield f"problem: {_dims(explained.problem)}"
    yield f"pick: {rows[0]['candidate']}, first of {explained.supported_candidates} candidates that can run it"
    if explained.fastest_measured:
        yield f"fastest measured on exactly this problem ({explained.device_kind}): {explained.fastest_measured}"
    yield ""
    # The longest cell is the last one.
    columns = [name for name in rows[0] if name != "candidate"] + ["candidate"]
    heads = [_HEADS.get(name, name.replace("_", " ")) for name in columns]
    cells = [[_cell(row[name]) for name in columns] for row in rows]
    yield from options.table_lines([dict(zip(heads, row, strict=True)) for row in cells])
    yield ""
    yield from _reason_lines(explained)
    yield ""
    yield from _nearest_lines(explained)


def _reason_lines(explained: Explanation) -> Iterator[str]:
    if explained.against is None:
        yield "there is no other candidate: nothing to explain it against"
        return
    yield (
        f"ahead of {explained.against} by {explained.score_ahead:.4f} in score (e to that is the ratio of predicted "
        "times); of that, positive for the pick:"
    )
    rows = [
        (f"{c['contribution']:+.4f}", c["feature"], f"{c['pick']:g}", f"{c['other']:g}")
        for c in explained.contributions
    ]
    rows.append((f"{explained.other_features:+.4f}", "all other features", "", ""))
    heads = ("points", "feature", "of the pick", "of the other")
    yield from options.table_lines([dict(zip(heads, row, strict=True)) for row in rows])


def _nearest_lines(explained: Explanation) -> Iterator[str]:
    yield from options.outlook_lines(explained.outlook, explained.library)
    rows = [
        {
            "octaves away": _cell(row["octaves"]),
            "nearest measured problem": _dims(row["problem"]),
            "fastest there": row["fastest"],
        }
        for row in explained.nearest_measured_problems
    ]
    yield from options.table_lines(rows)


def _dims(dims: Mapping[str, int | str]) -> str:
    return " ".join(f"{name}={value}" for name, value in dims.items() if name in "NCK" or value != _USUAL_FIELDS[name])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
