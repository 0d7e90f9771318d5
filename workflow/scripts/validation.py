#!/usr/bin/env python3
"""Score a trained model on the validation split of its dataset: problems that it has never seen."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tileseer.benchmark import chosen_pairs
from tileseer.client.selection import load_booster
from tileseer.conv import layers
from tileseer.core import parquet
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError, reports_user_errors
from tileseer.core.tables import checked
from tileseer.dataset import schema
from tileseer.gpu.coefficients import load_coefficients
from tileseer.gpu.hardware import Hardware
from tileseer.model import model_files, trainer
from tileseer.settings.model import ModelSettings
from tileseer.settings.validation import ValidationSettings
from tileseer.validation import evaluation, learning_curve, leave_out, ranking


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read a dataset and a training folder, write the validation report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True, type=Path)
    parser.add_argument("--training", required=True, type=Path, help="folder written by model.py")
    parser.add_argument("--reference", type=Path, help="folder written by reference.py, to compare with")
    parser.add_argument("--chosen", type=Path, help="pairs that active measuring chose, for its learning curve")
    parser.add_argument("--layers", type=Path, help="table of layers that says the families of networks")
    parser.add_argument("--coefficients", required=True, type=Path, help="coefficients of the simulated device")
    parser.add_argument("--settings", default="{}", help="section validation of config.yaml as JSON")
    parser.add_argument("--uses", required=True, type=Path, help="which run of a network needs which problem")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args(argv)

    measurements = schema.load(args.dataset)
    spec = model_files.read_json(args.training / model_files.SPEC)
    for field in ("operation", "arch", "device", "device_kind"):
        if spec[field] != getattr(measurements, field):
            raise UserError(
                f"{args.training / model_files.SPEC}: {field} is {spec[field]!r}, but {args.dataset} has "
                f"{getattr(measurements, field)!r}; give the dataset that the model belongs to"
            )
    path = args.training / model_files.HARDWARE
    hardware = checked(model_files.read_json(path), Hardware, str(path))
    booster = load_booster(args.training / model_files.MODEL, spec)
    pool = parquet.read(args.training / model_files.CANDIDATES).to_pandas()
    scores, offered = ranking.rank_pool(measurements, booster, spec, pool, hardware, args.threads)
    reference = None
    if args.reference:
        theirs = model_files.read_json(args.reference / model_files.SPEC)
        other = load_booster(args.reference / model_files.MODEL, theirs)
        bare = pool.assign(**{trainer.OFFSET: 0.0})
        reference, _ = ranking.rank_pool(measurements, other, theirs, bare, hardware, args.threads)
    coefficients = load_coefficients(args.coefficients) if measurements.device_kind == "simulated" else None
    uses = parquet.read(args.uses).to_pandas()
    report = evaluation.evaluate(
        measurements, scores, offered, hardware, coefficients, (booster, spec), reference, uses
    )
    parts: dict[str, Any] = {}
    settings = ValidationSettings.from_json(args.settings)
    fitted = ModelSettings(**spec["params"])
    # A prior has seen measurements that are not here: leaving a network out of these would prove nothing.
    if settings.network_folds and not fitted.prior:
        families = layers.families(layers.read(args.layers)) if args.layers else {}
        parts["leave_network_out"] = leave_out.by_network(
            measurements,
            hardware,
            spec["target"],
            fitted,
            settings.network_folds,
            args.threads,
            families,
        )
    if fitted.prior:
        parts["transfer"] = learning_curve.of_prior(measurements, hardware, fitted, args.threads)
    # Few pairs of a problem were chosen, or a prior knows more than they do: a share of the problems would say little.
    elif settings.learning_shares and not args.chosen:
        parts["learning_curve"] = learning_curve.of_shares(
            measurements, settings.learning_shares, hardware, fitted, args.threads
        )
    if args.chosen:
        chosen = chosen_pairs.read(args.chosen)
        parts["active"] = learning_curve.of_rounds(measurements, chosen, hardware, fitted, args.threads)
    # The problems of all curves are the same, so their floors are.
    floors = report.baselines["best_single_kernel"].noise_floor
    for name in ("leave_network_out", "transfer", "active"):
        if name in parts:
            parts[name] = parts[name].model_copy(update={"noise_floor": floors})
    report = report.model_copy(update=parts)
    write_text(args.output, report.text(), sealed=True)
    summary = report.efficiency
    floor = "perfect_model" if report.noise_floor.perfect_model else "perfect_selector"
    print(
        f"{report.arch} {report.operation} ({report.device_kind}): {report.n_problems} unseen problems, "
        f"efficiency mean {summary.mean} %, median {summary.median} %, p10 {summary.p10} %, "
        f"min {summary.min} %, top-1 {report.top1} %; {floor} would have mean "
        f"{report.noise_floor.best.efficiency.mean} %"
    )


if __name__ == "__main__":
    raise SystemExit(main())
