"""The pictures of the report: SVG of a known size, drawn here. Colours are CSS variables of the page."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape

import numpy as np
import pandas as pd

from tileseer.learn.model_schema import Summary

WIDTH, HEIGHT = 480, 292
LEFT, TOP, RIGHT, BOTTOM = 52, 8, 466, 262
"""The frame inside of the axes."""
LEGEND = 308
"""Height of a legend's first line."""
COLOURS = 8
"""Of pipelines, in their order; each is numbered as well, for those who do not see the colours."""
LEGEND_COLUMNS = 3
FEW = 5
"""From so many operations on, the lines of the spread are closer: the picture stays on the first screen."""
LONGEST_LABEL = 30
"""Characters of a name beside a bar."""


@dataclass(frozen=True)
class Picture:
    """A picture of one operation."""

    title: str
    """What it shows."""
    words: str
    """Its numbers, for those who do not see it."""
    svg: str


def spread(summaries: Mapping[str, Mapping[str, Summary | None]]) -> Picture:
    """Draw the efficiencies of ways to choose, by operation: a dot at the mean, a line from there to P10.

    ``summaries``: by operation, by way to choose; None where it is not known.
    """
    ways = list(next(iter(summaries.values())))
    known = [one for row in summaries.values() for one in row.values() if one]
    low = min(90.0, np.floor(min(max(one.p10, 0.0) for one in known) / 10) * 10)
    left, step, gap = 100.0, 8 if len(summaries) < FEW else 5, 8
    height = len(summaries) * (len(ways) * step + gap)

    def at(value: float) -> float:
        return left + (max(value, low) - low) / (100 - low) * (RIGHT - left)

    parts = []
    for value in range(int(low), 101, 10 if low < 70 else 5):
        parts.append(f'<path d="M{at(value):.1f} {TOP}V{TOP + height}" stroke="var(--grid)"/>')
        parts.append(_text(at(value), TOP + height + 12, str(value), "middle"))
    for row, (operation, own) in enumerate(summaries.items()):
        top = TOP + row * (len(ways) * step + gap) + gap / 2
        parts.append(_text(left - 6, top + len(ways) * step / 2 + 3, operation, "end"))
        for number, (way, one) in enumerate(own.items()):
            if one is None:
                continue
            y, colour = top + (number + 0.5) * step, _colour(number)
            said = f"{operation}, {way}: mean {one.mean:.1f} %, P10 {one.p10:.1f} %, least {one.min:.1f} %"
            line = f'<path d="M{at(one.p10):.1f} {y:.1f}H{at(one.mean):.1f}" stroke-width="2"/>'
            dot = f'<circle cx="{at(one.mean):.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>'
            parts.append(f'<g stroke="{colour}"><title>{escape(said)}</title>{line}{dot}</g>')
    below = TOP + height + 30
    for number, way in enumerate(ways):
        x = number * WIDTH / len(ways) + 6
        parts.append(f'<circle cx="{x:.1f}" cy="{below - 3:.1f}" r="2.6" fill="{_colour(number)}"/>')
        parts.append(_text(x + 6, below, way))
    picks = [row[ways[0]] for row in summaries.values()]
    means = dict.fromkeys(f"{value:.1f}" for value in sorted(one.mean for one in picks if one))
    svg = f'<svg viewBox="0 0 {WIDTH} {below + 6:.0f}">{"".join(parts)}</svg>'
    title = f"Efficiency of the picks: mean {' to '.join([*means][:: max(1, len(means) - 1)])} %"
    return Picture(title, "Dot: mean over layers; line: to the worst tenth (P10), percent of the fastest.", svg)


