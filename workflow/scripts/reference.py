#!/usr/bin/env python3
"""Train the reference's model of one operation on the rows that ours learns from: a baseline for validation."""

from __future__ import annotations

import argparse
from pathlib import Path

from tileseer.baseline import reference_trainer
from tileseer.core.atomic import write_text
from tileseer.core.errors import reports_user_errors
from tileseer.dataset import schema
from tileseer.gpu import hardware
from tileseer.model import model_files
from tileseer.settings.model import ModelSettings


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read a dataset, write a model and its spec."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True, type=Path)
    parser.add_argument("--hardware", required=True, type=Path, help="table of GPU products")
    parser.add_argument("--product", required=True, help="product of that table that the times belong to")
    parser.add_argument("--settings", default="{}", help="section model of config.yaml as JSON")
    parser.add_argument("--trees", type=int, default=reference_trainer.TREES, help="the reference has %(default)s")
    parser.add_argument("--threads", type=int, default=1, help="the model does not depend on it")
    parser.add_argument(
        "--output", required=True, type=Path, help=f"folder for {model_files.MODEL} and {model_files.SPEC}"
    )
    args = parser.parse_args(argv)

    measurements = schema.load(args.dataset)
    product = hardware.get(args.hardware, args.product)
    settings = ModelSettings.from_json(args.settings).parameters
    model, spec = reference_trainer.train(measurements, product, settings, args.threads, args.trees)
    write_text(args.output / model_files.MODEL, model)
    write_text(args.output / model_files.SPEC, model_files.json_text(spec))
    print(
        f"{measurements.arch} {measurements.operation} ({measurements.device_kind}): the reference's trainer on "
        f"{spec['training_rows']} rows, {spec['trees']} trees"
    )


if __name__ == "__main__":
    raise SystemExit(main())
