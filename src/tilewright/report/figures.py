"""The charts: one function a figure, from the results to one panel an operation.

Panels are static SVG. They are drawn while the report is made, so a broken chart fails the stage and not the
reader's browser; they need no script, so the page can forbid all of them; and they are a fiftieth of the size of
the Vega libraries. Colours are CSS variables of the page: one drawing serves light and dark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import altair as alt
import vl_convert

from tilewright.efficiency import PERCENTILES
from tilewright.report.results import OperationResult, Results

WIDTH = 340
"""Pixels of a panel, axes and labels included: one on a phone, three on a desk."""
TOP_FEATURES = 20
_FEWEST_ROWS = 3

INK, SOFT, MODEL, BASELINE = "var(--ink)", "var(--grid)", "var(--model)", "var(--baseline)"
# The model, then the baselines in the order of the validation report; dashes serve those who do not see the colours.
LINES = [MODEL, BASELINE, "var(--third)", "var(--fourth)"]
DASHES = [[1, 0], [6, 2], [2, 2], [8, 3, 2, 3]]
# The first font comes with vl_convert: texts have one width on every machine. The second has the same metrics.
_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
_TEXT = {"labelColor": INK, "titleColor": INK, "labelFont": _FONT, "titleFont": _FONT, "titleFontWeight": "normal"}
CONFIG: dict[str, Any] = {
    "font": _FONT,
    "background": None,
    "view": {"stroke": None},
    "title": {"color": INK, "font": _FONT, "fontSize": 13, "anchor": "start", "frame": "bounds"},
    "text": {"color": INK, "font": _FONT},
    "axis": {**_TEXT, "gridColor": SOFT, "domainColor": SOFT, "tickColor": SOFT, "labelLimit": 150},
    "axisY": {"ticks": False, "domain": False, "labelPadding": 6},
}


@dataclass(frozen=True)
class Panel:
    """A chart of one operation, and the same in words for those who do not see it."""

    chart: alt.Chart | alt.LayerChart
    title: str
    words: str


Drawn = TypeVar("Drawn", alt.Chart, alt.LayerChart)
Draw = Callable[[Results], list[Panel]]


def svg(panel: Panel) -> str:
    """Return the panel as SVG, its title drawn into it; the same panel gives the same text."""
    return vl_convert.vegalite_to_svg(panel.chart.properties(title=panel.title).to_dict(), config=CONFIG)


def choosers(results: Results) -> list[Panel]:
    """Draw 10th percentile to median, mean and minimum of the model and of choosing without it."""
    return [_choosers(result) for result in results.operations]


def _choosers(result: OperationResult) -> Panel:
    summaries = result.validation.choosers()
    rows = [
        {"chooser": name, "colour": BASELINE if i > 2 else MODEL, **summary.model_dump()}
        for i, (name, summary) in enumerate(summaries.items())
    ]
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=_labels("chooser", rows), color=alt.Color("colour:N", scale=None, legend=None)
    )
    chart = alt.layer(
        base.mark_rule(strokeWidth=1).encode(x=_percent("min"), x2="p10:Q"),
        base.mark_tick(thickness=2, size=10).encode(x="min:Q"),
        base.mark_bar(height=9, opacity=0.45).encode(x="p10:Q", x2="median:Q"),
        base.mark_point(filled=True, size=60, opacity=1).encode(x="mean:Q"),
    )
    words = "; ".join(f"{name} mean {s.mean:.1f}, 10th percentile {s.p10:.1f}" for name, s in summaries.items())
    return Panel(_sized(chart, len(rows), 26), result.label, f"Efficiency in percent: {words}.")


def distribution(results: Results) -> list[Panel]:
    """Draw the cumulative distribution of the efficiency of the model and of each baseline."""
    return [_distribution(result) for result in results.operations]


def _distribution(result: OperationResult) -> Panel:
    distributions = result.validation.distributions()
    rows = [
        {"chooser": name, "share": share, "efficiency": value}
        for name, values in distributions.items()
        for share, value in zip(PERCENTILES, values, strict=True)
    ]
    colour = alt.Color(
        "chooser:N",
        scale=alt.Scale(domain=list(distributions), range=LINES),
        legend=alt.Legend(title=None, orient="bottom", columns=2, symbolType="stroke", labelColor=INK),
    )
    dash = alt.StrokeDash("chooser:N", scale=alt.Scale(domain=list(distributions), range=DASHES))
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(strokeWidth=2)
        .encode(
            x=_percent("efficiency"),
            y=alt.Y("share:Q", title="problems at or below, %", axis=alt.Axis(values=[0, 20, 40, 60, 80, 100])),
            order="share:Q",
            color=colour,
            strokeDash=dash,
        )
    )
    half = PERCENTILES.index(50)
    words = ", ".join(f"{name} {values[half]:.1f}" for name, values in distributions.items())
    return Panel(_sized(chart, 13, 16), result.label, f"Half of the problems reach at least, in percent: {words}.")


def pipelines(results: Results) -> list[Panel]:
    """Draw how often a kernel of each pipeline is picked, and how often one is the best."""
    return [_pipelines(result) for result in results.operations]


def _pipelines(result: OperationResult) -> Panel:
    counts, total = result.validation.pipelines, result.validation.n_problems
    rows = [
        {"pipeline": name, "which": which, "share": 100 * problems / total}
        for name, count in counts.items()
        for which, problems in (("best", count.best), ("picked", count.picked))
    ]
    colour = alt.Color(
        "which:N",
        scale=alt.Scale(domain=["best", "picked"], range=[BASELINE, MODEL]),
        legend=alt.Legend(title=None, orient="bottom", labelColor=INK),
    )
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(opacity=0.6)
        .encode(
            y=alt.Y("pipeline:N", title=None, sort=list(counts)),
            yOffset="which:N",
            x=alt.X("share:Q", title="problems, %", scale=alt.Scale(zero=True)),
            color=colour,
        )
    )
    words = ", ".join(f"{name} best {count.best}, picked {count.picked}" for name, count in counts.items())
    return Panel(_sized(chart, len(counts), 34), result.label, f"Problems of {total}: {words}.")


def networks(results: Results) -> list[Panel]:
    """Draw the mean efficiency on each network, lowest first."""
    return [_networks(result) for result in results.operations]


def _networks(result: OperationResult) -> Panel:
    means = {name: stratum.efficiency.mean for name, stratum in result.validation.by_network.items()}
    rows = [{"network": name, "mean": means[name]} for name in sorted(means, key=lambda name: (means[name], name))]
    words = ", ".join(f"{row['network']} {row['mean']:.1f}" for row in rows[:5])
    return Panel(
        _bars(rows, "network", "mean", _percent("mean"), ".1f"),
        result.label,
        f"Mean efficiency in percent on {len(rows)} networks, the lowest: {words}.",
    )


def importances(results: Results) -> list[Panel]:
    """Draw how often the trees split on each of the ``TOP_FEATURES`` features that they use most."""
    return [_importances(result) for result in results.operations]


def _importances(result: OperationResult) -> Panel:
    most = list(result.importances.items())[:TOP_FEATURES]
    rows = [{"feature": name, "splits": splits} for name, splits in most]
    words = ", ".join(f"{name} {splits}" for name, splits in most[:5])
    axis = alt.X("splits:Q", title="splits", axis=alt.Axis(tickCount=3))
    return Panel(
        _bars(rows, "feature", "splits", axis, ",d"),
        result.label,
        f"Splits on each of the {len(rows)} most used features, the first: {words}.",
    )


def _bars(rows: list[dict[str, Any]], label: str, value: str, axis: alt.X, number: str) -> alt.LayerChart:
    """Return horizontal bars in the order of ``rows``, each with its value written at its base."""
    base = alt.Chart(alt.Data(values=rows)).encode(y=_labels(label, rows))
    chart = alt.layer(
        base.mark_bar(color=MODEL, opacity=0.45).encode(x=axis),
        base.mark_text(align="left", dx=4, fontSize=10).encode(
            x=alt.value(0), text=alt.Text(f"{value}:Q", format=number)
        ),
    )
    return _sized(chart, len(rows), 16)


def _labels(name: str, rows: list[dict[str, Any]]) -> alt.Y:
    return alt.Y(f"{name}:N", title=None, sort=[row[name] for row in rows])


def _percent(name: str) -> alt.X:
    return alt.X(
        f"{name}:Q",
        title="efficiency, %",
        scale=alt.Scale(domain=[0, 100], nice=False),
        axis=alt.Axis(values=[0, 20, 40, 60, 80, 100]),
    )


def _sized(chart: Drawn, rows: int, row_height: int) -> Drawn:
    """Return the chart with the panel's width and a height for ``rows`` labels, everything included."""
    height = max(rows, _FEWEST_ROWS) * row_height + 60
    return chart.properties(width=WIDTH, height=height, autosize=alt.AutoSizeParams(type="fit", contains="padding"))
