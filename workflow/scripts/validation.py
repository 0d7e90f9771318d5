#!/usr/bin/env python3
"""Score a trained model on the validation split of its dataset: problems that it has never seen."""

from __future__ import annotations

import argparse
from pathlib import Path

from tileseer.core import documents
from tileseer.core.errors import reports_user_errors
from tileseer.settings.model import ValidationSettings
from tileseer.validation import stage


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

    settings = ValidationSettings.from_json(args.settings)
    report = stage.report(
        args.dataset, args.training, args.coefficients, args.uses, args.reference, args.chosen, args.layers,
        args.threads, settings,
    )  # fmt: skip
    documents.write(args.output, report)
    print(stage.summary(report))


if __name__ == "__main__":
    raise SystemExit(main())
