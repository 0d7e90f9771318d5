"""The reference's trainer as a baseline: its features, target and hyperparameters on the rows that ours learns from.

What it gives is a model directory that the reference's predictor loads. It is never published: it shows in
validation and report what the same measurements are worth with the other method.
"""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np

from tileseer.dataset.measurements import Measurements
from tileseer.gpu.hardware import Hardware
from tileseer.model import booster_text, features, trainer
from tileseer.reference import reference_features
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
"""The reference's, as its train.py gives them to LightGBM; without a frequency its subsample has no effect."""
TREES = 2000
TARGET = "log1p_tflops"


def train(
    measurements: Measurements, hardware: Hardware, settings: TrainingParameters, threads: int = 1, trees: int = TREES
) -> tuple[str, dict[str, Any]]:
    """Return the text and the spec of the reference's model of the training rows that ``settings`` choose."""
    rows = trainer.training_rows(measurements, settings)
    learnt = np.flatnonzero(rows.learn)
    chosen = features.feature_set("reference")
    matrix = features.compute(
        measurements.problems, measurements.candidates, rows.problem[learnt], rows.candidate[learnt], hardware,
        "reference",
    )  # fmt: skip
    used = PARAMETERS | {"deterministic": True, "force_col_wise": True, "num_threads": threads, "verbosity": -1}
    data = lightgbm.Dataset(
        matrix, np.log1p(rows.tflops[learnt]), feature_name=list(chosen.names),
        categorical_feature=list(chosen.categorical), params=used,
    )  # fmt: skip
    booster = lightgbm.train(used, data, num_boost_round=trees)
    variant, _, dtype = measurements.operation.rpartition("_")
    spec = {
        "op_type": "grouped_conv",
        "feature_encoding_version": 0,
        "operation": measurements.operation,
        "variant": variant,
        "dtype": dtype,
        "arch": measurements.arch,
        "device": measurements.device,
        "device_kind": measurements.device_kind,
        "feature_set": "reference",
        "feature_names": list(chosen.names),
        "categorical_features": list(chosen.categorical),
        "hardware": reference_features.hardware_arguments(hardware),
        "targets": ["tflops"],
        "log_targets": ["tflops"],
        "target": TARGET,
        "training_rows": len(learnt),
        "trees": booster.num_trees(),
        "params": PARAMETERS | {"n_estimators": trees},
    }
    return booster_text.canonical(booster.model_to_string()), spec
