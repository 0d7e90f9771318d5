"""Figures of the documentation come from the committed evaluations and logs, and pages without them are found."""

import re

import pytest

import figure_tables
import figures

PAGES = {path.relative_to(figures.ROOT).as_posix(): path for path in figures.written_pages()}
FIGURE = re.compile(r"\b\d+\.\d+ %|\b[0-9]{1,3}\.\d+ / \d|\b0\.\d{2,}\b|\b1\.\d{2,}\b(?! s\b)")
"""An efficiency, or a ratio of times."""
DATE = re.compile(r"\b2026-\d\d-\d\d\b|\b\d{1,2} \w+ 2026\b")
PAGE = """Text.

```sh
tileseer --version
```

<!-- output of gfx950: 00000000 -->
```text
tileseer 0.0.0
```

<!-- log of gfx950: 00000000 -->
```text
model gfx950 forward_bf16: 1 row
```
"""


@pytest.fixture(scope="module")
def found():
    return figure_tables.committed()


def test_no_page_has_figures_of_other_models(found):
    assert not figures.stale(found), "build the archs (tileseer run --arch ARCH), then run make figures"


def test_every_arch_that_readme_shows_has_all_its_operations(found):
    for arch in figure_tables.CANDIDATES:
        recorded = {path.name for path in (figures.ROOT / "config/recorded" / arch).iterdir() if "_" in path.name}
        assert {one.operation for one in found.values() if one.arch == arch} == recorded


def test_a_page_of_other_figures_is_named(found, monkeypatch):
    key = "gfx950/forward_bf16"
    worse = found[key].model_copy(update={"efficiency": found[key].efficiency.model_copy(update={"mean": 12.3})})
    assert "docs/generated/shipped.md: tables" in figures.stale(found | {key: worse})
    stale = figures.stale(found | {key: worse})
    assert "README.md: output of other models of gfx950" in stale
    key = "sm_90/forward_bf16"
    worse = found[key].model_copy(update={"sum_over_best": 12.3})
    assert "README.md: tables" in figures.stale(found | {key: worse})


@pytest.mark.parametrize("page", PAGES)
def test_a_figure_in_a_sentence_is_of_a_day(page):
    """Figures of what ships are in blocks alone; a section with others says of which day its models are."""
    blocks = r"<!-- figures: .*?<!-- end of figures -->|^```.*?^```|`[^`\n]*`"
    text = re.sub(blocks, "", PAGES[page].read_text(), flags=re.DOTALL | re.MULTILINE)
    for section in re.split(r"^#+ ", text, flags=re.MULTILINE):
        assert not FIGURE.search(section) or DATE.search(section), f"{section[:60]}: {FIGURE.findall(section)}"


def test_blocks_are_outputs_of_commands_and_ends_of_logs(tmp_path, found, monkeypatch):
    log = tmp_path / "logs/gfx950/forward_bf16/model.log"
    log.parent.mkdir(parents=True)
    log.write_text("a warning\nmodel gfx950 forward_bf16: 2 rows\n")
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    refreshed = figures.with_printed(PAGE, found)
    digest = figures.digest_of("gfx950", found)
    assert "tileseer 0.0.0" not in refreshed and f"gfx950: {digest} -->\n```text\ntileseer 0." in refreshed
    assert f"<!-- log of gfx950: {digest} -->\n```text\nmodel gfx950 forward_bf16: 2 rows\n```\n" in refreshed


def test_blocks_whose_source_is_missing_stay_and_are_stale(tmp_path, found, monkeypatch):
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    page = PAGE.replace("--version", "no-such-command")
    assert figures.with_printed(page, found) == page