def time_by_part(parts: str, times: Mapping[str, tuple[float, float]]) -> Picture:
    """Draw the time that picks lose against the fastest (left) and win beside what runs without a model (right).

    ``times``: by part, both in percent of the time of all fastest candidates; ``parts`` says what the parts are.
    """
    left, step = 170.0, 14
    most = max([1e-9, *(max(lost, abs(won)) for lost, won in times.values())])
    middle = left + (RIGHT - left) / 3
    scale = min((middle - left) / max(1e-9, max([0.0, *(lost for lost, _ in times.values())])), (RIGHT - middle) / most)
    drawn = [f'<path d="M{middle:.1f} {TOP}V{TOP + len(times) * step}" stroke="var(--dim)"/>']
    for row, (name, (lost, won)) in enumerate(times.items()):
        y = TOP + row * step
        drawn.append(_text(left - 6, y + 10, name if len(name) <= LONGEST_LABEL else f"{name[:LONGEST_LABEL]}…", "end"))
        bars = [(middle - lost * scale, lost * scale, "var(--bad)")]
        width = min(abs(won) * scale, RIGHT - middle if won >= 0 else middle - left)
        bars.append((middle, width, "var(--good)") if won >= 0 else (middle - width, width, "var(--limited)"))
        said = f"{name}: {lost:.2f} % lost against the fastest, {won:.2f} % won beside no model"
        rects = "".join(
            f'<rect x="{x:.1f}" y="{y + 2 + 5 * number}" width="{width:.1f}" height="5" fill="{colour}"/>'
            for number, (x, width, colour) in enumerate(bars)
        )
        drawn.append(f"<g><title>{escape(said)}</title>{rects}</g>")
    below = TOP + len(times) * step + 14
    drawn.append(_text(middle - 6, below, "lost against the fastest", "end"))
    drawn.append(_text(middle + 6, below, "won beside no model"))
    svg = f'<svg viewBox="0 0 {WIDTH} {below + 6}">{"".join(drawn)}</svg>'
    lost, won = (sum(values) for values in zip(*times.values(), strict=True)) if times else (0.0, 0.0)
    words = f"The {parts} with most of it, in percent of the time of all fastest candidates; longest bar: {most:.1f} %."
    return Picture(f"Time by {parts}, of those shown: {won:.1f} % won, {lost:.1f} % lost", words, svg)


def winners(layers: pd.DataFrame, pipelines: list[str]) -> Picture:
    """Draw the pipeline that wins most layers, over rows (M) and reduction (K) of the matrix product.

    ``pipelines``: those of all operations; one has the same number and colour in all pictures.
    """
    table = layers.assign(m=_octaves(layers["gemm_m"]), k=_octaves(layers["gemm_k"]))
    columns, rows = (np.arange(table[axis].min(), table[axis].max() + 1, 2).tolist() for axis in "mk")
    width, height = (RIGHT - LEFT) / len(columns), (BOTTOM - TOP) / len(rows)
    parts = []
    for (m, k), cell in table.groupby(["m", "k"]):
        wins = cell["pipeline"].value_counts().sort_index().sort_values(ascending=False, kind="stable")
        name, share = str(wins.index[0]), wins.iloc[0] / len(cell)
        x, y = LEFT + columns.index(m) * width, BOTTOM - (rows.index(k) + 1) * height
        said = f"M from 2^{m}, K from 2^{k}: {name} wins {100 * share:.0f} % of {len(cell)} layers"
        number = pipelines.index(name)
        parts.append(
            f'<g><title>{escape(said)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'fill="{_colour(number)}" fill-opacity="{0.1 + 0.65 * share:.2f}"/>'
            f"{_text(x + width / 2, y + height / 2 + 3, str(number + 1), 'middle')}</g>"
        )
    parts += [_text(LEFT + (i + 0.5) * width, BOTTOM + 12, str(m), "middle") for i, m in enumerate(columns)]
    parts += [_text(LEFT - 6, BOTTOM - (i + 0.5) * height + 3, str(k), "end") for i, k in enumerate(rows)]
    totals = table["pipeline"].value_counts().sort_index().sort_values(ascending=False, kind="stable")
    for place, name in enumerate(sorted(totals.index)):
        x = LEFT + place % LEGEND_COLUMNS * (RIGHT - LEFT) / LEGEND_COLUMNS
        y, number = LEGEND + place // LEGEND_COLUMNS * 14, pipelines.index(name)
        parts.append(
            f'<rect x="{x:.1f}" y="{y - 8}" width="9" height="9" fill="{_colour(number)}" fill-opacity="0.7"/>'
        )
        parts.append(_text(x + 13, y, f"{number + 1} {name}"))
    lines = (len(totals) + LEGEND_COLUMNS - 1) // LEGEND_COLUMNS
    return _picture(
        f"{totals.index[0]} wins {100 * totals.iloc[0] / len(table):.0f} % of the layers: winners by size of product",
        f"Layers of {len(table)} won: {', '.join(f'{name} {count}' for name, count in totals.items())}.",
        parts, "rows of the product (M), from 2^", "reduction (K), from 2^", LEGEND + 14 * lines,
    )  # fmt: skip


