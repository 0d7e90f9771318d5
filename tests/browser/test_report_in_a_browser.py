"""The report in a real browser: charts answer, the table is searched and saved, nothing is loaded, nothing overflows.

Needs Chromium (Debian: ``apt-get install chromium``) or the program that ``CHROMIUM`` names. Where there is none the
tests are skipped, but in CI, where ``CI`` is set, they fail.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
import test_report as samples
from playwright.sync_api import Page, expect, sync_playwright

from tileseer.report import page, results

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage")
TIMEOUT_MS = 120_000
DESK, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 844}
LEAST_CONTRAST = 4.5
"""WCAG 2 AA for text of usual size."""

pytestmark = pytest.mark.skipif(
    CHROMIUM is None and "CI" not in os.environ,
    reason="no browser: install chromium, or let CHROMIUM name the program",
)


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    shown = samples.with_measurements(results.load(*samples.write_stages(folder)))
    path = folder / "report.html"
    path.write_text(page.render(shown, samples.TEMPLATE), encoding="utf-8")
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

    def draw_all(self) -> int:
        """Scroll to every chart, wait until all are drawn, and return how many."""
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_drawn_and_nothing_complains(open_report, scheme):
    opened = open_report(color_scheme=scheme)
    count = opened.draw_all()
    assert count == opened.page.locator("script.spec").count() > 20
    marks = ", ".join(f".mark-{kind}" for kind in ("symbol path", "rect path", "line path", "rule line", "text text"))
    empty = f"[...document.querySelectorAll('.panel svg')].filter(s => !s.querySelector({json.dumps(marks)})).length"
    assert opened.page.evaluate(empty) == 0
    assert opened.page.locator(".panel svg.marks").count() == count
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []


def test_a_chart_says_the_numbers_of_what_one_points_at(open_report):
    opened = open_report()
    opened.draw_all()
    cell = opened.page.locator("#wins .panel .mark-rect path").first
    cell.scroll_into_view_if_needed()
    cell.hover(force=True)
    tooltip = opened.page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    assert "wins most" in tooltip.inner_text() and "tile most often" in tooltip.inner_text()


def test_the_wheel_zooms_with_shift_only(open_report):
    opened = open_report()
    opened.draw_all()
    panel = opened.page.locator("#roofline .panel").first
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
    section = opened.page.locator("#best")
    rows = section.locator("tbody tr:visible")
    every = rows.count()
    assert every > 0
    section.get_by_label("Operation").select_option("forward_bf16")
    forward = rows.count()
    assert 0 < forward < every
    assert set(section.locator("tbody tr:visible td:nth-child(2)").all_inner_texts()) == {"forward_bf16"}
    assert section.locator("output").inner_text() == f"{forward} of {every} shapes"
    section.get_by_label("Search").fill("layer7 net1")
    assert 0 < rows.count() < forward
    section.get_by_label("Search").fill("")

    head = section.get_by_role("button", name="TFLOPS")
    head.focus()
    opened.page.keyboard.press("Enter")
    assert section.locator("th[aria-sort=ascending]").inner_text().startswith("TFLOPS")
    cells = section.locator("tbody tr:visible td:nth-child(6)").all_inner_texts()
    speeds = [float(text.replace(",", "")) for text in cells]
    assert speeds == sorted(speeds)
    opened.page.keyboard.press("Enter")
    assert section.locator("th[aria-sort=descending]").count() == 1

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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_down_only(open_report, scheme):
    opened = open_report(viewport=PHONE, color_scheme=scheme, is_mobile=True, has_touch=True)
    opened.draw_all()
    assert opened.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert opened.complaints == []


def test_without_scripts_the_drawings_and_the_whole_table_are_there(open_report):
    opened = open_report(java_script_enabled=False)
    assert opened.page.locator(".panel svg").count() == opened.page.locator(".panel").count() > 20
    assert opened.page.locator("#best tbody tr").count() > 0
    assert not opened.page.locator("form.controls").is_visible()


CONTRASTS = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const kinds = "h1,h2,p,td,th,a,li,button,select,input,summary,strong,caption,output,label";
  const texts = [...document.querySelectorAll(kinds)];
  const found = texts.filter((one) => one.checkVisibility() && (one.textContent || one.value)).map((one) => {
    const [a, b] = [light(rgb(getComputedStyle(one).color)), light(behind(one))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one.outerHTML.slice(0, 80)];
  });
  return found.sort((a, b) => a[0] - b[0])[0];
}"""
NAMELESS = """() => [...document.querySelectorAll("button,input,select,a,[tabindex],[role=img],[role=region]")]
  .filter((one) => !(one.getAttribute("aria-label") || one.labels?.length || one.textContent.trim()))
  .map((one) => one.outerHTML.slice(0, 80))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_and_everything_one_reaches_has_a_name(open_report, scheme):
    opened = open_report(color_scheme=scheme)
    opened.draw_all()
    contrast, where = opened.page.evaluate(CONTRASTS)
    assert contrast >= LEAST_CONTRAST, where
    assert opened.page.evaluate(NAMELESS) == []
    levels = opened.page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => h.tagName).join()")
    assert levels.startswith("H1,H2") and levels.count("H1") == 1


def test_the_table_is_reached_by_keyboard(open_report):
    opened = open_report()
    reached = set()
    opened.page.get_by_label("Search").focus()
    for _ in range(6):
        reached.add(opened.page.evaluate("document.activeElement.name || document.activeElement.getAttribute('role')"))
        opened.page.keyboard.press("Tab")
    assert {"search", "filter", "save", "region"} <= reached


def test_the_specs_hold_no_text_that_ends_their_element(report):
    assert json.dumps(samples.HOSTILE)[1:-1] not in report.read_text(encoding="utf-8")
