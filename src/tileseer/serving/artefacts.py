"""Everything that serves one trained operation: small model, C++ header, known problems, kernel list, and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer import families
from tileseer.conv.operation import Operation
from tileseer.conv.problem import DIMS
from tileseer.core import parquet
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.dataset import efficiency
from tileseer.dataset.measurements import Measurements
from tileseer.families.ck_tile import ck_api, kernel_entries
from tileseer.gpu.coefficients import Coefficients
from tileseer.gpu.hardware import Hardware
from tileseer.model import cross_validation, model_files, trainer
from tileseer.model.model_files import json_text
from tileseer.serving import augmentation, guarantee, header, kernel_set, known_problems
from tileseer.serving.cascade import Cascade, by_name
from tileseer.serving.distill import distill
from tileseer.settings.serving import ServingSettings
from tileseer.validation import ranking

NO_ESTIMATES = {"meaning": "this family's resources are what its compiler reported; none are estimated"}


@dataclass(frozen=True)
class Served:
    """What the stage writes."""

    model: str
    header: str
    known: pa.Table
    kernels: dict[str, Any]
    figures: dict[str, Any]
    estimates: dict[str, Any]


def build(
    measurements: Measurements,
    booster: lightgbm.Booster,
    spec: dict[str, Any],
    pool: pd.DataFrame,
    out_of_fold: pd.DataFrame,
    hardware: Hardware,
    template: Path,
    api_table: Path,
    coefficients: Coefficients,
    settings: ServingSettings,
    threads: int = 1,
    networks: Mapping[str, str] | None = None,
) -> Served:
    """Make what serves the full model ``booster`` with its ``pool``; ``template`` is that of the C++ header.

    ``out_of_fold`` calibrates the guarantee, by family of ``networks`` (network to family); ``coefficients`` are
    published: kernels outside the pool can be scored.
    """
    operation = Operation.parse(measurements.operation)
    dims = measurements.problems[list(DIMS)].to_numpy(np.int64)
    untrained = Cascade.of(operation, hardware, booster, settings.short_lists, pool)

    def full_model(problems: np.ndarray) -> np.ndarray:
        """Return what the full model says of every pair, [n, Q]; -inf where a candidate cannot run the problem."""
        scores = np.full((len(problems), len(pool)), -np.inf)
        if not len(problems):
            return scores
        problem, candidate = np.nonzero(untrained.supported(problems))
        table = pd.DataFrame(by_name(problems)).assign(variant=operation.variant, dtype=operation.dtype)
        scores[problem, candidate] = trainer.predict(booster, spec, table, pool, problem, candidate, hardware, threads)
        return scores

    scores = full_model(dims)
    runs = np.isfinite(scores)
    training = (measurements.problems["split"] == "train").to_numpy() & runs.any(axis=1)
    imagined = augmentation.near(dims[training], settings.imagined, settings.seed)
    lessons = np.concatenate([dims[training], imagined]), np.concatenate([scores[training], full_model(imagined)])
    able = np.isfinite(lessons[1]).any(axis=1)
    text = distill(untrained, lessons[0][able], lessons[1][able], settings, threads)
    quick = lightgbm.Booster(model_str=text)
    served = Cascade.of(operation, hardware, quick, settings.short_lists, pool)
    achieved = _achieved(measurements, pool)
    own, kernels = _pruned(measurements, pool, achieved, api_table, settings)
    known = known_problems.table(measurements, pool, achieved)
    origin = {name: getattr(measurements, name) for name in ("arch", "device", "device_kind")}
    return Served(
        model=text,
        header=header.render(
            template, operation, hardware, served.booster, settings.short_lists, pool, own, known, origin
        ),
        known=known,
        kernels={"operation": str(operation), **origin, **kernels},
        figures={
            "operation": str(operation),
            **origin,
            "feature_set": served.family.features,
            "trees": served.booster.num_trees(),
            "short_lists": settings.short_lists,
            "known_problems": known.num_rows,
            "validation": _figures(measurements, dims, scores, runs, served, own, achieved),
            "guarantee": _guarantee(measurements, out_of_fold, networks or {}, scores, achieved),
        },
        estimates=coefficients.model_dump(mode="json") if served.family.family is families.CK_TILE else NO_ESTIMATES,
    )


def write(folder: Path, served: Served) -> None:
    """Write ``model_files.SERVING_FILES`` into ``folder``, each whole or not at all."""
    texts = {
        model_files.SERVED_MODEL: served.model,
        model_files.SELECTOR: served.header,
        model_files.KERNELS: json_text(served.kernels),
        model_files.SERVING: json_text(served.figures),
        model_files.ESTIMATES: json_text(served.estimates),
    }
    for name, text in texts.items():
        write_text(folder / name, text, sealed=True)
    parquet.write(served.known, folder / model_files.KNOWN)


def _achieved(measurements: Measurements, pool: pd.DataFrame) -> np.ndarray:
    """Return the measured efficiency of the pool's candidates on every problem, [P, Q]."""
    position = pd.Index(measurements.candidates["candidate"]).get_indexer(pool["candidate"])
    if (position < 0).any():
        foreign = pool["candidate"][position < 0].iloc[0]
        raise UserError(f"{measurements.operation}: the model's pool has {foreign}, which the dataset has not")
    return efficiency.grid(measurements, np.arange(len(measurements.problems)))[:, position]


