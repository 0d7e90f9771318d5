#!/usr/bin/env python3
"""Train the ranking model of one operation on the training split of its dataset."""

from __future__ import annotations

import argparse
from pathlib import Path

from tileseer.core.errors import reports_user_errors
from tileseer.dataset import schema
from tileseer.families.registry import FAMILIES, of_arch
from tileseer.gpu import hardware
from tileseer.model import features, model_files, trainer
from tileseer.settings.model import ModelSettings


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read a dataset, write the model and everything that is published with it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True, type=Path)
    parser.add_argument("--hardware", required=True, type=Path, help="table of GPU products")
    parser.add_argument("--product", required=True, help="product of that table that the times belong to")
    parser.add_argument("--settings", default="{}", help="section model of config.yaml as JSON")
    parser.add_argument("--threads", type=int, default=1, help="the model does not depend on it")
    parser.add_argument(
        "--output", required=True, type=Path, help=f"folder for {', '.join(model_files.TRAINING_FILES)}"
    )
    args = parser.parse_args(argv)

    measurements = schema.load(args.dataset)
    product = hardware.get(args.hardware, args.product)
    settings = ModelSettings.from_json(args.settings).parameters
    if settings.features == FAMILIES[0].features:
        settings = settings.model_copy(update={"features": of_arch(measurements.arch).features})
    if settings.prior is None:
        # A correction of a prior has the features of the prior.
        settings = settings.model_copy(
            update={"features": features.fitting(settings.features, measurements.candidates)}
        )
    trained = trainer.train(measurements, product, settings, args.threads)
    trained.save(args.output)
    manifest, summary = trained.manifest, trained.manifest.out_of_fold_efficiency
    print(
        f"{measurements.arch} {measurements.operation} ({measurements.device_kind}): "
        f"{manifest.training_rows} rows of {manifest.unique_problems} problems, "
        f"out-of-fold efficiency mean {summary.mean} %, p10 {summary.p10} %"
    )


if __name__ == "__main__":
    raise SystemExit(main())
