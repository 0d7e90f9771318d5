"""The reference's trainer as a baseline: its features, target and hyperparameters on the rows that ours learns from.

The reference's predictor loads the folder. It is never published: validation and report show what the same
measurements are worth with the other method.
"""

from typing import Any

import lightgbm
import numpy as np

from tileseer.config.model import TrainingParameters
from tileseer.dataset.dataset import Dataset
from tileseer.gpus.hardware import Hardware
from tileseer.learn import trees
from tileseer.learn.features.features import Features
from tileseer.learn.fit import Recipe, samples_of
from tileseer.learn.model import spec_of
from tileseer.learn.model_schema import FeatureSpec

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


def fit_reference(
    dataset: Dataset, gpu: Hardware, settings: TrainingParameters, threads: int = 1, count: int = TREES
) -> tuple[str, FeatureSpec]:
    """Text and spec of the reference's model of the training rows that ``settings`` choose."""
    settings = settings.model_copy(update={"features": FEATURES})
    features = Features.of(FEATURES, gpu)
    samples = samples_of(dataset, Recipe(features, settings, threads=threads))
    spec = spec_of(dataset, features, settings)
    used = PARAMETERS | {"deterministic": True, "force_col_wise": True, "num_threads": threads, "verbosity": -1}
    data = lightgbm.Dataset(
        samples.matrix[samples.learn],
        np.log1p(samples.pairs.tflops[samples.learn]),
        feature_name=spec.feature_names,
        categorical_feature=spec.categorical_features,
        params=used,
    )
    booster = lightgbm.train(used, data, num_boost_round=count)
    theirs = {"target": TARGET, "target_meaning": None, "params": PARAMETERS | {"n_estimators": count}}
    counts = {"training_rows": int(samples.learn.sum()), "trees": booster.num_trees()}
    return trees.canonical(booster.model_to_string()), spec.model_copy(update=theirs | counts)
