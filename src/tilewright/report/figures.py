"""The charts: one function a figure, from the results to one panel an operation.

Panels are static SVG. They are drawn while the report is made, so a broken chart fails the stage and not the
reader's browser; they need no script, so the page can forbid all of them; and they are a fiftieth of the size of
the Vega libraries. Colours are CSS variables of the page: one drawing serves light and dark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import altair as alt
import vl_convert

from tilewright.report.results import OperationResult, Results

WIDTH = 340
"""Pixels of a panel, axes and labels included: one on a phone, three on a desk."""
TOP_FEATURES = 20
_FEWEST_ROWS = 3

INK, SOFT, MODEL, BASELINE = "var(--ink)", "var(--grid)", "var(--model)", "var(--baseline)"
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


def _sized(chart: alt.LayerChart, rows: int, row_height: int) -> alt.LayerChart:
    """Return the chart with the panel's width and a height for ``rows`` labels, everything included."""
    height = max(rows, _FEWEST_ROWS) * row_height + 60
    return chart.properties(width=WIDTH, height=height, autosize=alt.AutoSizeParams(type="fit", contains="padding"))
