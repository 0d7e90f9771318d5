#!/usr/bin/env python3
"""Publish the trained and validated models of one arch as the directory that a client loads."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tileseer.core.errors import reports_user_errors
from tileseer.publish import index as published
from tileseer.publish import model_folder, provenance

MADE_FROM = "an operation, its dataset and other tables that its model was made from; again for each operation"


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read training folders and validation reports, write the model directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--training", required=True, nargs="+", type=Path, help="folders written by model.py")
    parser.add_argument("--validation", required=True, nargs="+", type=Path, help="reports of validation.py, any order")
    parser.add_argument("--serving", required=True, nargs="+", type=Path, help="folders of serving.py, any order")
    parser.add_argument("--output", required=True, type=Path, help="model directory to write")
    parser.add_argument(
        "--made-from", nargs="+", default=[], action="append", metavar=("OPERATION", "TABLE"), help=MADE_FROM
    )
    parser.add_argument("--arch", help="with --made-from")
    parser.add_argument("--config", default="{}", help="settings of the workflow as JSON, for the provenance")
    parser.add_argument("--compiler", default="{}", help="what compiled the kernels as JSON, for the provenance")
    parser.add_argument("--workflow", type=Path, default=Path(), help="folder of the Snakefile, to name its commit")
    parser.add_argument("--files", nargs="*", default=[], type=Path, help="what stages read, for the provenance")
    args = parser.parse_args(argv)

    made = None
    if args.made_from:
        inputs = {operation: [Path(path) for path in paths] for operation, *paths in args.made_from}
        config, compiler = json.loads(args.config), json.loads(args.compiler)
        made = provenance.collect(args.arch, config, compiler, inputs, args.workflow, args.files)
    index = model_folder.publish(args.training, args.validation, args.serving, args.output, made)
    published.verify(args.output)
    print(f"{index.arch}: published {', '.join(index.operations)}; device kind: {index.device_kind}")


if __name__ == "__main__":
    raise SystemExit(main())
