#!/usr/bin/env python3
"""Make what a dispatcher runs of a trained model: small model, C++ header, known problems and kernel list."""

from __future__ import annotations

import argparse
from pathlib import Path

from tileseer.client.selection import load_booster, read_hardware
from tileseer.conv import layers
from tileseer.core import parquet
from tileseer.core.errors import UserError, reports_user_errors
from tileseer.dataset import schema
from tileseer.gpu.coefficients import load_coefficients
from tileseer.model import model_files
from tileseer.serving import artefacts
from tileseer.settings.serving import ServingSettings


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
    spec = model_files.read_json(args.training / model_files.SPEC)
    for field in ("operation", "arch", "device", "device_kind"):
        if spec[field] != getattr(measurements, field):
            raise UserError(
                f"{args.training / model_files.SPEC}: {field} is {spec[field]!r}, but {args.dataset} has "
                f"{getattr(measurements, field)!r}; give the dataset that the model belongs to"
            )
    served = artefacts.build(
        measurements,
        load_booster(args.training / model_files.MODEL, spec),
        spec,
        parquet.read(args.training / model_files.CANDIDATES).to_pandas(),
        parquet.read(args.training / model_files.OUT_OF_FOLD).to_pandas(),
        read_hardware(args.training / model_files.HARDWARE, measurements.arch),
        args.template,
        args.api,
        load_coefficients(args.coefficients),
        ServingSettings.from_json(args.settings),
        args.threads,
        layers.families(layers.read(args.layers)) if args.layers else {},
    )
    artefacts.write(args.output, served)
    validation, kernels = served.figures["validation"], served.kernels
    print(
        f"{measurements.arch} {measurements.operation} ({measurements.device_kind}): the served model loses "
        f"{validation['loss_of_mean']['served_model']} points of mean efficiency on {validation['n_problems']} unseen "
        f"problems; {kernels['pruned_size']} of {kernels['pool_size']} kernels are enough for 1 %"
    )


if __name__ == "__main__":
    raise SystemExit(main())
