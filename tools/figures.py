"""Refresh the figures of the documentation from ``results/`` and ``logs/`` (make figures).

A block between ``<!-- figures -->`` and ``<!-- end of figures -->`` is the output of the command above it, or has
lines of logs. The first table of docs/internals/results.md and
those of MIOpen's solvers follow from evaluations. Other tools draw pictures.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import plain_english
from tileseer.core import documents
from tileseer.serve.evaluation import Evaluation

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"(?:```sh\n(?P<command>tileseer [^`]*)\n```\n\n)?<!-- figures -->\n```text\n(?P<text>.*?)```\n", re.DOTALL
)
ARCHS = {"H200": "sm_90", "gfx950": "gfx950", "MI355X": "gfx950_mi355x"}
"""First word of a row of the table of results, and the arch that it shows; other rows are of several operations."""
SOLVERS = {"MI300X": "gfx942_miopen", "MI210": "gfx90a_miopen"}
"""First word of a table of MIOpen's solvers, and the arch that it shows."""
SOLVER_TABLE = re.compile(
    r"(?P<head>^\| (?P<gpu>\w+)[^|\n]*: operation \|.*\n\|---.*\n)(?P<rows>(?:\|.*\n)+)", re.MULTILINE
)
PARTS = ("tools/generated.py", "tools/shipped_table.py", "tools/results_picture.py", "tools/report_picture.py")


def refreshed(page: str, root: Path) -> str:
    """The page with the blocks of figures as they are now; one whose source is missing stays."""

    def block(match: re.Match[str]) -> str:
        text = _output(match["command"], root) if match["command"] else _logged(match["text"], root)
        return match[0].replace(f"```text\n{match['text']}```", f"```text\n{text or match['text']}```")

    return BLOCK.sub(block, page)


def _output(command: str, root: Path) -> str:
    done = subprocess.run(
        command, shell=True, cwd=root, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode:
        print(f"left as it is: {command.splitlines()[0]}: {done.stderr.strip()}", file=sys.stderr)
    return "" if done.returncode else done.stdout


def _logged(text: str, root: Path) -> str:
    """The lines with the same subjects, such as ``model gfx950 forward_bf16``, at the ends of logs."""
    last = [lines[-1] for path in sorted(root.glob("logs/**/*.log")) if (lines := path.read_text().splitlines())]
    printed = {line.partition(":")[0]: line for line in last}
    for line in text.splitlines():
        if line.partition(":")[0] not in printed:
            print(f"left as it is: no log ends with {line.partition(':')[0]}", file=sys.stderr)
    return "".join(f"{printed.get(line.partition(':')[0], line)}\n" for line in text.splitlines())


def with_results(page: str, root: Path) -> str:
    """docs/internals/results.md with the rows of its first table that show one operation of one arch."""
    for row in re.findall(r"^\| \w+, \w+ \w+ \|.*\|$", page, re.MULTILINE):
        gpu, _, operation = row.split("|")[1].strip().partition(", ")
        path = root / f"results/evaluation/{ARCHS.get(gpu, gpu)}/{operation.replace(' ', '_')}.json"
        if path.exists():
            page = page.replace(row, row_of_evaluation(row, documents.read_document(path, Evaluation)))
        else:
            print(f"left as it is: {gpu}, {operation}: there is no {path.relative_to(root)}", file=sys.stderr)
    return page


def with_solvers(page: str, root: Path) -> str:
    """docs/internals/results.md with the rows of the tables of MIOpen's solvers."""

    def table(match: re.Match[str]) -> str:
        folder = root / "results/evaluation" / SOLVERS[match["gpu"]]
        found = [documents.read_document(path, Evaluation) for path in sorted(folder.glob("*.json"))]
        if not found:
            print(f"left as it is: {match['gpu']}: nothing is in {folder.relative_to(root)}", file=sys.stderr)
            return match[0]
        return match["head"] + "".join(
            f"| {one.operation.replace('_f', ' f').replace('_b', ' b')} | {one.layers:,} | {one.first.mean:.2f} "
            f"| {one.first.p10:.1f} | {one.best_of_2.mean:.2f} | {one.by_time:.1f} "
            f"| {one.baselines['fixed_order'].efficiency.mean:.1f} |\n"
            for one in found
        )

    return SOLVER_TABLE.sub(table, page)


def row_of_evaluation(row: str, found: Evaluation) -> str:
    """A row with the figures of an evaluation; the cell of the reference trainer stays."""
    low, high = found.interval["mean"]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    cells[2:7] = [
        f"{found.layers:,}",
        f"{found.first.mean:.2f} ({low:.2f} to {high:.2f})",
        f"{found.first.median:.2f}",
        f"{found.first.p10:.2f}",
        f"{found.baselines['best_single_kernel'].efficiency.mean:.2f}",
    ]
    cells[8] = f"{found.possible.mean:.2f}"
    return f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|"


def main() -> int:
    """Refresh blocks, table, generated pages and pictures; return 1 if a part could not be refreshed."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for path in plain_english.pages():
        before = path.read_text()
        after = refreshed(before, ROOT)
        if path == ROOT / "docs/internals/results.md":
            after = with_solvers(with_results(after, ROOT), ROOT)
        if after != before:
            path.write_text(after)
            print(f"{path.relative_to(ROOT)}: refreshed")
    return max(subprocess.run([sys.executable, part], cwd=ROOT, check=False).returncode for part in PARTS)


if __name__ == "__main__":
    sys.exit(main())
