"""The report in a real browser: charts answer, the table is searched and saved, nothing is loaded, nothing overflows.

Needs Chromium (Debian: ``apt-get install chromium``) or the program that ``CHROMIUM`` names. Where there is none the
tests are skipped, but in CI, where ``CI`` is set, they fail.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import shutil
from pathlib import Path

import pytest
import test_report as samples
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect, sync_playwright

from tileseer.report import page

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage")
TIMEOUT_MS = 120_000
DESK = {"width": 1200, "height": 900}
FITS = 1280
"""Pixels from which no table is wider than the page."""
LEAST_PANEL, MOST_PANEL = 320, 640
"""Pixels of a chart: of less nobody can read its texts, of more they are posters."""

pytestmark = pytest.mark.skipif(
    CHROMIUM is None and "CI" not in os.environ,
    reason="no browser: install chromium, or let CHROMIUM name the program",
)


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    path = folder / "report.html"
    path.write_text(page.render_page(samples.sample(), samples.TEMPLATE, samples.CALL), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser():
    assert CHROMIUM is not None, "CI has no chromium: .ci/run installs it"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield launched
        launched.close()


class Opened:
    """A page with what it said on the console and asked the network for."""

    def __init__(self, browser, path: Path, **context) -> None:
        self.context = browser.new_context(**{"viewport": DESK, **context})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(TIMEOUT_MS)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def unfold(self) -> None:
        """Open everything that is folded."""
        self.page.locator("details").evaluate_all("all => all.forEach((one) => { one.open = true; })")

    def draw_all(self) -> int:
        """Scroll to every chart, wait until all are drawn, and return how many."""
        self.unfold()
        panels = self.page.locator(".panel")
        for i in range(panels.count()):
            panels.nth(i).scroll_into_view_if_needed()
        # A locator, no function of the page: the policy under test forbids to evaluate text.
        expect(self.page.locator(".panel:not([data-drawn])")).to_have_count(0, timeout=TIMEOUT_MS)
        return panels.count()


@pytest.fixture
def open_report(browser, report):
    opened = []

    def opens(**context) -> Opened:
        opened.append(Opened(browser, report, **context))
        return opened[-1]

    yield opens
    for one in opened:
        one.context.close()


def test_every_chart_is_drawn_and_nothing_complains(open_report):
    opened = open_report()
    count = opened.draw_all()
    assert count == opened.page.locator("script.spec").count() == 6
    marks = ", ".join(f".mark-{kind}" for kind in ("symbol path", "rect path", "line path", "rule line", "text text"))
    empty = f"[...document.querySelectorAll('.panel svg')].filter(s => !s.querySelector({json.dumps(marks)})).length"
    assert opened.page.evaluate(empty) == 0
    assert opened.page.locator(".panel svg.marks").count() == count
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []


def test_a_chart_says_the_numbers_of_what_one_points_at(open_report):
    opened = open_report()
    opened.draw_all()
    cell = opened.page.locator("#kernels .panel .mark-rect path").first
    cell.scroll_into_view_if_needed()
    cell.hover(force=True)
    tooltip = opened.page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    assert "wins most" in tooltip.inner_text() and "kernel that wins most" in tooltip.inner_text()


def test_the_wheel_zooms_with_shift_only(open_report):
    opened = open_report()
    opened.draw_all()
    panel = opened.page.locator("#kernels .panel").nth(1)
    panel.scroll_into_view_if_needed()
    before = panel.text_content()
    box = panel.bounding_box()
    opened.page.mouse.move(box["x"] + 200, box["y"] + 120)
    opened.page.mouse.wheel(0, -1)
    assert panel.text_content() == before
    opened.page.keyboard.down("Shift")
    opened.page.mouse.wheel(0, -400)
    opened.page.keyboard.up("Shift")
    expect(panel).not_to_have_text(before, timeout=TIMEOUT_MS)


def test_the_table_is_searched_filtered_sorted_and_saved(open_report, tmp_path):
    opened = open_report(accept_downloads=True)
    opened.unfold()
    section = opened.page.locator("#layers")
    rows = section.locator("tbody tr:visible")
    every = rows.count()
    assert every > 0
    section.get_by_label("Operation").select_option("forward_bf16")
    forward = rows.count()
    assert 0 < forward < every
    assert set(section.locator("tbody tr:visible td:nth-child(2)").all_inner_texts()) == {"forward_bf16"}
    assert section.locator("output").inner_text() == f"{forward} of {every} layers"
    section.get_by_label("Search").fill("layer7 net1")
    assert 0 < rows.count() < forward
    section.get_by_label("Search").fill("")

    head = section.get_by_role("button", name="TFLOPS")
    table = section.locator("table")
    table.evaluate(
        "t => t.addEventListener('sort-end', () => { t.dataset.is = t.querySelector('[aria-sort]').ariaSort; })"
    )
    head.focus()
    for order in ("descending", "ascending"):
        opened.page.keyboard.press("Enter")
        expect(table).to_have_attribute("data-is", order)
    expect(section.locator("th[aria-sort]")).to_have_text("TFLOPS")
    cells = section.locator("tbody tr:visible td:nth-child(9)").all_inner_texts()
    speeds = [float(text.replace(",", "")) for text in cells]
    assert speeds == sorted(speeds)
    opened.page.keyboard.press("Enter")
    expect(table).to_have_attribute("data-is", "descending")

    # What a spreadsheet would compute.
    section.locator("tbody tr:visible td:nth-child(4)").last.evaluate("cell => { cell.textContent = '=1+1'; }")
    with opened.page.expect_download() as download:
        section.get_by_role("button", name="Download as CSV").click()
    download.value.save_as(tmp_path / "best.csv")
    assert download.value.suggested_filename == "best-gfx950-simulated.csv"
    with (tmp_path / "best.csv").open(newline="", encoding="utf-8") as stream:
        saved = list(csv.DictReader(stream))
    assert len(saved) == forward
    assert "'=1+1" in saved[-1].values() and not any(
        str(cell).startswith("=") for row in saved for cell in row.values()
    )
    assert {row["device kind"] for row in saved} == {"simulated"} and {row["arch"] for row in saved} == {"gfx950"}
    assert any(samples.HOSTILE in row["layer"] for row in saved)
    assert [float(row["TFLOPS"]) for row in saved] == sorted((float(row["TFLOPS"]) for row in saved), reverse=True)
    assert opened.complaints == []


@pytest.mark.parametrize(("width", "scheme"), [(420, "dark"), (1400, "light"), (1280, "dark"), (2200, "light")])
def test_it_fits_and_everybody_can_read_it(open_report, width, scheme):
    """Nothing is wider than the page, charts are readable, contents stay in sight, and axe finds nothing serious."""
    opened = open_report(viewport={"width": width, "height": 900}, color_scheme=scheme)
    opened.draw_all()
    assert opened.page.evaluate("document.documentElement.scrollWidth") == width
    wider = (
        "[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.ariaLabel)"
    )
    assert width < FITS or opened.page.evaluate(wider) == []
    panels = opened.page.locator(".panel").evaluate_all("all => all.map((one) => one.getBoundingClientRect().width)")
    assert min(panels) >= LEAST_PANEL and max(panels) <= min(width, MOST_PANEL)
    opened.page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    assert opened.page.get_by_role("navigation").bounding_box()["y"] == pytest.approx(0, abs=1)
    found = Axe().run(opened.page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    assert opened.complaints == []


@pytest.mark.parametrize(("width", "columns"), [(1400, 2), (420, 1)])
def test_a_desk_has_two_columns_and_a_phone_one(open_report, width, columns):
    opened = open_report(viewport={"width": width, "height": 1000})
    opened.unfold()
    grids = opened.page.locator(".grid").evaluate_all(
        "all => all.map((one) => getComputedStyle(one).gridTemplateColumns.split(' ').length)"
    )
    assert set(grids) == {columns}


VISIBLE = """() => {
    const seen = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const range = document.createRange();
        range.selectNodeContents(walker.currentNode);
        const box = range.getBoundingClientRect();
        const inside = box.width && box.top >= 0 && box.bottom <= innerHeight && box.right <= innerWidth + 1;
        if (inside && walker.currentNode.parentElement.checkVisibility()) seen.push(range.toString());
    }
    return seen.join("\\n");
}"""
"""Texts that lie wholly in the window."""


@pytest.mark.parametrize(("width", "count"), [(1400, 3), (420, 3), (1400, 9), (420, 9)])
def test_the_first_screen_decides(browser, tmp_path, width, count):
    """Of nine operations, as MIOpen has them, too."""
    shown = samples.sample()
    names = (
        samples.OPERATIONS
        if count == 3
        else [f"{one}_{t}" for one in ("forward", "bwd_data", "bwd_weight") for t in ("bf16", "fp16", "fp32")]
    )
    operations = [
        dataclasses.replace(one, evaluation=one.evaluation.model_copy(update={"operation": name}))
        for name, one in zip(names, shown.operations * 3, strict=False)
    ]
    path = tmp_path / "report.html"
    path.write_text(
        page.render_page(dataclasses.replace(shown, operations=tuple(operations)), samples.TEMPLATE, samples.CALL)
    )
    opened = Opened(browser, path, viewport={"width": width, "height": 900})
    seen = opened.page.evaluate(VISIBLE)
    opened.context.close()
    assert all(name in seen for name in names)
    for text in ("as good as the simulation can tell", "1.062", f"{samples.HOSTILE} 91.8 %"):
        assert seen.count(text) >= count, text
    step = ("measure your GPU", "tileseer run results/models/gfx950 --configfile config/hip.yaml")
    for text in ("operations are good enough", "Simulated: a formula", *step):
        assert text in seen, text


def test_a_link_to_a_folded_section_opens_it(open_report):
    opened = open_report()
    opened.page.get_by_role("link", name="Layers").click()
    expect(opened.page.locator("#layers table")).to_be_visible()


def test_head_and_first_column_of_a_table_stay_in_sight(open_report):
    opened = open_report(viewport={"width": 600, "height": 900})
    opened.unfold()
    box = opened.page.locator("#layers .scroll")
    box.evaluate("box => box.scrollTo(300, 200)")
    at = box.bounding_box()
    row = box.locator("tbody tr").last.locator("th").bounding_box()
    head = box.locator("thead th").nth(1).bounding_box()
    assert row["x"] == pytest.approx(at["x"], abs=1) and head["y"] == pytest.approx(at["y"], abs=1)


def test_names_and_commands_are_copied(open_report):
    opened = open_report(permissions=["clipboard-read", "clipboard-write"])
    opened.unfold()
    for section, beginning in (
        ("#verdict", "tileseer run "),
        ("#ship", "grouped_conv_"),
    ):
        button = opened.page.locator(f"{section} button.copy:visible").first
        wanted = button.get_attribute("data-text")
        button.click()
        expect(button).to_have_text("Copied")
        assert opened.page.evaluate("navigator.clipboard.readText()") == wanted and wanted.startswith(beginning)


def test_without_scripts_the_drawings_and_the_whole_table_are_there(open_report):
    opened = open_report(java_script_enabled=False)
    assert opened.page.locator(".panel svg").count() == opened.page.locator(".panel").count() == 6
    assert opened.page.locator("#layers tbody tr").count() > 0
    assert not opened.page.locator("form.controls").is_visible()


def test_the_table_is_reached_by_keyboard(open_report):
    opened = open_report()
    opened.unfold()
    reached = set()
    opened.page.get_by_label("Search").focus()
    for _ in range(6):
        reached.add(opened.page.evaluate("document.activeElement.name || document.activeElement.getAttribute('role')"))
        opened.page.keyboard.press("Tab")
    assert {"search", "filter", "save", "region"} <= reached


def test_the_specs_hold_no_text_that_ends_their_element(report):
    assert json.dumps(samples.HOSTILE)[1:-1] not in report.read_text(encoding="utf-8")
