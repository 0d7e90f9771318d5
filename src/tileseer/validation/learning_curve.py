"""Learning curves: what models of a part of the training problems, or of the first rounds of measuring, would pick."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.benchmark import chosen_pairs
from tileseer.core import draws
from tileseer.dataset import efficiency
from tileseer.dataset.measurements import Measurements
from tileseer.gpu.hardware import Hardware
from tileseer.model import cross_validation, features, objectives, trainer
from tileseer.model.prior import OFFSET
from tileseer.settings.model import ModelSettings
from tileseer.validation import bootstrap, evaluation

OBJECTIVE = "relative"


def of_rounds(
    measurements: Measurements, chosen: pa.Table, hardware: Hardware, settings: ModelSettings, threads: int
) -> dict[str, Any]:
    """Return one entry a round: pairs so far, and the efficiency on validation problems of a model of them.

    The models have ``cv_estimators`` trees, so their figures are below that of the published one.
    """
    record = chosen_pairs.record(chosen)
    round_of_row = _rounds(measurements, chosen)
    total = record["supported_training_pairs"]
    entries, pairs = [], 0
    for number, entry in enumerate(record["rounds"]):
        pairs += entry["pairs"]
        known = (round_of_row >= 0) & (round_of_row <= number)
        picked = _picked(measurements, known, hardware, settings, threads)
        entries.append(
            {
                "round": number + 1,
                "pairs": pairs,
                "share": efficiency.percent(pairs / total),
                "picks_changed": None if entry["picks_changed"] is None else efficiency.percent(entry["picks_changed"]),
                "efficiency": efficiency.summary(picked),
                "interval": bootstrap.intervals(picked),
            }
        )
    return {"supported_training_pairs": total, "rounds": entries}


def of_shares(
    measurements: Measurements, shares: Sequence[float], hardware: Hardware, settings: ModelSettings, threads: int
) -> list[dict[str, Any]]:
    """Return one entry a share of the training problems: its problems and pairs, and the efficiency of a model of it.

    Layer families are drawn by their names, so a larger share holds a smaller one; a layer's batch sizes stay together.
    A share of fewer families than cross-validation has folds is left out. The models have ``cv_estimators`` trees, as
    those of ``of_rounds``.
    """
    train = (measurements.problems["split"] == "train").to_numpy()
    drawn = draws.shares(draws.of_names(measurements.problems["layer_family"].astype(str)))
    entries = []
    for share in sorted(shares):
        known = train & (drawn < share)
        rows = known[measurements.problem]
        ran = np.unique(measurements.problem[rows & (measurements.status == efficiency.OK)])
        if measurements.problems["layer_family"].iloc[ran].nunique() < settings.folds:
            continue
        picked = _picked(measurements, rows, hardware, settings, threads)
        entries.append(
            {
                "share": efficiency.percent(share),
                "problems": int(known.sum()),
                "pairs": int(rows.sum()),
                "efficiency": efficiency.summary(picked),
                "interval": bootstrap.intervals(picked),
            }
        )
    return entries


def _rounds(measurements: Measurements, chosen: pa.Table) -> np.ndarray:
    """Return the round in which each row was chosen, int [n]; -1 for rows that were not."""
    names = ["kernel_id", "split_k", "problem_key"]
    frame = chosen.to_pandas()
    keys = pd.MultiIndex.from_frame(frame[names].astype({"kernel_id": str, "split_k": "int64", "problem_key": str}))
    candidates = measurements.candidates
    rows = pd.MultiIndex.from_arrays(
        [
            candidates["kernel_id"].astype(str).to_numpy()[measurements.candidate],
            candidates["split_k"].to_numpy(np.int64)[measurements.candidate],
            measurements.problems["problem_key"].astype(str).to_numpy()[measurements.problem],
        ]
    )
    at = keys.get_indexer(rows)
    return np.where(at >= 0, frame["round"].to_numpy()[at], -1)


def _picked(
    measurements: Measurements, known: np.ndarray, hardware: Hardware, settings: ModelSettings, threads: int
) -> np.ndarray:
    """Return the efficiency of the picks on validation problems by a model of the ``known`` rows, float64 [R]."""
    few = measurements.only(known)
    data = trainer.table(few, trainer.training_rows(few, settings), hardware, settings, threads)
    learnt = np.flatnonzero(data.rows.learn)
    booster = objectives.fit(OBJECTIVE, data, learnt, settings, settings.cv_estimators, threads)
    offset = cross_validation.offsets(OBJECTIVE, booster, data, learnt, len(measurements.candidates), settings, threads)
    chosen = features.feature_set(settings.features)
    spec = {
        "variant": measurements.operation.rpartition("_")[0],
        "feature_set": settings.features,
        "feature_names": list(chosen.names),
    }
    pool = measurements.candidates.assign(**{OFFSET: offset})[efficiency.proven(few)]
    scores, offered = evaluation.rank_pool(measurements, booster, spec, pool, hardware, threads)
    return evaluation.score(measurements, scores, offered).picked
