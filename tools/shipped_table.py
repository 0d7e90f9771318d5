"""Write docs/generated/shipped.md: how good the picks are that ship, of every operation in ``results/evaluation``.

README.md has its sums by arch, which follow from the page alone: a test compares the two.
"""

import re
import sys
from collections import Counter
from pathlib import Path

from tileseer.core import documents
from tileseer.serve.evaluation import Evaluation
from tileseer.serve.model_page import figures_of
from tileseer.serve.verdict import verdict_words

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/generated/shipped.md"
README = ROOT / "README.md"
BLOCK = re.compile(r"(?<=<!-- picks that ship -->\n).*?(?=<!-- end of picks that ship -->)", re.DOTALL)
CANDIDATES = {
    "sm_90": "H200: CUTLASS kernels",
    "sm_90_cudnn": "H200: cuDNN's plans",
    "gfx950_mi355x": "MI355X: CK Tile kernels",
    "gfx942_miopen": "MI300X: MIOpen's solvers",
    "gfx90a_miopen": "MI210: MIOpen's solvers",
}
"""The rows of README.md: archs with times of a real GPU, and what is chosen from."""
HEAD = """# How good the picks are that ship

Written by `make figures` from `evaluation.json` of the models. Efficiency in percent: time of the fastest candidate
over time of the pick. "Best of 2" and "best of 3" are of the recorded times, as if each pick were timed without error.
"By time" weights every layer by its time and its uses in the networks. "Speed" is the time of another library's choice,
or else of the best choice without a model, over that of the pick (geometric mean). Layers without a candidate are in
none of the other figures; the share of time in them is estimated from other libraries' times, or by the roofline. Of
cuDNN they are those whose first plan was wrong when it was timed: the model leaves them to cuDNN.
Simulated figures do not describe a real GPU.
"""
README_COLUMNS = (
    *("GPU and candidates", "operations", "layers", "mean", "best of 2", "worst operation: mean", "P10", "by time"),
    *("time of layers without a candidate", "verdicts"),
)


def main() -> int:
    """Write the page; operations whose results are missing here stay as they are."""
    rows = [row for row in PAGE.read_text().splitlines() if row.startswith("| ")] if PAGE.exists() else []
    kept = {tuple(row.split(" | ")[0:2]): row for row in rows[1:]}
    paths = sorted(ROOT.glob("results/evaluation/*/*.json"))
    found = [documents.read_document(path, Evaluation) for path in paths]
    for one in found:
        kept[f"| {one.arch}", one.operation] = _row(one)
    if not kept:
        print("results/evaluation: there is no evaluation here; run tileseer run first", file=sys.stderr)
        return 1
    names = [*figures_of(found[0]), "verdict"] if found else []
    header = f"| arch | operation | times | {' | '.join(names)} |" if found else rows[0]
    lines = [header, "|---" * header.count(" | ") + "|---|", *(kept[key] for key in sorted(kept))]
    PAGE.write_text(HEAD + "\n" + "\n".join(lines) + "\n")
    README.write_text(BLOCK.sub(lambda _: readme_table(PAGE.read_text()), README.read_text()))
    return 0


def readme_table(page: str) -> str:
    """Return README's table of the page: means over all layers of an arch, and the figures of its worst operation."""
    header, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in page.splitlines() if line[:2] == "| ")
    operations = [dict(zip(header, row, strict=True)) for row in rows]
    lines = ["| " + " | ".join(README_COLUMNS) + " |", "|---" * len(README_COLUMNS) + "|"]
    for arch, words in CANDIDATES.items():
        own = [row for row in operations if row["arch"] == arch]
        layers = [int(row["layers"]) for row in own]
        cells = [words, str(len(own)), f"{sum(layers):,}"]
        for name in ("mean", "best of 2"):
            cells.append(f"{sum(n * float(row[name]) for n, row in zip(layers, own, strict=True)) / sum(layers):.1f}")
        cells += [str(min(float(row[name]) for row in own)) for name in ("mean", "P10", "by time")]
        without = (
            float(found[1]) for row in own if (found := re.search(r"[(]([0-9.]+) %", row["without a candidate"]))
        )
        cells.append(f"{max(without):.0f} %")
        verdicts = Counter(row["verdict"].partition(":")[0].partition(",")[0] for row in own)
        cells.append("; ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _row(one: Evaluation) -> str:
    cells = [one.arch, one.operation, one.device_kind, *figures_of(one).values()]
    return f"| {' | '.join(cells)} | {verdict_words(one).partition(':')[0]} |"


if __name__ == "__main__":
    sys.exit(main())
