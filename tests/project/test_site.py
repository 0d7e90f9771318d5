"""The documentation as a site, and the code blocks of its pages."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import expect, sync_playwright
from snakemake.cli import get_argument_parser

from tileseer.cli import main
from tileseer.core.tables import validate_table
from tileseer.libraries.ck_tile.sweep import CkTileSweep
from tileseer.problems.problem import DIMS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
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


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {"PYTHONPATH": "src", "NO_MKDOCS_2_WARNING": "1"}
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return folder


def test_the_site_has_every_page_every_module_and_every_command(site):
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / name).is_file() or (site / name.with_name("index.html")).is_file(), page
    assert "tileseer.libraries.ck_tile.kernel.KernelConfig" in (site / "reference/tileseer.libraries.html").read_text()
    command_line = (site / "reference/command-line.html").read_text()
    assert all(f"tileseer {name}" in command_line for name in main.COMMANDS)


def test_the_site_needs_no_network(site):
    for page in site.rglob("*.html"):
        loaded = LOADED.findall(page.read_text())
        assert not [address for address in loaded if re.match(r"(https?:)?//", address)], page


def test_the_site_is_small(site):
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 15e6


@pytest.mark.skipif(CHROMIUM is None and "CI" not in os.environ, reason="no browser: install chromium")
def test_a_page_from_a_file_is_searched_and_fits_a_phone(site):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.goto((site / "index.html").as_uri())
        page.click("input.md-search__input")
        page.keyboard.type("noise floor")
        expect(page.locator(".md-search-result__item").first).to_be_visible(timeout=60_000)
        assert "learning.html" in page.locator(".md-search-result__link").first.get_attribute("href")
        page.set_viewport_size({"width": 390, "height": 844})
        for name in ("index.html", "internals/results.html", "generated/configuration.html"):
            page.goto((site / name).as_uri())
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        browser.close()


def test_pages_outside_docs_are_part_of_the_site(site):
    assert "Networks" in (site / "files/config/problems/networks.md.txt").read_text().title()
    assert "files/config/problems/networks.md.txt" in (site / "CONTRIBUTING.html").read_text()


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
    # A dimension is an option that the help names below the others.
    known = set(re.findall(r"--[a-z][a-z0-9-]*", capsys.readouterr().out)) | {f"--{name}" for name in DIMS}
    if words[1] == "run":  # passes Snakemake's own options on
        known |= set(re.findall(r"--[a-z][a-z0-9-]*", get_argument_parser().format_help()))
    assert {word.split("=")[0] for word in words if word.startswith("--")} <= known, page


def test_the_tile_of_the_tutorial_fits_the_rule_set():
    row = re.search(r"^ *- (\{tile: .*\})$", (ROOT / "docs/tutorial.md").read_text(), re.MULTILINE)
    rules = yaml.safe_load((ROOT / "config/rule_sets/sweep.yaml").read_text())
    tile = yaml.safe_load(row[1])
    assert tile not in rules["tiles"]
    validate_table(rules | {"tiles": [*rules["tiles"], tile]}, CkTileSweep, "the tutorial")