def _pruned(
    measurements: Measurements, pool: pd.DataFrame, achieved: np.ndarray, api_table: Path, settings: ServingSettings
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return which candidates are in the pruned set, and what ``kernels.json`` says."""
    number, names = pd.factorize(pool["kernel"], sort=True)
    by_kernel = kernel_set.by_kernel(achieved, number, len(names))
    split = measurements.problems["split"].to_numpy()
    parts = {name: (split == name) & (by_kernel.max(axis=1) > 0) for name in ("train", "validation")}
    chosen = kernel_set.smallest(by_kernel[parts["train"]], settings.pruned_loss)
    entries = kernel_entries.entries([str(name) for name in names], ck_api.load(api_table), measurements.arch)
    return np.isin(number, chosen), {
        "meaning": "`pruned` alone loses at most `allowed_loss` of the mean efficiency on the training problems, "
        "measured best against measured best; `oracle_within_pruned` is that share, in percent",
        "allowed_loss": settings.pruned_loss,
        "pool_size": len(names),
        "pruned_size": len(chosen),
        "oracle_within_pruned": {
            name: efficiency.summary(by_kernel[rows][:, chosen].max(axis=1) / by_kernel[rows].max(axis=1))
            for name, rows in parts.items()
        },
        "pruned": [entries[number]["kernel"] for number in chosen],
        "kernels": entries,
    }


def _figures(
    measurements: Measurements, dims: np.ndarray, scores: np.ndarray, runs: np.ndarray, served: Cascade,
    own: np.ndarray, achieved: np.ndarray,
) -> dict[str, Any]:  # fmt: skip
    """Return what serving costs on the validation problems: full model, served model, served from the pruned set."""
    rows = ranking.validation_rows(measurements)
    rows = rows[efficiency.problem_best(measurements)[rows] > 0]
    everything = np.arange(len(rows))

    def reached(candidate: np.ndarray) -> np.ndarray:
        return np.where(candidate >= 0, achieved[rows][everything, candidate], 0.0)

    full = np.where(runs[rows].any(axis=1), scores[rows].argmax(axis=1), -1)
    quick, _ = served.pick(dims[rows])
    few, _ = served.pick(dims[rows], own)
    efficiencies = {"full_model": reached(full), "served_model": reached(quick), "served_from_pruned_set": reached(few)}
    return {
        "n_problems": len(rows),
        "efficiency": {name: efficiency.summary(values) for name, values in efficiencies.items()},
        "loss_of_mean": {
            name: efficiency.percent(efficiencies["full_model"].mean() - efficiencies[name].mean())
            for name in ("served_model", "served_from_pruned_set")
        },
        "same_pick": efficiency.percent(np.mean(quick == full)),
    }


def _guarantee(
    measurements: Measurements, out_of_fold: pd.DataFrame, networks: Mapping[str, str], scores: np.ndarray,
    achieved: np.ndarray,
) -> dict[str, Any]:  # fmt: skip
    """Return the calibration of ``select --confidence`` and its coverage on the validation problems."""
    rows = ranking.validation_rows(measurements)
    rows = rows[efficiency.problem_best(measurements)[rows] > 0]
    problems = measurements.problems
    groups = guarantee.groups_of(problems[problems["split"] == "train"], networks)
    calibrating = out_of_fold[["problem_key", "ndim", "gap"]].merge(groups, on="problem_key")
    gaps = guarantee.calibrate(calibrating)
    unseen = problems.iloc[rows]
    families_of_networks = unseen["network"].map(lambda name: networks.get(name, name)).to_numpy()
    return {
        "meaning": "the set holds a candidate with at least `near` of the best efficiency; `gaps` are those of "
        "training problems with the share of the weight up to each, all groups weighing the same; `validation` is what "
        "the sets reach on networks that no model has seen, in percent, over problems and over families of networks",
        "near": cross_validation.NEAR,
        "groups": int(calibrating["group"].nunique()),
        "gaps": gaps,
        "validation": guarantee.coverage(
            gaps, unseen["ndim"].to_numpy(), families_of_networks, scores[rows], achieved[rows], cross_validation.NEAR
        ),
    }
