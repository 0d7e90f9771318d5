"""Write docs/generated/shipped.md: how good the picks are that ship, of every operation in ``results/evaluation``."""

import sys
from pathlib import Path

from tileseer.core import documents
from tileseer.serve.evaluation import Evaluation
from tileseer.serve.model_page import figures_of, libraries_of
from tileseer.serve.verdict import verdict_words

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/generated/shipped.md"
HEAD = """# How good the picks are that ship

Written by `make figures` from `evaluation.json` of the models. Efficiency in percent: time of the fastest candidate
over time of the pick. "Best of 2" and "best of 3" are of the recorded times, as if each pick were timed without error.
"By time" weights every layer by its time and its uses in the networks. Layers without a candidate are in none of the
other figures; the share of time in them is estimated from other libraries' times, or by the roofline. Of cuDNN they are
those whose first plan was wrong when it was timed: the model leaves them to cuDNN.
Simulated figures do not describe a real GPU.
"""


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
    names = [*figures_of(found[0]), "beside other libraries", "verdict"] if found else []
    header = f"| arch | operation | times | {' | '.join(names)} |" if found else rows[0]
    lines = [header, "|---" * header.count(" | ") + "|---|", *(kept[key] for key in sorted(kept))]
    PAGE.write_text(HEAD + "\n" + "\n".join(lines) + "\n")
    return 0


def _row(one: Evaluation) -> str:
    cells = [one.arch, one.operation, one.device_kind, *figures_of(one).values(), libraries_of(one) or "-"]
    return f"| {' | '.join(cells)} | {verdict_words(one).partition(':')[0]} |"


if __name__ == "__main__":
    sys.exit(main())
