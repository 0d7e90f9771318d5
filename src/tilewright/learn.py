"""Training of the ranking model: LightGBM on the efficiency of each pair within its problem.

The decision is which candidate of one problem is fastest, so the target is the logarithm of a pair's share of the
problem's best TFLOPS. Trees explain it from the features; what then remains on average of each candidate (a kernel
is a little better or worse than its description says) is its offset, kept with the pool. A score is the sum.
The same data, settings and LightGBM release give the same bytes, whatever the threads.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import lightgbm
import numpy as np
import pandas as pd

from tilewright import efficiency, features, reference_features
from tilewright.errors import UserError
from tilewright.hardware import Hardware
from tilewright.measurements import Measurements
from tilewright.settings.model import ModelSettings

TARGETS = {
    "relative": "ln(TFLOPS / best TFLOPS of the same problem); exp(prediction) is a relative efficiency, not TFLOPS",
    "log_tflops": "ln(TFLOPS)",
}


NEAR_BEST = 0.6
"""Efficiency from which rows make a candidate's offset: those between which a selection has to decide."""
BLOCK = 1 << 16
"""Pairs predicted at a time: what a large pool costs in memory."""
OFFSET = "offset"
"""Column of the pool that is added to the trees' prediction."""


@dataclass(frozen=True)
class Trained:
    """What training gives: the model's text and everything that is published with it."""

    model: str
    """LightGBM model text."""
    spec: dict[str, Any]
    """Features, target and parameters: what a reader of the model needs."""
    cv: list[dict[str, float]]
    """One entry a fold, in the form of cv_metrics_tflops.json."""
    out_of_fold: pd.DataFrame
    """``problem_key``, ``efficiency`` (0..1) of the pick of a model that has not seen the problem's group."""
    importances: dict[str, int]
    """Splits of each feature, most used first."""
    manifest: dict[str, Any]
    """Counts, settings and origin of the data."""
    candidates: pd.DataFrame
    """The pool that the model may choose from: rows of the measured candidates that ran, with ``OFFSET``."""


@dataclass(frozen=True)
class _Rows:
    """Pool rows of the training problems; everything has one entry a row."""

    problem: np.ndarray
    candidate: np.ndarray
    efficiency: np.ndarray
    label: np.ndarray
    learn: np.ndarray
    """Whether the row trains: measured ok and kept by the sampling."""


def train(measurements: Measurements, hardware: Hardware, settings: ModelSettings, threads: int = 1) -> Trained:
    """Train on the ``ok`` rows of problems with split ``train``; raise ``UserError`` when there are too few.

    Failed pairs teach nothing but stay in the pool that cross-validation ranks: picking one scores 0.
    """
    chosen = features.feature_set(settings.features)
    rows = _training_rows(measurements, settings)
    matrix = features.compute(
        measurements.problems, measurements.candidates, rows.problem, rows.candidate, hardware, settings.features
    )
    parameters = _parameters(settings, threads)
    learn_rows = np.flatnonzero(rows.learn)
    data = lightgbm.Dataset(
        matrix[learn_rows], rows.label[learn_rows], feature_name=list(chosen.names),
        categorical_feature=list(chosen.categorical), params=parameters, free_raw_data=True,
    ).construct()  # fmt: skip
    cv, out_of_fold = _cross_validate(data, matrix, rows, measurements, parameters, settings)
    booster = lightgbm.train(parameters, data, num_boost_round=settings.n_estimators)
    offset = _offsets(booster, matrix, rows, learn_rows, len(measurements.candidates), settings, threads)
    pool = measurements.candidates.assign(**{OFFSET: offset})[efficiency.proven(measurements)]
    counts = booster.feature_importance("split")
    return Trained(
        model=_canonical(booster.model_to_string()),
        spec=_spec(measurements, chosen, settings, hardware),
        cv=cv,
        out_of_fold=out_of_fold,
        importances={n: int(c) for n, c in sorted(zip(chosen.names, counts, strict=True), key=lambda p: (-p[1], p[0]))},
        manifest=_manifest(measurements, rows, settings, booster.num_trees(), out_of_fold),
        candidates=pool.reset_index(drop=True),
    )


def predict(
    booster: lightgbm.Booster,
    spec: dict[str, Any],
    problems: pd.DataFrame,
    pool: pd.DataFrame,
    problem: np.ndarray,
    candidate: np.ndarray,
    hardware: Hardware,
    threads: int = 1,
) -> np.ndarray:
    """Return the scores of n pairs, float64 [n]; higher is faster, comparable within a problem.

    ``problem`` and ``candidate`` (int [n]) are rows of ``problems`` and of ``pool``, a published pool with
    ``OFFSET``. Scores are in the target's space (``TARGETS``).
    """
    names, offset = spec["feature_names"], pool[OFFSET].to_numpy()
    scores = np.empty(len(problem))
    for start in range(0, len(problem), BLOCK):
        part = slice(start, start + BLOCK)
        pairs = problem[part], candidate[part]
        matrix = features.compute(problems, pool, *pairs, hardware, spec["feature_set"], names)
        scores[part] = booster.predict(matrix, num_threads=threads) + offset[candidate[part]]
    return scores


