"""Validation of a model: how well it chooses on problems that it has never seen."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tileseer.core.errors import UserError
from tileseer.dataset.dataset import Dataset
from tileseer.gpus.hardware import Hardware
from tileseer.kernels.costs.coefficients import Coefficients
from tileseer.kernels.libraries import library_of_arch
from tileseer.learn import baselines, efficiency, end_to_end, explain, noise_floor, ranking, ties
from tileseer.learn import validation_report as schema
from tileseer.learn.cross_validation import NO_FOLD
from tileseer.learn.features import Features
from tileseer.learn.model import Model
from tileseer.learn.model_schema import Origin, Summary
from tileseer.learn.noise_floor import FloorEfficiencies
from tileseer.learn.ranking import Scored
from tileseer.problems.problem import DIMS, problems_of_frame

FEW_CHANNELS = 16


@dataclass(frozen=True)
class Context:
    """What a report compares with, beside the dataset."""

    simulated: Coefficients | None = None
    """Those of the simulated device, if the times are its."""
    uses: pd.DataFrame | None = None
    """The problems of each run of a network (``problem_table.USES``): with it the report has what the picks cost."""
    training_networks: Collection[str] = ()
    """Networks with layers that train, beside those that own training problems."""


def validate_model(
    model: Model, dataset: Dataset, context: Context | None = None, threads: int = 1
) -> schema.Validation:
    """Validation report of a model on the problems of its dataset that were held out."""
    context = context or Context()
    scored = ranking.rank_held_out(model, dataset, threads)
    # Another learner has no trees to explain its picks by.
    return report_of(scored, model.hardware, context, model if model.text else None)


def report_of(scored: Scored, gpu: Hardware, context: Context, model: Model | None = None) -> schema.Validation:
    """Validation report of the picks of a ranking; if ``model`` made it, its worst picks are explained."""
    dataset, problems = scored.dataset, scored.problems
    floor = noise_floor.floor_of(scored, gpu, context.simulated)
    tied = ties.with_best(scored.achieved, scored.relative_errors)
    training = dataset.problems.iloc[scored.training]
    if training.empty:
        raise UserError(
            f"{dataset.operation}: the dataset has no problem with split train; the baselines are chosen on them, "
            "give the dataset that the model was trained on"
        )
    features = model.features if model else Features.of(library_of_arch(dataset.arch).feature_set, gpu)
    novelty = explain.Novelty(training, problems, features, scored.apart)
    parts: dict[str, Any] = {}
    if context.uses is not None:
        gflop = np.array([problem.flop for problem in problems_of_frame(problems)]) / 1e9
        parts["end_to_end"] = end_to_end.of_runs(scored, context.uses, gflop, floor.selectors())
        parts["by_distance"] = end_to_end.by_distance(
            context.uses, problems["problem_key"], lambda part: _stratum(scored, floor, part)
        )
    floors = noise_floor.report_floor(floor, scored)
    perfect = floors.perfect_model
    return schema.Validation(
        **dict(Origin.of(dataset)),
        n_problems=len(scored.rows),
        n_without_measurement=int((scored.fold != NO_FOLD).sum()) - len(scored.rows),
        n_candidates=len(dataset.candidates),
        mean_pool_size=round(float(scored.pool.sum(axis=1).mean()), 2),
        **ranking.metrics(scored.ranked),
        interval_level=efficiency.LEVEL,
        noise_floor=floors,
        of_perfect_model=efficiency.percent(100 * scored.picked.mean() / perfect.efficiency.mean) if perfect else None,
        ties=ties.report_ties(tied, scored.picks, dataset.between_runs),
        oracle=_oracle(scored),
        by_ndim=_strata(scored, floor, problems["ndim"].astype(str) + "d"),
        by_layer_kind=_strata(scored, floor, layer_kinds(problems)),
        by_network=_by_network(scored, floor, context.uses, {*training["network"], *context.training_networks}),
        baselines=baselines.score_baselines(scored, gpu, floor.summary()),
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


def _strata(scored: Scored, floor: FloorEfficiencies, labels: pd.Series) -> dict[str, schema.Stratum]:
    return {str(label): _stratum(scored, floor, (labels == label).to_numpy()) for label in sorted(set(labels))}


def _by_network(
    scored: Scored, floor: FloorEfficiencies, uses: pd.DataFrame | None, training: Collection[str]
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


def _stratum(scored: Scored, floor: FloorEfficiencies, part: np.ndarray) -> schema.Stratum:
    """Figures of some of the scored problems, bool [R]."""
    picked = scored.picked[part]
    return schema.Stratum(
        n_problems=int(part.sum()),
        efficiency=Summary.of(picked),
        interval=efficiency.intervals(picked),
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


def summarize_report(report: schema.Validation) -> str:
    """One line about a validation report."""
    summary_of, floor = report.efficiency, "perfect_model" if report.noise_floor.perfect_model else "perfect_selector"
    return (
        f"{report.n_problems} unseen problems ({report.device_kind}), efficiency mean {summary_of.mean:.2f} %, median "
        f"{summary_of.median:.2f} %, p10 {summary_of.p10:.2f} %; {floor} would have mean "
        f"{report.noise_floor.best.efficiency.mean:.2f} %"
        + ("" if report.of_perfect_model is None else f", of which that is {report.of_perfect_model:.2f} %")
    )
