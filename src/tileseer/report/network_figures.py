"""The charts of whole networks: what the picks cost them, and how far their layers are from the training problems."""

from __future__ import annotations

from typing import Any

import altair as alt

from tileseer.report.figures import BASELINE, MODEL, Panel, labels, percent, sized
from tileseer.report.results import OperationResult, Results
from tileseer.validation.schema import Distance


def end_to_end(results: Results) -> list[Panel]:
    """Draw the time of the best candidates over that of the picks of each run of a network, worst first."""
    return [_end_to_end(result) for result in results.operations if result.validation.end_to_end]


def _end_to_end(result: OperationResult) -> Panel:
    rows: list[dict[str, Any]] = [
        {"run": f"{run.network}, {run.run}", "whole": run.end_to_end, "weighted": run.flop_weighted}
        for run in result.validation.end_to_end or ()
    ]
    base = alt.Chart(alt.Data(values=rows)).encode(y=labels("run", rows))
    chart = alt.layer(
        base.mark_bar(color=MODEL, opacity=0.45).encode(x=percent("whole")),
        base.mark_tick(color=BASELINE, thickness=2, size=10).encode(x="weighted:Q"),
        base.mark_text(align="left", dx=4, fontSize=10).encode(x=alt.value(0), text=alt.Text("whole:Q", format=".1f")),
    )
    worst = ", ".join(f"{row['run']} {row['whole']:.1f}" for row in rows[:5])
    words = f"End to end in percent of {len(rows)} runs of networks, the lowest: {worst}."
    return Panel(sized(chart, len(rows), 16), result.label, words)


def coverage(results: Results) -> list[Panel]:
    """Draw the efficiency of the picks by distance to the nearest training problem, nearest class first."""
    return [_coverage(result) for result in results.operations if result.validation.by_distance]


def _coverage(result: OperationResult) -> Panel:
    rows: list[dict[str, Any]] = [
        {"distance": f"{octaves(part)}: {part.n_problems}", **part.efficiency.model_dump()}
        for part in result.validation.by_distance or ()
    ]
    base = alt.Chart(alt.Data(values=rows)).encode(y=labels("distance", rows))
    chart = alt.layer(
        base.mark_rule(strokeWidth=1, color=MODEL).encode(x=percent("min"), x2="p10:Q"),
        base.mark_tick(thickness=2, size=10, color=MODEL).encode(x="min:Q"),
        base.mark_bar(height=9, opacity=0.45, color=MODEL).encode(x="p10:Q", x2="median:Q"),
        base.mark_point(filled=True, size=60, opacity=1, color=MODEL).encode(x="mean:Q"),
    )
    means = "; ".join(f"{row['distance']} problems, mean {row['mean']:.1f}" for row in rows)
    return Panel(sized(chart, len(rows), 26), result.label, f"Efficiency in percent by octaves: {means}.")


def octaves(distance: Distance) -> str:
    """Return the class of a distance in words."""
    if not distance.of_a_known_kind:
        return "kind not trained on"
    if distance.above is None:
        return "unknown"
    return f"above {distance.above:g}" + ("" if distance.up_to is None else f", up to {distance.up_to:g}")
