"""The learning curve of a transfer: what a prior gives with a part of the measured rows, and they without it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd

from tileseer.conv.problem import DIMS, Problem
from tileseer.core import draws, parquet
from tileseer.core.errors import UserError
from tileseer.dataset import efficiency
from tileseer.dataset.measurements import Measurements
from tileseer.gpu.hardware import Hardware
from tileseer.model import correction, model_files, trainer
from tileseer.model import prior as priors
from tileseer.model.prior import OFFSET
from tileseer.settings.model import ModelSettings
from tileseer.validation import bootstrap, evaluation

SHARES = (0.0, 0.01, 0.05, 0.15)
"""Of the training rows, drawn by the names of problem and candidate."""
WITHOUT = (0.0,)
"""Weights of the prior that a model without it may choose: all else is the same."""


def of_shares(measurements: Measurements, hardware: Hardware, settings: ModelSettings, threads: int) -> dict[str, Any]:
    """Return one entry a share: training pairs, and the efficiency on validation problems with and without the prior.

    All models are trained as the published one is, but without a search for hyperparameters. A share whose rows are of
    fewer groups than cross-validation has folds is left out.
    """
    assert settings.prior is not None
    corrected = settings.model_copy(update={"search_trials": 0})
    train_problems = (measurements.problems["split"] == "train").to_numpy()
    train = train_problems[measurements.problem]
    drawn = _draw(measurements)
    known = priors.load(Path(settings.prior), settings.features, measurements.operation.rpartition("_")[0])
    entries = []
    for share in SHARES:
        keep = ~train | (drawn < share)
        few = measurements.only(keep)
        if share and _groups(few, settings) < settings.folds:
            continue
        entry: dict[str, Any] = {"share": efficiency.percent(share), "pairs": int(np.count_nonzero(keep & train))}
        if share == 0:
            entry["with_prior"] = _figures(_picked_by_prior(measurements, known, hardware, threads))
        else:
            entry["with_prior"] = _figures(_picked(measurements, few, hardware, corrected, threads, correction.WEIGHTS))
            entry["without_prior"] = _figures(_picked(measurements, few, hardware, corrected, threads, WITHOUT))
        entries.append(entry)
    seen = _seen_by_prior(measurements.problems[~train_problems], known, Path(settings.prior))
    return {"prior": known.origin, "seen_by_prior": seen, "shares": entries}


def _seen_by_prior(problems: pd.DataFrame, known: priors.Prior, folder: Path) -> int:
    """Return how many problems are layers, at any batch size, that the prior was trained on in its own data type.

    Such a problem is not unseen to what starts from the prior.
    """
    families = set(parquet.read(folder / model_files.OUT_OF_FOLD)["layer_family"].to_pylist())
    dtype = known.origin["operation"].rpartition("_")[2]
    dims = problems[list(DIMS)].to_numpy().tolist()
    theirs = (
        Problem.from_dims(variant, dtype, **dict(zip(DIMS, sizes, strict=True)))
        for variant, sizes in zip(problems["variant"], dims, strict=True)
    )
    return sum(problem.layer_family in families for problem in theirs)


def _draw(measurements: Measurements) -> np.ndarray:
    """Return a number from 0 to 1 of each row that depends on the names of problem and candidate only."""
    problem = draws.of_names(measurements.problems["problem_key"])[measurements.problem]
    candidate = draws.of_names(measurements.candidates["candidate"])[measurements.candidate]
    return draws.shares(draws.of_pairs(problem, candidate))


def _groups(few: Measurements, settings: ModelSettings) -> int:
    train = (few.problems["split"] == "train").to_numpy()[few.problem] & (few.status == efficiency.OK)
    return int(few.problems[settings.cv_group].iloc[few.problem[train]].nunique())


def _picked(
    measurements: Measurements, few: Measurements, hardware: Hardware, settings: ModelSettings, threads: int,
    weights: Sequence[float],
) -> np.ndarray:  # fmt: skip
    trained = trainer.train(few, hardware, settings, threads, weights)
    booster = lightgbm.Booster(model_str=trained.model)
    return _scored(measurements, booster, trained.spec, trained.candidates, hardware, threads)


def _picked_by_prior(measurements: Measurements, known: priors.Prior, hardware: Hardware, threads: int) -> np.ndarray:
    candidates = measurements.candidates
    pool = candidates.assign(**{OFFSET: known.offsets(candidates)})[known.knows(candidates)]
    if pool.empty:
        raise UserError(f"{measurements.operation}: the prior knows none of its candidates; take one of the same pool")
    spec = {
        "variant": measurements.operation.rpartition("_")[0],
        "feature_set": known.feature_set,
        "feature_names": list(known.names),
    }
    return _scored(measurements, lightgbm.Booster(model_str=known.text), spec, pool, hardware, threads)


def _scored(
    measurements: Measurements, booster: lightgbm.Booster, spec: dict[str, Any], pool: pd.DataFrame,
    hardware: Hardware, threads: int,
) -> np.ndarray:  # fmt: skip
    scores, offered = evaluation.rank_pool(measurements, booster, spec, pool, hardware, threads)
    return evaluation.score(measurements, scores, offered).picked


def _figures(picked: np.ndarray) -> dict[str, Any]:
    return {"efficiency": efficiency.summary(picked), "interval": bootstrap.intervals(picked)}
