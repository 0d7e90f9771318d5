"""The validation report of a ranking: how well it chooses on problems that it has never seen."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from tileseer.conv.problem import DIMS, from_frame
from tileseer.core.errors import UserError
from tileseer.dataset import bootstrap, efficiency
from tileseer.dataset.measurements import Measurements
from tileseer.families.coefficients import Coefficients
from tileseer.families.registry import of_arch
from tileseer.gpu.hardware import Hardware
from tileseer.model.model import Model
from tileseer.model.schema import Origin, Summary
from tileseer.validation import baselines, end_to_end, explain, noise_floor, ranking, schema, ties
from tileseer.validation.noise_floor import Floor
from tileseer.validation.ranking import Scored

FEW_CHANNELS = 16


def evaluate(
    measurements: Measurements,
    scores: np.ndarray,
    supported: np.ndarray,
    hardware: Hardware,
    coefficients: Coefficients | None = None,
    model: Model | None = None,
    reference: np.ndarray | None = None,
    uses: pd.DataFrame | None = None,
    fold: np.ndarray | None = None,
    training_networks: Collection[str] = (),
) -> schema.Validation:
    """Validation report of a ranking.

    ``scores`` and ``supported`` are those of ``ranking.score``. ``coefficients`` are those of the simulated device, if
    the times are its; ``model`` made the scores: its worst picks are then explained; ``reference`` are the
    scores of the reference's trainer, shaped as ``scores``. ``uses`` (columns of ``problem_table.USES``) names the
    problems of each run of a network; with it the report has what the picks cost them.
    ``training_networks`` have layers that train, beside those that own training problems.
    ``fold`` (``ranking.Scored``) says where layers were left out in turn; else problems with split ``validation`` are.
    """
    scored = ranking.score(measurements, scores, supported, fold)
    problems = scored.problems
    floor = noise_floor.of(scored, hardware, coefficients)
    tied = ties.with_best(scored.achieved, scored.relative_errors())
    training = measurements.problems.iloc[scored.training]
    if training.empty:
        raise UserError(
            f"{measurements.operation}: the dataset has no problem with split train; the baselines are chosen on them, "
            "give the dataset that the model was trained on"
        )
    described = model.spec.feature_set if model else of_arch(measurements.arch).features
    novelty = explain.Novelty(training, problems, described, hardware, scored.apart)
    parts: dict[str, Any] = {}
    if reference is not None:
        parts["reference_trainer"] = _against(scored, ranking.score(measurements, reference, supported, fold))
    if uses is not None:
        keys = problems["problem_key"]
        gflop = np.array([problem.flop for problem in from_frame(problems)]) / 1e9
        best = efficiency.problem_best(measurements)[scored.rows]
        parts["end_to_end"] = end_to_end.of_runs(uses, keys, gflop, best, scored.picked, floor.selectors())
        parts["by_distance"] = end_to_end.by_distance(uses, keys, lambda part: _stratum(scored, floor, part))
    floors = noise_floor.report(floor, scored)
    perfect = floors.perfect_model
    return schema.Validation(
        **dict(Origin.of(measurements)),
        n_problems=len(scored.rows),
        n_without_measurement=int((scored.fold != ranking.NEVER).sum()) - len(scored.rows),
        n_candidates=len(measurements.candidates),
        mean_pool_size=round(float(scored.pool.sum(axis=1).mean()), 2),
        **ranking.metrics(scored.ranked),
        interval_level=bootstrap.LEVEL,
        noise_floor=floors,
        of_perfect_model=efficiency.percent(100 * scored.picked.mean() / perfect.efficiency.mean) if perfect else None,
        ties=ties.report(tied, scored.picks, measurements.between_runs),
        oracle=_oracle(scored),
        by_ndim=_strata(scored, floor, problems["ndim"].astype(str) + "d"),
        by_layer_kind=_strata(scored, floor, layer_kinds(problems)),
        by_network=_by_network(scored, floor, uses, {*training["network"], *training_networks}),
        by_distance_to_training={
            name: _stratum(scored, floor, part) for name, part in novelty.quarters().items() if part.any()
        },
        baselines=baselines.of(scored, supported, hardware, floor.summary()),
        worst=explain.worst(scored, novelty, model),
        picks=ties.every_pick(scored, tied),
        **parts,
    )


def layer_kinds(problems: pd.DataFrame) -> pd.Series:
    """Kind of each layer: the first that fits of depthwise, grouped, dilated, and so on."""
    p = {name: problems[name].to_numpy() for name in DIMS}
    taps = p["Z"] * p["Y"] * p["X"]
    strided = (p["stride_d"] > 1) | (p["stride_h"] > 1) | (p["stride_w"] > 1)
    kinds = {
        "depthwise": (p["G"] == p["C"]) & (p["G"] > 1),
        "grouped": p["G"] > 1,
        "dilated": (p["dilation_d"] > 1) | (p["dilation_h"] > 1) | (p["dilation_w"] > 1),
        "few channels": np.minimum(p["C"], p["K"]) < FEW_CHANNELS,
        "pointwise": (taps == 1) & ~strided,
        "strided": strided,
        "3x3": (p["Y"] == 3) & (p["X"] == 3) & (p["Z"] == 1),
    }
    return pd.Series(np.select(list(kinds.values()), list(kinds), default="other filters"), index=problems.index)


def _strata(scored: Scored, floor: Floor, labels: pd.Series) -> dict[str, schema.Stratum]:
    return {str(label): _stratum(scored, floor, (labels == label).to_numpy()) for label in sorted(set(labels))}


def _by_network(
    scored: Scored, floor: Floor, uses: pd.DataFrame | None, training: Collection[str]
) -> dict[str, schema.NetworkStratum]:
    """Figures of each network; ``uses`` says which problems several networks need, else each has the one it names."""
    named = scored.problems[["problem_key", "network"]]
    if uses is not None:
        named = pd.concat([named, uses[["problem_key", "network"]]]).drop_duplicates()
    keys = scored.problems["problem_key"]
    parts = {str(name): keys.isin(own).to_numpy() for name, own in named.groupby("network")["problem_key"]}
    return {
        name: schema.NetworkStratum(**dict(_stratum(scored, floor, part)), in_training=name in training)
        for name, part in sorted(parts.items())
        if part.any()
    }


def _stratum(scored: Scored, floor: Floor, part: np.ndarray) -> schema.Stratum:
    """Figures of some of the scored problems, bool [R]."""
    picked = scored.picked[part]
    return schema.Stratum(
        n_problems=int(part.sum()),
        efficiency=Summary.of(picked),
        interval=bootstrap.intervals(picked),
        within_2_percent=ranking.within(picked),
        noise_floor=floor.summary(part),
    )


def _oracle(scored: Scored) -> schema.Oracle:
    """How much of what could be chosen was measured: the best of few says little."""
    ran = scored.achieved > 0
    coverage = (ran & scored.pool).sum(axis=1) / np.maximum(scored.pool.sum(axis=1), 1)
    best_offered = np.where(scored.pool, scored.achieved, -1.0).argmax(axis=1)
    return schema.Oracle(
        meaning="share of the candidates that a selector may choose that were timed with success, by problem",
        mean_coverage=efficiency.percent(coverage.mean()),
        least_coverage=efficiency.percent(coverage.min()),
        outside_the_pool=int((ran.any(axis=1) & (scored.best != best_offered)).sum()),
    )


def _against(ours: Scored, theirs: Scored) -> schema.ReferenceTrainer:
    """Figures of the reference's trainer on the same problems and pool, and how far it is behind."""
    ahead = ours.picked - theirs.picked
    return schema.ReferenceTrainer(
        meaning="97 features, log1p(TFLOPS) and the reference's hyperparameters, trained on the same rows",
        **ranking.metrics(theirs.ranked),
        ahead=schema.Ahead(
            meaning="mean efficiency of our picks minus that of theirs, in points; paired over problems",
            mean=efficiency.percent(ahead.mean()),
            interval=bootstrap.of_mean(ahead),
        ),
    )
