#!/usr/bin/env python3
"""What Composable Kernel's own trainer reaches on the rows that a model learnt from, judged on the same problems.

Its features, target and hyperparameters, trained on the rows of the given model. Prints the efficiency of both on the
problems that were held out, and the paired difference with its 95 % interval. It takes several times as long as ours.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from tileseer.core.errors import reports_user_errors
from tileseer.data.dataset import Dataset
from tileseer.facts.model import TrainingParameters
from tileseer.learn import efficiency, ranking, trees
from tileseer.learn.features import Features
from tileseer.learn.model import Model, spec_of
from tileseer.learn.model_schema import Summary
from tileseer.learn.rows import sampled, training_pairs

PARAMETERS: dict[str, Any] = {
    "objective": "regression",
    "num_leaves": 255,
    "max_depth": 15,
    "learning_rate": 0.02,
    "min_child_samples": 10,
    "subsample": 0.85,
    "colsample_bytree": 0.85,
    "reg_alpha": 0.05,
    "reg_lambda": 0.5,
    "seed": 42,
}
"""As the reference's train.py gives them to LightGBM; without a frequency the subsample has no effect."""


@reports_user_errors
def main() -> int:
    """Print a line for each trainer, and the difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path, help="results/datasets/ARCH/OPERATION")
    parser.add_argument("training", type=Path, help="results/training/ARCH/OPERATION")
    parser.add_argument("--trees", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    data = Dataset.read(args.dataset)
    ours = Model.read_for(args.training, data, args.dataset)
    picked = {
        "ours": ranking.rank_held_out(ours, data, args.threads).picked,
        "the reference's": ranking.rank_held_out(reference(data, ours, args.trees, args.threads), data).picked,
    }
    for name, values in picked.items():
        print(f"{name}: {Summary.of(values)}")
    ahead = picked["ours"] - picked["the reference's"]
    low, high = efficiency.interval_of_mean(ahead)
    print(f"ours is {efficiency.percent(ahead.mean()):.2f} points ahead ({low:.2f} to {high:.2f})")
    return 0


def reference(data: Dataset, ours: Model, count: int, threads: int) -> Model:
    """Return the reference's model of the rows and for the candidates of ``ours``."""
    settings = TrainingParameters.model_validate(ours.spec.params).model_copy(update={"features": "reference"})
    features = Features.of("reference", ours.hardware)
    pairs = training_pairs(data)
    taught = pairs.only(sampled(pairs, settings))
    used = PARAMETERS | {"deterministic": True, "force_col_wise": True, "num_threads": threads, "verbosity": -1}
    spec = spec_of(data, features, settings)
    rows = lightgbm.Dataset(
        features.matrix(taught.problems, taught.candidates, taught.problem, taught.candidate),
        np.log1p(taught.tflops),
        feature_name=spec.feature_names,
        categorical_feature=spec.categorical_features,
        params=used,
    )
    booster = lightgbm.train(used, rows, num_boost_round=count)
    return replace(ours, spec=spec, text=trees.canonical(booster.model_to_string()))


if __name__ == "__main__":
    raise SystemExit(main())
