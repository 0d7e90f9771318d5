"""The documentation as a site, and the code blocks of its pages."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from snakemake.cli import get_argument_parser

from tileseer.cli import main
from tileseer.core.strict_tables import validate_table
from tileseer.libraries.ck_tile.sweep import CkTileSweep

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LOADED = re.compile(r"<(?:script|img|link rel=\"(?:stylesheet|preload)\")[^>]*(?:src|href)=\"([^\"]+)")
# Only those at the margin: the blocks inside list items are parts of tables, which test_how_to.py puts in place.
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language):
    """Return (page, code) of every code block in one language."""
    return [
        (page.relative_to(ROOT).as_posix(), code)
        for page in PAGES
        for kind, code in BLOCK.findall(page.read_text())
        if kind == language
    ]


def commands():
    """Return each call of ``tileseer`` that a page shows, as (page, words)."""
    for page, code in blocks("sh"):
        for line in code.replace("\\\n", " ").splitlines():
            words = shlex.split(line.partition(" > ")[0], comments=True)
            if words[:1] == ["tileseer"]:
                yield page, tuple(words)


def test_the_site_is_built_has_every_page_and_needs_no_network(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    run = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (tmp_path / name).is_file() or (tmp_path / name.with_name("index.html")).is_file(), page
    for page in tmp_path.rglob("*.html"):
        loaded = LOADED.findall(page.read_text())
        assert not [address for address in loaded if re.match(r"(https?:)?//", address)], page


@pytest.mark.parametrize("language", ["yaml", "json"])
def test_data_blocks_can_be_read(language):
    for page, code in blocks(language):
        try:
            yaml.safe_load(code)  # every JSON document is a YAML document
        except yaml.YAMLError as error:
            pytest.fail(f"{page}: {error}")


def test_python_blocks_are_python():
    for page, code in blocks("python"):
        if not re.search(r"^(module|rule|use rule|configfile)\b", code, re.MULTILINE):
            compile(code, page, "exec")


@pytest.mark.parametrize(("page", "words"), sorted(set(commands())), ids=lambda value: str(value)[:60])
def test_every_shown_option_of_the_command_line_exists(page, words, capsys):
    before_options = list(itertools.takewhile(lambda word: not word.startswith("-"), words[1:]))
    statuses = []
    for depth in range(1, len(before_options) + 1):
        with pytest.raises(SystemExit) as stopped:
            main.main([*before_options[:depth], "--help"])
        statuses.append(stopped.value.code)
    assert statuses[0] == 0, f"{page}: tileseer {words[1]}"
    known = set(re.findall(r"--[a-z][a-z0-9-]*", capsys.readouterr().out))
    if words[1] == "run":  # passes Snakemake's own options on
        known |= set(re.findall(r"--[a-z][a-z0-9-]*", get_argument_parser().format_help()))
    assert {word.split("=")[0] for word in words if word.startswith("--")} <= known, page


def test_the_tile_of_the_tutorial_fits_the_rule_set():
    row = re.search(r"^ *- (\{tile: .*\})$", (ROOT / "docs/tutorial.md").read_text(), re.MULTILINE)
    rules = yaml.safe_load((ROOT / "config/rule_sets/sweep.yaml").read_text())
    tile = yaml.safe_load(row[1])
    assert tile not in rules["tiles"]
    validate_table(rules | {"tiles": [*rules["tiles"], tile]}, CkTileSweep, "the tutorial")


def test_the_navigation_has_every_page_once_and_no_word_twice():
    def entries(nav):
        for entry in nav:
            ((word, below),) = entry.items()
            yield (word, below) if isinstance(below, str) else (word, None)
            if not isinstance(below, str):
                yield from entries(below)

    words, pages = zip(*entries(yaml.load((ROOT / "mkdocs.yml").read_text(), yaml.SafeLoader)["nav"]), strict=True)
    assert len(set(words)) == len(words)
    shown = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    assert sorted(filter(None, pages)) == shown
