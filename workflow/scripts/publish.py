#!/usr/bin/env python3
"""Publish the trained and validated models of one arch as the directory that a client loads."""

from __future__ import annotations

import argparse
from pathlib import Path

from tilewright import publish
from tilewright.errors import reports_user_errors


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read training folders and validation reports, write the model directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--training", required=True, nargs="+", type=Path, help="folders written by model.py")
    parser.add_argument("--validation", required=True, nargs="+", type=Path, help="reports of validation.py, any order")
    parser.add_argument("--serving", required=True, nargs="+", type=Path, help="folders of serving.py, any order")
    parser.add_argument("--output", required=True, type=Path, help="model directory to write")
    args = parser.parse_args(argv)

    index = publish.publish(args.training, args.validation, args.serving, args.output)
    publish.verify(args.output)
    operations = ", ".join(index["operations"])
    print(f"{index['arch']}: published {operations}; device kind: {index['device_kind']}")


if __name__ == "__main__":
    raise SystemExit(main())
