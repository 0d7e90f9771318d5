"""Take the pictures of reports that the documentation shows."""

import argparse
import os
import shutil
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tileseer.core.errors import UserError, reports_user_errors

ROOT = Path(__file__).parents[1]
PICTURES = (("docs/verdict.png", "results/reports/gfx950_mi355x.html", ("#verdict", "#ship"), True),)
"""The file, its report, from the first to the last thing that it shows, and whether scripts of the page run.

Without scripts the charts are the same drawings, and there is nothing to wait for.
"""
WIDTH = 1280


@reports_user_errors
def main() -> None:
    """Open the reports in Chromium and write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pictures", nargs="*", help="for example docs/verdict.png (default: all)")
    args = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        raise UserError("there is no browser: apt-get install chromium, or let CHROMIUM name the program")
    known = [picture for picture, *_ in PICTURES]
    for name in args.pictures:
        if name not in known:
            raise UserError(f"{name}: is no picture of a report; use one of {', '.join(known)}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for picture, report, shown, scripts in PICTURES:
            if picture in (args.pictures or known):
                _take(browser, ROOT / picture, ROOT / report, shown, scripts)
        browser.close()


def _take(browser: Browser, picture: Path, report: Path, shown: tuple[str, ...], scripts: bool) -> None:
    if not report.exists():
        raise UserError(f"{report}: there is no such report; run tileseer run --arch {report.stem}")
    context = browser.new_context(
        viewport={"width": WIDTH, "height": 900}, color_scheme="light", java_script_enabled=scripts
    )
    page = context.new_page()
    page.goto(report.as_uri())
    page.locator("details.part").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    found = [page.locator(selector) for selector in shown]
    boxes = [box for place in found if place.count() and (box := place.first.bounding_box())]
    if len(boxes) < len(shown):
        raise UserError(f"{report}: does not show {' and '.join(shown)}; is it a report of this version?")
    top, bottom = boxes[0]["y"], boxes[-1]["y"] + boxes[-1]["height"]
    clip = {"x": 0, "y": top, "width": WIDTH, "height": bottom - top}
    page.screenshot(path=picture, full_page=True, clip=clip)  # type: ignore[arg-type]
    print(f"{picture}: {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    raise SystemExit(main())
