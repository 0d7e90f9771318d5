#!/usr/bin/env python3
"""Show what training and validation of one arch gave, as one HTML page that needs no network."""

from __future__ import annotations

import argparse
from pathlib import Path

from tileseer.core.atomic import write_text
from tileseer.core.errors import reports_user_errors
from tileseer.report import page, results


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read validation reports, training folders and datasets, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--validation", required=True, nargs="+", type=Path, help="reports of validation.py, any order")
    parser.add_argument("--training", required=True, nargs="+", type=Path, help="folders of model.py, any order")
    parser.add_argument("--dataset", nargs="*", default=[], type=Path, help="datasets, for what they show; any order")
    parser.add_argument("--recording", type=Path, help="folder of the recording that was replayed, for cuDNN's times")
    parser.add_argument(
        "--template", required=True, type=Path, help="Jinja2 template of the page; its script lies beside"
    )
    parser.add_argument("--output", required=True, type=Path, help="HTML file to write")
    args = parser.parse_args(argv)

    shown = results.load(args.validation, args.training, args.dataset, args.recording)
    write_text(args.output, page.render(shown, args.template))
    print(f"{shown.arch} ({shown.device_kind}): {args.output} shows {len(shown.operations)} operations")


if __name__ == "__main__":
    raise SystemExit(main())
