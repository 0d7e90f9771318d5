"""The reference's trainer as a baseline: its features, target and hyperparameters on the rows that ours learns from.

The reference's predictor loads the folder. It is never published: validation and report show what the same
measurements are worth with the other method.
"""

from typing import Any

import lightgbm
import numpy as np

from tileseer.dataset.measurements import Measurements
from tileseer.gpu.hardware import Hardware
from tileseer.model import features, rows, trainer, trees
from tileseer.model.schema import FeatureSpec
from tileseer.settings.model import TrainingParameters

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
TREES = 2000
FEATURES = "reference"
TARGET = "log1p_tflops"


def train(
    measurements: Measurements, hardware: Hardware, settings: TrainingParameters, threads: int = 1, count: int = TREES
) -> tuple[str, FeatureSpec]:
    """Text and spec of the reference's model of the training rows that ``settings`` choose."""
    of = rows.of_problems(measurements, settings)
    learnt = np.flatnonzero(of.learn)
    pairs = of.problem[learnt], of.candidate[learnt]
    matrix = features.compute(measurements.problems, measurements.candidates, *pairs, hardware, FEATURES)
    spec = trainer.spec_of(measurements, hardware, settings.model_copy(update={"features": FEATURES}))
    used = PARAMETERS | {"deterministic": True, "force_col_wise": True, "num_threads": threads, "verbosity": -1}
    data = lightgbm.Dataset(
        matrix, np.log1p(of.tflops[learnt]), feature_name=spec.feature_names,
        categorical_feature=spec.categorical_features, params=used,
    )  # fmt: skip
    booster = lightgbm.train(used, data, num_boost_round=count)
    theirs = {"target": TARGET, "target_meaning": None, "params": PARAMETERS | {"n_estimators": count}}
    counts = {"training_rows": len(learnt), "trees": booster.num_trees()}
    return trees.canonical(booster.model_to_string()), spec.model_copy(update=theirs | counts)
