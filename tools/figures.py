"""Refresh the figures of the documentation (make figures); ``stale`` says which pages lack them.

Figures have two sources: ``docs/generated/evaluations.json``, taken from the evaluations of the models in ``results/``,
and the logs of ``benchmarks/gpu``. A block of a page between ``<!-- figures: NAME -->`` and ``<!-- end of figures -->``
is made from them (``figure_tables.BLOCKS``). A block ``<!-- output of ARCH: DIGEST -->`` has what the command above it
prints, ``log`` the last lines of logs, ``summary`` what a run prints last; these need ``results/`` and ``logs/``. Their
digest is that of the evaluations of the arch, so that a block of other models is known without any results.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import figure_tables
from figure_tables import EVALUATIONS, ROOT, Published, PublishedEvaluations
from tileseer.cli.run_summary import lines_of
from tileseer.core import documents
from tileseer.core.documents import read_json
from tileseer.core.strict_tables import validate_table
from tileseer.judge.evaluation import Evaluation
from tileseer.judge.verdict import verdict_words

SHIPPED = ROOT / "docs/generated/shipped.md"
TABLE = re.compile(r"(?<=<!-- figures: )(?P<name>[\w ]+) -->\n.*?(?=<!-- end of figures -->)", re.DOTALL)
PRINTED = re.compile(
    r"(?:```sh\n(?P<command>tileseer [^`]*)\n```\n\n)?"
    r"<!-- (?P<kind>output|log|summary) of (?P<arch>\w+): (?P<digest>\w*) -->\n```text\n(?P<text>.*?)```\n",
    re.DOTALL,
)


def main() -> int:
    """Refresh evaluations and pages; return 1 if a part could not be refreshed."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    os.chdir(ROOT)
    found = refreshed_evaluations()
    documents.write_document(EVALUATIONS, PublishedEvaluations(evaluations=found))
    pages = {path: with_printed(page, found) for path, page in pages_of(found).items()}
    for path, page in pages.items():
        if not path.exists() or page != path.read_text():
            path.write_text(page)
            print(f"{path.relative_to(ROOT)}: refreshed")
    stale_pages = stale(found)
    print("".join(f"left as it is: {line}\n" for line in stale_pages), end="", file=sys.stderr)
    return max(bool(stale_pages), subprocess.run([sys.executable, "tools/generated.py"], check=False).returncode)


def refreshed_evaluations() -> Published:
    """Return the evaluations of results/, and the committed ones of operations that are not there."""
    evaluations = [documents.read_document(path, Evaluation) for path in ROOT.glob("results/evaluation/*/*.json")]
    found = {f"{one.arch}/{one.operation}": figure_tables.without_parts(one) for one in evaluations}
    kept = read_json(EVALUATIONS)["evaluations"] if EVALUATIONS.exists() else {}
    found |= {
        key: validate_table(one, Evaluation, f"{EVALUATIONS}: {key}") for key, one in kept.items() if key not in found
    }
    return dict(sorted(found.items()))


def written_pages() -> list[Path]:
    """Return the pages that are written by hand: README.md and those of docs/ that are not generated."""
    found = [path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "generated"]
    return [ROOT / "README.md", *sorted(found)]


def pages_of(found: Published) -> dict[Path, str]:
    """Return every page that has blocks of figures, with the tables as they have to be."""
    pages = {SHIPPED: figure_tables.shipped_page(found)}
    for path in written_pages():
        text = path.read_text()
        if TABLE.search(text) or PRINTED.search(text):
            pages[path] = TABLE.sub(
                lambda block: f"{block['name']} -->\n{figure_tables.BLOCKS[block['name']](found)}", text
            )
    return pages


def stale(found: Published) -> list[str]:
    """Return what is not that of the evaluations and logs, one line for each page or block."""
    pages = pages_of(found)
    lines = [f"{path.relative_to(ROOT)}: tables" for path, page in pages.items() if page != path.read_text()]
    for path, page in pages.items():
        for block in PRINTED.finditer(page):
            own = {key: one for key, one in found.items() if one.arch == block["arch"]}
            if block["digest"] != digest_of(block["arch"], found):
                lines.append(f"{path.relative_to(ROOT)}: {block['kind']} of other models of {block['arch']}")
            elif any(line not in block["text"] for line in _lines_of(block["kind"], own, block["text"])):
                lines.append(f"{path.relative_to(ROOT)}: {block['kind']} of {block['arch']} in other words")
    return lines


def _lines_of(kind: str, found: Published, text: str) -> Iterator[str]:
    """Yield the lines of a block that follow from evaluations alone."""
    for key, one in found.items():
        if kind == "summary":
            yield f"verdict:  {one.operation}: {verdict_words(one)}\n"
        elif kind == "log" and (subject := f"evaluation {key.replace('/', ' ')}: ") in text:
            yield f"{subject}{one.summary}\n"


def digest_of(arch: str, found: Published) -> str:
    """Return what says of which models of an arch a block is."""
    own = [one.model_dump_json() for one in found.values() if one.arch == arch]
    return hashlib.sha256("\n".join(own).encode()).hexdigest()[:8]


def with_printed(page: str, found: Published) -> str:
    """Return the page with the blocks that commands and runs print; one whose source is missing stays."""

    def block(match: re.Match[str]) -> str:
        lines = list(_printed(match))
        if not lines:
            return match[0]
        mark = f"of {match['arch']}: {digest_of(match['arch'], found)} -->"
        head = match[0].partition("```text\n")[0].replace(f"of {match['arch']}: {match['digest']} -->", mark)
        return "\n".join([f"{head}```text", *lines, "```\n"])

    return PRINTED.sub(block, page)


def _printed(match: re.Match[str]) -> Iterator[str]:
    if match["kind"] == "output":
        done = subprocess.run(match["command"], shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
        yield from done.stdout.splitlines() if done.returncode == 0 else ()
    elif match["kind"] == "summary":
        arch = match["arch"]
        yield from lines_of(arch, arch, f"tileseer run --arch {arch}", with_models=True)
    else:
        paths = sorted(ROOT.glob("logs/**/*.log"))
        last = [lines[-1] for path in paths if (lines := path.read_text().splitlines())]
        printed = {line.partition(":")[0]: line for line in last}
        subjects = [line.partition(":")[0] for line in match["text"].splitlines()]
        # All of one run, or none.
        yield from (printed[subject] for subject in subjects) if {*subjects} <= {*printed} else ()


if __name__ == "__main__":
    sys.exit(main())
