"""The charts: one function a figure, from the results to one panel an operation.

A panel is drawn twice from one description: as static SVG while the report is made, which needs no script, and by the
reader's browser, which adds tooltips and zooming (docs/internals/decisions.md). Colours are CSS
variables of the page: one drawing serves light and dark. Everything that Altair would number is named here: its
numbers count through the process, and the same results have to give the same bytes.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, wraps
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import vl_convert

from tileseer.report.measured import Measured, short
from tileseer.report.results import OperationResult, Results

WIDTH = 480
"""Units of a panel, axes and labels included: the page scales it to a column."""

INK, SOFT, MODEL, BASELINE = "var(--ink)", "var(--grid)", "var(--model)", "var(--baseline)"
COLOURS = [f"var(--c{i})" for i in range(8)]
"""Of pipelines, in their order; each is numbered as well, for those who do not see the colours."""
# The first font comes with vl_convert: texts have one width on every machine. The second has the same metrics.
_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
_TEXT = {"labelColor": INK, "titleColor": INK, "labelFont": _FONT, "titleFont": _FONT, "titleFontWeight": "normal"}
CONFIG: dict[str, Any] = {
    "font": _FONT,
    "background": None,
    "view": {"stroke": None},
    "mark": {"tooltip": {"content": "encoding"}},
    "title": {
        "color": INK,
        "subtitleColor": INK,
        "font": _FONT,
        "subtitleFont": _FONT,
        "fontSize": 12,
        "subtitleFontSize": 10,
        "fontWeight": "bold",
        "anchor": "start",
        "frame": "bounds",
        "limit": WIDTH,
    },
    "text": {"color": INK, "font": _FONT},
    "axis": {**_TEXT, "gridColor": SOFT, "domainColor": SOFT, "tickColor": SOFT, "labelLimit": 150},
    "axisY": {"ticks": False, "domain": False, "labelPadding": 6},
}


Drawn = alt.Chart | alt.LayerChart | alt.FacetChart


@dataclass(frozen=True)
class Panel:
    """A chart of one operation, and the same in words for those who do not see it."""

    chart: Drawn
    title: str
    """What it shows."""
    label: str
    words: str

    @cached_property
    def spec(self) -> dict[str, Any]:
        """Vega-Lite description, complete with title and style."""
        title = alt.TitleParams(self.title, subtitle=self.label)
        # Altair has checked each part when it was made.
        return {**self.chart.properties(title=title).to_dict(validate=False), "config": CONFIG}


Draw = Callable[[Results], list[Panel]]
Drawing = tuple[Drawn, str, str]
"""A chart, what it shows, and its numbers in words."""
Rows = list[dict[str, Any]]


def each_operation(draw: Callable[[OperationResult], Drawing | None]) -> Draw:
    """Make a panel an operation of a function that draws one; None where the data is missing."""

    @wraps(draw)
    def panels(results: Results) -> list[Panel]:
        drawings = ((draw(result), result.label) for result in results.operations)
        return [Panel(drawing[0], drawing[1], label, drawing[2]) for drawing, label in drawings if drawing]

    return panels


def svg(spec: dict[str, Any], name: str) -> str:
    """Return the spec of a panel as SVG, its title drawn into it; the same spec and ``name`` give the same text.

    Vega counts clip paths through the process; here they are numbered anew after ``name``, unique in the page.
    """
    text = vl_convert.vegalite_to_svg(spec)
    clips = list(dict.fromkeys(re.findall(r'<clipPath id="(\w+)"', text)))
    return re.sub(r'(id="|url\(#)(clip\d+)("|\))', lambda m: f"{m[1]}{name}-clip{clips.index(m[2])}{m[3]}", text)


@cache
def library() -> str:
    """Return the script that draws Vega-Lite in a browser: Vega-Embed with all it needs, about 0.9 MB."""
    # Its type stub does not know that it may be called without a snippet.
    return vl_convert.javascript_bundle()  # type: ignore[call-arg]


ZOOM = alt.selection_interval(
    name="zoom",
    bind="scales",
    zoom="wheel![event.shiftKey]",
    translate="[pointerdown[event.shiftKey], window:pointerup] > window:pointermove!",
)
"""Zooming and moving of a chart while the shift key is held: without it, the page scrolls."""


def wins(results: Results) -> list[Panel]:
    """Draw the pipeline that wins most shapes, over rows and reduction of the matrix product."""
    # A pipeline has one number and one colour in all panels.
    tables = [result.measured.candidates["pipeline"] for result in results.operations]
    numbers = {name: i for i, name in enumerate(sorted({name for names in tables for name in names}), 1)}
    return each_operation(lambda result: _wins(result.measured, numbers))(results)


def _wins(measured: Measured, numbers: dict[str, int]) -> Drawing:
    shapes, won = measured.shapes, measured.wins
    of_pipeline: pd.DataFrame = pd.DataFrame(won).T.groupby(measured.candidates["pipeline"].to_numpy()).sum().T
    labels = [short(row) for row in measured.candidates.itertuples()]
    octaves = shapes.assign(m=_octaves(shapes["gemm_m"]), k=_octaves(shapes["gemm_k"]))
    x, y = "rows (M), from 2^", "reduction (K), from 2^"
    rows: Rows = []
    for (m, k), part in octaves.groupby(["m", "k"], sort=True):
        most = str(of_pipeline.loc[part.index].sum().idxmax())
        rows.append(
            {
                x: m,
                y: k,
                "wins most": f"{numbers[most]} {most}",
                "number": numbers[most],
                "share": round(100 * float(of_pipeline.loc[part.index, most].mean()), 1),
                "layers": len(part),
                "kernel that wins most": labels[int(won[part.index].sum(axis=0).argmax())],
            }
        )
    base = _chart(rows).encode(
        x=alt.X(f"{x}:O", title="rows of the product (M), from 2^", axis=alt.Axis(labelAngle=0)),
        y=alt.Y(f"{y}:O", title=y, sort="descending"),
        tooltip=[f"{x}:O", f"{y}:O", "wins most:N", "share:Q", "layers:Q", "kernel that wins most:N"],
    )
    by_number = {row["number"]: str(row["wins most"]) for row in sorted(rows, key=lambda row: int(row["number"]))}
    colours = [COLOURS[(number - 1) % len(COLOURS)] for number in by_number]
    shade = alt.Opacity("share:Q", scale=alt.Scale(domain=[0, 100], range=[0.1, 0.75]), legend=None)
    legend = _colour("wins most", list(by_number.values()), colours, columns=3, symbolOpacity=0.7)
    chart = alt.layer(
        base.mark_rect().encode(color=legend, opacity=shade),
        base.mark_text(fontSize=9).encode(text="number:Q"),
    )
    totals = of_pipeline.sum()
    title = (
        f"{totals.idxmax()} wins {100 * totals.max() / len(shapes):.0f} % of the layers: winners by size of the product"
    )
    words = ", ".join(f"{name} {total:.0f}" for name, total in totals.items() if total >= 0.5)
    return _sized(chart, 14, 16), title, f"Layers of {len(shapes)} won: {words}."


@each_operation
def roofline(result: OperationResult) -> Drawing:
    """Draw the best TFLOPS of the layers over their arithmetic intensity, below the limits of the hardware."""
    measured = result.measured
    shapes, peak, memory = measured.shapes, measured.peak_tflops, measured.memory_tb_per_s
    # A quarter of an octave is finer than a dot: layers at one place are one dot.
    dots: Any = shapes.assign(
        x=2 ** (np.round(4 * np.log2(shapes["intensity"])) / 4),
        y=2 ** (np.round(4 * np.log2(shapes["tflops"])) / 4),
        one=shapes["network"] + ": " + shapes["layer"],
    ).groupby(["x", "y"], sort=True)
    rows: Rows = [
        {"FLOP per byte": _digits(x), "TFLOPS": _digits(y), "layers": len(part), "one of them": min(part["one"])}
        for (x, y), part in dots
    ]
    low, high = (extreme(row["FLOP per byte"] for row in rows) for extreme in (min, max))
    corners = sorted({low / 1.2, min(max(peak / memory, low), high * 1.2), high * 1.2})
    limits = [{"x": _digits(x), "y": _digits(min(peak, x * memory))} for x in corners]
    logarithmic = alt.Scale(type="log", base=2, nice=False, padding=8)
    axis = alt.Axis(tickCount=6, labelExpr="format(datum.value, datum.value < 1 ? '.2~g' : ',')")
    circles = _chart(rows).mark_circle(color=MODEL, opacity=0.5).add_params(ZOOM).properties(name="dots")
    circles = circles.encode(
        x=alt.X("FLOP per byte:Q", scale=logarithmic, title="FLOP per byte of main memory", axis=axis),
        y=alt.Y("TFLOPS:Q", scale=logarithmic, title="TFLOPS of the best", axis=axis),
        size=alt.Size("layers:Q", scale=alt.Scale(range=[12, 120]), legend=None),
        tooltip=["FLOP per byte:Q", "TFLOPS:Q", "layers:Q", "one of them:N"],
    )
    line = _chart(limits).mark_line(color=BASELINE).encode(x="x:Q", y="y:Q", tooltip=alt.value(None))
    half = shapes["roof"].median()
    title = f"Per-layer roofline: half of the fastest candidates reach {half:.0f} % of it"
    words = f"The roofline is {peak:,.0f} TFLOPS and {memory:g} TB/s."
    return _sized(alt.layer(circles, line), 14, 16), title, words


def _chart(rows: Sequence[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.Data(values=rows))


def _colour(name: str, names: list[str], colours: list[str], **legend: Any) -> alt.Color:
    """Return the colours by a name, with a legend below the chart."""
    below = alt.Legend(title=None, orient="bottom", labelColor=INK, **legend)
    return alt.Color(f"{name}:N", scale=alt.Scale(domain=names, range=colours), legend=below)


def _sized(chart: Drawn, rows: int, row_height: int) -> Drawn:
    """Return the chart with the panel's width and a height for ``rows`` labels, everything included."""
    height = max(rows, 3) * row_height + 60
    return chart.properties(width=WIDTH, height=height, autosize=alt.AutoSizeParams(type="fit", contains="padding"))


def _octaves(values: pd.Series) -> list[int]:
    """Return the exponents of two, the even ones."""
    return (np.floor(np.log2(values.clip(lower=1)) / 2) * 2).astype(int).tolist()


def _digits(value: float) -> float:
    return float(f"{value:.4g}")
