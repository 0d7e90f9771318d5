"""Draw the first table of docs/internals/results.md, without its simulated rows: docs/results.svg."""

from pathlib import Path

import altair
import vl_convert

ROOT = Path(__file__).parents[1]
PAGE, PICTURE = ROOT / "docs/internals/results.md", ROOT / "docs/results.svg"
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
COLORS = {"the model's first pick": "#1a6fb5", "one fixed choice": "#b0b0b0"}


def rows(page: str) -> list[dict[str, str | float]]:
    """What is drawn: GPU and operation, how it was chosen, mean efficiency in percent."""
    table = page.partition("\n| GPU, operation |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    real = [cell for cell in cells if cell[1] != "simulated"]
    return [
        {"of": cell[0], "choice": choice, "efficiency": float(cell[column].split()[0])}
        for cell in real
        for choice, column in zip(COLORS, (3, 6), strict=True)
    ]


def drawn(page: str) -> str:
    """The picture as SVG."""
    title = "mean efficiency, % of the fastest candidate"
    base = altair.Chart(altair.Data(values=rows(page))).encode(
        y=altair.Y("of:N", sort=None, title=None, axis=altair.Axis(labelLimit=300, ticks=False, domain=False)),
        x=altair.X("efficiency:Q", title=title, scale=altair.Scale(domain=[50, 100]), axis=altair.Axis(grid=False)),
    )
    color = altair.Color(
        "choice:N", title=None, scale=altair.Scale(domain=list(COLORS), range=list(COLORS.values())),
        legend=altair.Legend(orient="top", labelLimit=300),
    )  # fmt: skip
    lines = base.mark_line(color="#d8d8d8", strokeWidth=3).encode(detail="of:N")
    points = base.mark_circle(size=110, opacity=1).encode(color=color)
    numbers = base.mark_text(dy=-11, fontSize=11).encode(text=altair.Text("efficiency:Q", format=".1f"))
    chart = (lines + points + numbers).properties(width=520, height=altair.Step(34), background="white")
    return str(vl_convert.vegalite_to_svg(chart.configure(font=FONT, view=altair.ViewConfig(stroke=None)).to_json()))


if __name__ == "__main__":
    PICTURE.write_text(drawn(PAGE.read_text()))