def assign_folds(groups: Sequence[str], sizes: Sequence[int], folds: int, seed: int) -> np.ndarray:
    """Return a fold for each distinct group, int [groups]: largest group first, into the fold with fewest rows.

    Groups of one size go in the order of their hash, so a fold does not depend on the order of the table.
    """
    if len(groups) < folds:
        raise UserError(f"cross-validation: {folds} folds need as many groups, there are {len(groups)}; lower `folds`")
    digests = [hashlib.sha256(f"{seed},{group}".encode()).hexdigest() for group in groups]
    order = sorted(range(len(groups)), key=lambda i: (-sizes[i], digests[i]))
    filled = [0] * folds
    assigned = np.empty(len(groups), np.int64)
    for i in order:
        fold = filled.index(min(filled))
        assigned[i] = fold
        filled[fold] += int(sizes[i])
    return assigned


def _training_rows(measurements: Measurements, settings: ModelSettings) -> _Rows:
    split = measurements.problems["split"].to_numpy()
    best = efficiency.problem_best(measurements)
    solvable = (split == "train") & (best > 0)
    if not solvable.any():
        raise UserError(f"{measurements.operation}: no training problem has a measured time; nothing can be learnt")
    wanted = np.flatnonzero(solvable[measurements.problem] & efficiency.in_pool(measurements))
    # One order for every way in which the rows were stored or resumed.
    wanted = wanted[np.lexsort((measurements.candidate[wanted], measurements.problem[wanted]))]
    ok = measurements.status[wanted] == efficiency.OK
    relative = efficiency.by_row(measurements)[wanted]
    problem = measurements.problem[wanted]
    label = np.full(len(wanted), np.nan)
    if settings.target == "relative":
        label[ok] = np.log(np.maximum(relative[ok], settings.relative_floor))
    else:
        label[ok] = np.log(measurements.tflops[wanted][ok])
    keys = measurements.problems["problem_key"].to_numpy()
    learn = ok & _sampled(problem, np.where(ok, relative, -1.0), keys, settings)
    return _Rows(problem, measurements.candidate[wanted], relative, label, learn)


def _sampled(problem: np.ndarray, relative: np.ndarray, keys: np.ndarray, settings: ModelSettings) -> np.ndarray:
    """Return which rows a problem keeps; ``problem`` is sorted. A problem's draw depends on its key and rows only."""
    if not settings.rows_per_problem:
        return np.ones(len(problem), bool)
    keep = np.zeros(len(problem), bool)
    bounds = np.flatnonzero(np.diff(problem, prepend=-1, append=np.iinfo(np.int32).max))
    for start, stop in pairwise(bounds):
        priority = np.random.default_rng([settings.seed, int(keys[problem[start]], 16)]).random(stop - start)
        fastest = np.argsort(-relative[start:stop], kind="stable")[: settings.top_rows]
        priority[fastest] = -1.0
        keep[start + np.argsort(priority, kind="stable")[: settings.rows_per_problem]] = True
    return keep


def _parameters(settings: ModelSettings, threads: int) -> dict[str, Any]:
    return {
        "objective": "regression",
        "num_leaves": settings.num_leaves,
        "learning_rate": settings.learning_rate,
        "min_data_in_leaf": settings.min_child_samples,
        "max_bin": settings.max_bin,
        "feature_fraction": settings.feature_fraction,
        "lambda_l2": settings.reg_lambda,
        "seed": settings.seed,
        "deterministic": True,
        # Column-wise histograms are summed by one thread each: the sums do not depend on the number of threads.
        "force_col_wise": True,
        "num_threads": threads,
        "verbosity": -1,
    }


def _offsets(
    booster: lightgbm.Booster, matrix: np.ndarray, rows: _Rows, learnt: np.ndarray, candidates: int,
    settings: ModelSettings, threads: int,
) -> np.ndarray:  # fmt: skip
    """Return the mean residual of each candidate over its near-best rows among ``learnt``, shrunk, float64 [Q].

    0 with the reference's features: who reads that model computes features and knows of no offset.
    """
    if settings.features == "reference":
        return np.zeros(candidates)
    near = learnt[rows.efficiency[learnt] >= NEAR_BEST]
    residual = rows.label[near] - booster.predict(matrix[near], num_threads=threads)
    total = np.bincount(rows.candidate[near], residual, minlength=candidates)
    count = np.bincount(rows.candidate[near], minlength=candidates)
    return total / np.maximum(count + settings.offset_prior, 1)


def _canonical(text: str) -> str:
    """Return the model text without the thread count, which does not belong to the model."""
    return re.sub(r"^\[num_threads: \d+\]$", "[num_threads: 0]", text, flags=re.MULTILINE)


