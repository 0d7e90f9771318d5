#!/usr/bin/env python3
"""Take the picture of a report that the documentation shows: the model beside choosing without one."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

from tileseer.core.errors import UserError, reports_user_errors

PICTURE = Path(__file__).parents[1] / "docs/report.png"
CHARTS = "#baselines figure"
WIDTH = 1180


@reports_user_errors
def main() -> None:
    """Open the page in Chromium and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="for example results/reports/sm_90.html")
    parser.add_argument("--output", type=Path, default=PICTURE, help="PNG to write (default: docs/report.png)")
    args = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        raise UserError("there is no browser: apt-get install chromium, or let CHROMIUM name the program")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        # Without scripts: the drawings of the page are the same and there is nothing to wait for.
        context = browser.new_context(
            viewport={"width": WIDTH, "height": 900}, color_scheme="light", java_script_enabled=False
        )
        page = context.new_page()
        page.goto(args.report.resolve().as_uri())
        section = page.locator(CHARTS)
        if not section.count():
            raise UserError(f"{args.report}: has no {CHARTS}; is it a report?")
        box = section.bounding_box()
        assert box is not None
        clip = {"x": 0, "y": box["y"], "width": WIDTH, "height": box["height"] + 8}
        page.screenshot(path=args.output, full_page=True, clip=clip)
        browser.close()
    print(f"{args.output}: {args.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    raise SystemExit(main())
