#!/usr/bin/env python3
"""Make what a dispatcher runs of a trained model: small model, C++ header, known problems and kernel list."""

from __future__ import annotations

import argparse
from pathlib import Path

from tileseer.conv import layers
from tileseer.core import parquet
from tileseer.core.errors import reports_user_errors
from tileseer.dataset import schema
from tileseer.families.coefficients import load_coefficients
from tileseer.model import model_files
from tileseer.model.model import Model
from tileseer.serving import artefacts
from tileseer.settings.model import ServingSettings


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read a dataset and a training folder, write the serving folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True, type=Path)
    parser.add_argument("--training", required=True, type=Path, help="folder written by model.py")
    parser.add_argument("--template", required=True, type=Path, help="template of the C++ header")
    parser.add_argument("--api", required=True, type=Path, help="table of CK Tile names, for the registry keys")
    parser.add_argument("--coefficients", required=True, type=Path, help="coefficients of the resource estimates")
    parser.add_argument("--layers", type=Path, help="table of layers that says the families of networks")
    parser.add_argument("--settings", default="{}", help="section serving of config.yaml as JSON")
    parser.add_argument("--threads", type=int, default=1, help="the results do not depend on it")
    parser.add_argument("--output", required=True, type=Path, help=f"folder for {', '.join(model_files.SERVING_FILES)}")
    args = parser.parse_args(argv)

    measurements = schema.load(args.dataset)
    served = artefacts.build(
        measurements,
        Model.read_for(args.training, measurements, args.dataset),
        parquet.read(args.training / model_files.OUT_OF_FOLD).to_pandas(),
        args.template,
        args.api,
        load_coefficients(args.coefficients),
        ServingSettings.from_json(args.settings).parameters,
        args.threads,
        layers.families(layers.read(args.layers)) if args.layers else {},
    )
    served.save(args.output)
    cost, kernels = served.figures.validation, served.kernels
    print(
        f"{measurements.arch} {measurements.operation} ({measurements.device_kind}): the served model loses "
        f"{cost.loss_of_mean.served_model} points of mean efficiency on {cost.n_problems} unseen problems; "
        f"{kernels.pruned_size} of {kernels.pool_size} kernels are enough for 1 %"
    )


if __name__ == "__main__":
    raise SystemExit(main())