def roofline(layers: pd.DataFrame, peak_tflops: float, memory_tb_per_s: float) -> Picture:
    """Draw the best TFLOPS of the layers over their FLOP per byte, below the limits of the hardware."""
    intensity, tflops = layers["flop"] / layers["bytes"], layers["flop"] / layers["best_us"] * 1e-6
    roof = np.minimum(peak_tflops, intensity * memory_tb_per_s)
    # A quarter of an octave is finer than a dot: layers at one place are one dot.
    places = pd.DataFrame({"x": np.round(4 * np.log2(intensity)) / 4, "y": np.round(4 * np.log2(tflops)) / 4})
    low_x, high_x = np.floor(places["x"].min()), np.ceil(places["x"].max())
    low_y, high_y = np.floor(places["y"].min()), np.ceil(max(places["y"].max(), np.log2(roof.max())))

    def at(x: float, y: float) -> tuple[float, float]:
        wide, high = max(high_x - low_x, 1), max(high_y - low_y, 1)
        return LEFT + (x - low_x) / wide * (RIGHT - LEFT), BOTTOM - (y - low_y) / high * (BOTTOM - TOP)

    parts = []
    for value in _ticks(low_x, high_x):
        x, _ = at(value, 0)
        parts.append(f'<path d="M{x:.1f} {TOP}V{BOTTOM}" stroke="var(--grid)"/>')
        parts.append(_text(x, BOTTOM + 12, f"{2.0**value:.4g}", "middle"))
    for value in _ticks(low_y, high_y):
        _, y = at(0, value)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="var(--grid)"/>')
        parts.append(_text(LEFT - 6, y + 3, f"{2.0**value:.4g}", "end"))
    for (x, y), count in places.value_counts(sort=False).items():  # type: ignore[misc]
        left, top = at(x, y)
        said = f"{count} layers: {2**x:.4g} FLOP per byte, {2**y:.4g} TFLOPS"
        parts.append(
            f'<circle cx="{left:.1f}" cy="{top:.1f}" r="{min(2 + np.sqrt(count) / 2, 6):.1f}" fill="var(--model)" '
            f'fill-opacity="0.5"><title>{said}</title></circle>'
        )
    edge = np.clip(np.log2(peak_tflops / memory_tb_per_s), low_x, high_x)
    limit = [np.log2(min(peak_tflops, 2**x * memory_tb_per_s)) for x in (low_x, edge, high_x)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(at, (low_x, edge, high_x), limit))
    parts.append(f'<polyline points="{line}" fill="none" stroke="var(--baseline)" stroke-width="2"/>')
    return _picture(
        f"Per-layer roofline: half of the fastest candidates reach {100 * (tflops / roof).median():.0f} % of it",
        f"The roofline is {peak_tflops:,.0f} TFLOPS and {memory_tb_per_s:g} TB/s.",
        parts, "FLOP per byte of main memory", "TFLOPS of the best", HEIGHT,
    )  # fmt: skip


def _picture(title: str, words: str, parts: Iterable[str], x: str, y: str, height: int) -> Picture:
    middle = (TOP + BOTTOM) / 2
    axes = (
        f"{_text((LEFT + RIGHT) / 2, BOTTOM + 26, x, 'middle')}"
        f'<g transform="rotate(-90 12 {middle:.0f})">{_text(12, middle, y, "middle")}</g>'
    )
    return Picture(title, words, f'<svg viewBox="0 0 {WIDTH} {height}">{axes}{"".join(parts)}</svg>')


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _colour(number: int) -> str:
    return f"var(--c{number % COLOURS})"


def _octaves(values: pd.Series) -> np.ndarray:
    """Return the exponents of two, the even ones."""
    return (np.floor(np.log2(values.clip(lower=1)) / 2) * 2).astype(int).to_numpy()


def _ticks(low: float, high: float) -> list[int]:
    """Return whole numbers between two, at most eight."""
    return list(range(int(low), int(high) + 1, max(1, -(-int(high - low) // 8))))