def _cross_validate(
    data: lightgbm.Dataset, matrix: np.ndarray, rows: _Rows, measurements: Measurements,
    parameters: dict[str, Any], settings: ModelSettings,
) -> tuple[list[dict[str, float]], pd.DataFrame]:  # fmt: skip
    """Return one metrics entry a fold, and the out-of-fold efficiency of each problem."""
    problems, threads = measurements.problems, parameters["num_threads"]
    learn_rows = np.flatnonzero(rows.learn)
    group_of_problem = problems[settings.cv_group].to_numpy()
    groups, group, sizes = np.unique(group_of_problem[rows.problem], return_inverse=True, return_counts=True)
    fold_of_group = assign_folds(groups.tolist(), sizes.tolist(), settings.folds, settings.seed)
    fold_of_row = fold_of_group[group]
    learnt = fold_of_row[learn_rows]
    metrics, picks = [], []
    for fold in range(settings.folds):
        used = np.flatnonzero(learnt != fold)
        part = data.subset(used.tolist(), params=parameters)
        booster = lightgbm.train(parameters, part, num_boost_round=settings.cv_estimators)
        offset = _offsets(booster, matrix, rows, learn_rows[used], len(measurements.candidates), settings, threads)
        held_out = np.flatnonzero(fold_of_row == fold)
        score = booster.predict(matrix[held_out], num_threads=threads) + offset[rows.candidate[held_out]]
        picked = _picks(rows.problem[held_out], score)
        result = pd.DataFrame(
            {
                "problem_key": problems["problem_key"].to_numpy()[rows.problem[held_out][picked]],
                "efficiency": rows.efficiency[held_out][picked],
            }
        )
        picks.append(result)
        metrics.append(
            {
                "fold": fold,
                **_regression_metrics(rows.label[held_out], score),
                **_fold_efficiency(result["efficiency"].to_numpy()),
                "train_size": len(used),
                "val_size": len(held_out),
                "val_groups": int((fold_of_group == fold).sum()),
            }
        )
    out_of_fold = pd.concat(picks).sort_values("problem_key", ignore_index=True)
    return metrics, out_of_fold


def _picks(problem: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Return the row with the highest score of each problem; of equal scores the first."""
    order = np.lexsort((np.arange(len(score)), -score, problem))
    return order[np.flatnonzero(np.diff(problem[order], prepend=-1))]


def _regression_metrics(label: np.ndarray, score: np.ndarray) -> dict[str, float]:
    """Return RMSE and R2 in the space of the target, over the measured rows."""
    known = ~np.isnan(label)
    error = label[known] - score[known]
    variance = float(np.var(label[known]))
    r2 = 1 - float(np.mean(error**2)) / variance if variance else 0.0
    return {"rmse": round(float(np.sqrt(np.mean(error**2))), 6), "r2": round(r2, 6)}


def _fold_efficiency(values: np.ndarray) -> dict[str, float]:
    summary = efficiency.summary(values)
    return {f"{name}_efficiency": summary[name] for name in ("mean", "median", "p10", "min")}


def _spec(
    measurements: Measurements, chosen: features.FeatureSet, settings: ModelSettings, hardware: Hardware
) -> dict[str, Any]:
    variant, _, dtype = measurements.operation.rpartition("_")
    return {
        "op_type": "grouped_conv",
        "feature_encoding_version": 0,
        "operation": measurements.operation,
        "variant": variant,
        "dtype": dtype,
        "arch": measurements.arch,
        "device": measurements.device,
        "device_kind": measurements.device_kind,
        "feature_set": settings.features,
        "feature_names": list(chosen.names),
        "categorical_features": list(chosen.categorical),
        # The constructor arguments of the reference's feature engine, in its words.
        "hardware": reference_features.hardware_arguments(hardware),
        "targets": ["tflops"],
        # Readers must not clamp at 0: scores are logarithms. Their order is the ranking under any exponential.
        "log_targets": ["tflops"],
        "target": settings.target,
        "target_meaning": TARGETS[settings.target],
        "score": f"prediction of the trees + column {OFFSET} of the candidate",
        "params": settings.model_dump(mode="json"),
    }


def _manifest(
    measurements: Measurements, rows: _Rows, settings: ModelSettings, trees: int, out_of_fold: pd.DataFrame
) -> dict[str, Any]:
    trained = measurements.problems.iloc[np.unique(rows.problem[rows.learn])]
    return {
        "operation": measurements.operation,
        "arch": measurements.arch,
        "device": measurements.device,
        "device_kind": measurements.device_kind,
        "data_rows": len(measurements.problem),
        "pool_rows": len(rows.problem),
        "valid_rows": int(np.count_nonzero(~np.isnan(rows.label))),
        "training_rows": int(rows.learn.sum()),
        "unique_problems": int(trained["problem_key"].nunique()),
        "layer_families": int(trained["layer_family"].nunique()),
        "candidates": len(measurements.candidates),
        "requested_n_estimators": settings.n_estimators,
        "total_n_estimators": trees,
        "out_of_fold_efficiency": efficiency.summary(out_of_fold["efficiency"].to_numpy()),
        "lightgbm": lightgbm.__version__,
        "settings": settings.model_dump(mode="json"),
    }
