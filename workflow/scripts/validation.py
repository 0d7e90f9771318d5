#!/usr/bin/env python3
"""Score a trained model on the validation split of its dataset: problems that it has never seen."""

from __future__ import annotations

import argparse
from pathlib import Path

from tilewright import dataset, evaluate, parquet, publish
from tilewright.atomic import write_text
from tilewright.errors import UserError, reports_user_errors
from tilewright.hardware import Hardware
from tilewright.selection import load_booster
from tilewright.tables import checked


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read a dataset and a training folder, write the validation report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True, type=Path)
    parser.add_argument("--training", required=True, type=Path, help="folder written by model.py")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args(argv)

    measurements = dataset.load(args.dataset)
    spec = publish.read_json(args.training / publish.SPEC)
    for field in ("operation", "arch", "device", "device_kind"):
        if spec[field] != getattr(measurements, field):
            raise UserError(
                f"{args.training / publish.SPEC}: {field} is {spec[field]!r}, but {args.dataset} has "
                f"{getattr(measurements, field)!r}; give the dataset that the model belongs to"
            )
    path = args.training / publish.HARDWARE
    hardware = checked(publish.read_json(path), Hardware, str(path))
    booster = load_booster(args.training / publish.MODEL, spec)
    pool = parquet.read(args.training / publish.CANDIDATES).to_pandas()
    scores, offered = evaluate.rank_pool(measurements, booster, spec, pool, hardware, args.threads)
    report = evaluate.evaluate(measurements, scores, offered, hardware)
    write_text(args.output, publish.json_text(report))
    summary = report["efficiency"]
    print(
        f"{report['arch']} {report['operation']} ({report['device_kind']}): {report['n_problems']} unseen problems, "
        f"efficiency mean {summary['mean']} %, median {summary['median']} %, p10 {summary['p10']} %, "
        f"min {summary['min']} %, top-1 {report['top1']} %"
    )


if __name__ == "__main__":
    raise SystemExit(main())
