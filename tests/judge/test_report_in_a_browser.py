"""The report in a real browser: nothing is loaded, nothing overflows, everybody can read it.

Needs Chromium (Debian: ``apt-get install chromium``) or the program that ``CHROMIUM`` names. Where there is none the
tests are skipped, but in CI, where ``CI`` is set, they fail.
"""

import os
import shutil

import pytest
import test_report as samples
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage")
LEAST_PICTURE = 320
"""Pixels: of less nobody can read its texts."""

pytestmark = pytest.mark.skipif(
    CHROMIUM is None and "CI" not in os.environ,
    reason="no browser: install chromium, or let CHROMIUM name the program",
)


@pytest.fixture(scope="module")
def browser():
    assert CHROMIUM is not None, "CI has no chromium: .ci/run installs it"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(samples.render(samples.sample()), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize(("width", "scheme"), [(420, "dark"), (1280, "light"), (2200, "dark")])
def test_it_fits_and_everybody_can_read_it(browser, report, width, scheme):
    """Nothing is wider than the page, pictures are readable, contents stay in sight, and axe finds nothing serious."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, said, asked = context.new_page(), [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report)
    first = page.evaluate("document.elementFromPoint(innerWidth / 2, 300).closest('section').id")
    assert first == "verdict", "the first screen decides"
    page.locator("details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    widths = page.locator(".panel").evaluate_all("all => all.map((one) => one.getBoundingClientRect().width)")
    assert len(widths) == 8 and min(widths) >= LEAST_PICTURE and max(widths) <= min(width, 640)
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    assert page.get_by_role("navigation").bounding_box()["y"] == pytest.approx(0, abs=1)
    found = Axe().run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    assert said == [] and asked == [report]
    context.close()


def test_head_and_first_column_of_a_table_stay_in_sight(browser, report):
    page = browser.new_page(viewport={"width": 420, "height": 900})
    page.goto(report)
    box = page.get_by_role("region", name="What would improve the models")
    box.evaluate("box => box.scrollTo(300, 200)")
    at = box.bounding_box()
    row, head = box.locator("tbody tr").last.locator("th"), box.locator("thead th").nth(1)
    expect(row).to_be_visible()
    assert row.bounding_box()["x"] == pytest.approx(at["x"], abs=1)
    assert head.bounding_box()["y"] >= at["y"] - 1
    page.close()
