"""The text of an explained pick for a terminal."""

from dataclasses import asdict

from tileseer.cli.options import table_lines
from tileseer.problems.problem import Problem
from tileseer.serve.explain_pick import Explanation

_USUAL = asdict(Problem.from_dims("forward", "bf16", N=1))
_HEADS = {
    "predicted_time_over_that_of_the_pick": "time/pick",
    "predicted_efficiency": "efficiency, %",
    "predicted_ms": "predicted, ms",
    "measured_status": "measured",
    "measured_ms": "ms",
    "measured_efficiency": "of the best, %",
}
"""What the columns of the ranking are called on a terminal."""


def lines(found: Explanation) -> list[str]:
    """An ``explanation`` as text for a terminal."""
    rows = found.ranking
    text = [
        f"{found.operation} on {found.arch} ({found.device}), device kind: {found.device_kind}",
        f"problem: {_dims(found.problem)}",
        f"pick: {rows[0]['candidate']}, first of {found.supported_candidates} candidates that can run it",
    ]
    if found.fastest_measured:
        text.append(f"fastest measured on exactly this problem ({found.device_kind}): {found.fastest_measured}")
    columns = [name for name in rows[0] if name != "candidate"] + ["candidate"]
    heads = [_HEADS.get(name, name.replace("_", " ")) for name in columns]
    text += ["", *table_lines(heads, [[_cell(row[name]) for name in columns] for row in rows])]
    return [*text, "", *_reason_lines(found), "", *_nearest_lines(found)]


def _reason_lines(found: Explanation) -> list[str]:
    if found.against is None:
        return ["there is no other candidate: nothing to explain it against"]
    text = [
        f"ahead of {found.against} by {found.score_ahead:.4f} in score (e to that is the ratio of predicted "
        "times); of that, positive for the pick:"
    ]
    rows = [
        [f"{c['contribution']:+.4f}", c["feature"], f"{c['pick']:g}", f"{c['other']:g}"] for c in found.contributions
    ]
    rows.append([f"{found.other_features:+.4f}", "all other features", "", ""])
    return text + table_lines(["points", "feature", "of the pick", "of the other"], rows)


def _nearest_lines(found: Explanation) -> list[str]:
    if found.distance_percentile is None:
        return ["training problems: not kept with this model; give --dataset"]
    text = [
        f"farther from the training problems than {found.distance_percentile:g} % of these are from one another"
        + (": " + "; ".join(found.outside_training) if found.outside_training else "")
    ]
    rows = [
        [_cell(row["out_of_fold_efficiency"]), _dims(row["problem"]), row["fastest"] or "-"]
        for row in found.nearest_training_problems
    ]
    return text + table_lines(["out of fold, %", "nearest training problem", "fastest there"], rows)


def _dims(dims: dict[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in dims.items() if name in "NCK" or value != _USUAL[name])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
