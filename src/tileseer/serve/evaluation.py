"""How good the picks are that ship, on layers that no model was trained on: layer by layer, by network, by library.

A pick is one of the served model (``serve.selector``), not of the model with all its trees for all candidates. Where no
layers were set aside, layers are left out in turn, and the picks are those of the models without them. A learner from
outside serves nothing: its picks are those of the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from tileseer.core.documents import Document
from tileseer.core.errors import UserError
from tileseer.data.dataset import Dataset
from tileseer.facts.hardware import Hardware
from tileseer.learn import baselines, efficiency, explain, noise_floor, own_choice, ranking
from tileseer.learn.evidence import (
    EVIDENCE_CLASSES,
    EvidenceBounds,
    EvidenceClass,
    calibrated_bounds,
    held_out_classes,
)
from tileseer.learn.left_out import left_out, recipe_of
from tileseer.learn.model import Model, OutsideModel
from tileseer.learn.model_schema import Contribution, Origin, Summary
from tileseer.learn.ranking import Scored, dims_text
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.problems.kinds import layer_kinds
from tileseer.problems.problem import columns_of_frame
from tileseer.problems.shapes import implicit_gemm, roofline_us
from tileseer.serve.drift import Drift, drift_of
from tileseer.serve.harm import Harm, harm_by_kind
from tileseer.serve.layer_kinds import KindPart, bound_of, parts_by_kind
from tileseer.serve.selector import Selector

SERVED = "layers of networks that no model was trained on; picks of the served model"
SCORED_WHOLE = "layers of networks that no model was trained on; picks among all that the library offers"
OUTSIDE = "layers of networks that no model was trained on; picks of a learner from outside"
LEFT_OUT = "layers left out of the training in turn; picks of the models without them"
STARTED = "; the model that training starts from may have learnt from these layers on its own device"
SLOWER = 1.02
"""A pick that takes so much longer than another library's choice is slower than it."""
AS_GOOD_AS_BEST = 0.98
"""A pick this close to the best is as good as it: single timings do not tell them apart."""
WORST_LISTED = 10
"""Layers listed as the worst picks."""
Interval = Annotated[list[float], Field(min_length=2, max_length=2)]
"""Lower and upper end."""


class LayerEvaluation(Document):
    """The pick of one layer."""

    network: str
    layer: str
    problem: str
    """The 19 dimensions."""
    pick: str
    best: str
    """The fastest measured candidate."""
    efficiency: float
    """0 for a pick that did not run."""
    reasons: list[Contribution]
    """The features that spoke most for the pick against the best; none where no model of trees picked."""


class NetworkEvaluation(Document):
    """The picks of one run of a network, each layer as often as it occurs."""

    network: str
    run: str
    layers: int
    """With a pick that ran."""
    without_candidate: int
    failed: int
    """Layers whose pick did not run."""
    efficiency: float
    """Time of the fastest candidates over the time of the picks, percent."""


class LibraryComparison(Document):
    """The picks beside what another library chooses, on the layers that have both times."""

    library: str
    layers: int
    speed: float
    """Geometric mean of the library's time over that of the pick: above 1 the picks are faster."""
    slower: float
    """Share of the picks that take 2 % longer than the library, percent."""


class EvidencePart(Document):
    """The picks of one class of evidence."""

    layers: int
    efficiency: Summary
    possible: Summary
    """As ``Evaluation.possible``."""
    share: float
    """Of the layers, percent."""
    by_time: float
    """Time of the fastest candidates over the time of the picks, percent."""


class NoiseFloor(Document):
    """What selectors reach that know more than a model can."""

    basis: str
    """Where true times come from."""
    perfect_selector: Summary
    """Knows every true time, and which pairs fail."""


class Baseline(Document):
    """Choosing without a model."""

    meaning: str
    candidates: dict[str, str] | None = None
    """The chosen candidate by dimensionality, where there is one."""
    efficiency: Summary
    speed: float
    """Geometric mean of its time over that of the pick, on the layers that both run; 0 where there are none."""


class Pick(Document):
    """The pick of a layer."""

    candidate: str
    efficiency: float


class Evaluation(Origin):
    """The picks of one operation; efficiencies and shares in percent."""

    basis: str
    """What the layers are, and whose picks these are."""
    layers: int
    """With a measured candidate: the efficiencies are of these."""
    without_candidate: int
    """Layers that no candidate ran, or that the model leaves to a library whose own choice was wrong: no efficiency
    includes them."""
    covered_time: float
    """Share of the time of all layers in those with a candidate. Where nothing was measured, the time is estimated by
    the roofline."""
    candidates: int
    timed: float
    """Mean share of the candidates that could be picked that were timed with success."""
    first: Summary
    """Of the pick."""
    interval: dict[str, Interval]
    """Bootstrap intervals (95 %) of the pick's ``mean``, ``median`` and ``p10`` over layers."""
    best_of_2: Summary
    """Of the fastest of the short list (``Selector.shortlist``) of two, each timed without error."""
    best_of_3: Summary
    within_2_percent: float
    """Share of the picks that are as good as the best."""
    by_time: float
    """Time of the fastest candidates over the time of the picks, over all layers with all their uses."""
    by_kind: dict[str, KindPart]
    """By kind of layer (``layer_kinds``)."""
    by_evidence: dict[EvidenceClass, EvidencePart]
    """By how the layers stand to what was measured (``learn.evidence``), the problems that trained for the pick."""
    evidence: EvidenceBounds
    """What bounds these classes."""
    networks: list[NetworkEvaluation]
    """The worst first; empty where layers belong to no network."""
    worst: list[LayerEvaluation]
    """The worst first."""
    baselines: dict[str, Baseline]
    noise_floor: NoiseFloor
    libraries: list[LibraryComparison]
    harm: dict[str, Harm]
    """Of all layers and by kind of layer; empty where no library offers the candidates."""
    drift: Drift | None = None
    """Of a recording that replaced an earlier one of the same GPU."""
    picks: dict[str, Pick]
    """By problem key."""

    @property
    def worst_network(self) -> NetworkEvaluation | None:
        """The network whose picks cost the most time."""
        return self.networks[0] if self.networks else None

    @property
    def worst_layer(self) -> LayerEvaluation:
        """The layer whose pick is worst."""
        return self.worst[0]

    @property
    def best_baseline(self) -> Baseline:
        """The best choice that needs no model, such as one fixed kernel."""
        return max(self.baselines.values(), key=lambda one: one.efficiency.mean)

    @property
    def speeds(self) -> dict[str, float]:
        """Speed of the picks relative to what runs today: other libraries, or else the best choice without a model.

        Above 1 the picks are faster.
        """
        return {one.library: one.speed for one in self.libraries} or {"best fixed choice": self.best_baseline.speed}

    @property
    def possible(self) -> Summary:
        """The figures of a perfect model, or where that is unknown of a perfect selector."""
        return self.noise_floor.perfect_selector

    @property
    def summary(self) -> str:
        """The figures in one line."""
        left = f"; {self.without_candidate} more layers have no candidate" if self.without_candidate else ""
        return (
            f"picks for {self.layers:,} unseen layers have efficiency {self.first.mean:.1f} % (mean; P10 "
            f"{self.first.p10:.1f} %, worst {self.first.min:.1f} %; {self.device_kind} times), the best fixed choice "
            f"{self.best_baseline.efficiency.mean:.1f} %{left}"
        )


@dataclass(frozen=True)
class Context:
    """What picks are evaluated with, beside the dataset."""

    uses: pd.DataFrame
    """The problems of each run of a network (``problem_table.USES``)."""
    libraries: pd.DataFrame
    """Microseconds of other libraries by problem key, one column per library."""
    simulated: Coefficients | None = None
    """Those of the simulated device, if the times are its."""
    earlier: Dataset | None = None
    """Times of the same GPU that those of the dataset replaced."""


def evaluate(dataset: Dataset, model: Model, serving: Path, context: Context, threads: int = 1) -> Evaluation:
    """Evaluate what ships of a model; ``serving`` is its serving folder."""
    if not ranking.has_validation_split(dataset):
        recipe = recipe_of(model, threads)
        basis = LEFT_OUT + (STARTED if recipe.settings.prior_folder else "")
        found = evaluate_picks(left_out(dataset, recipe), model.hardware, basis, context)
        drift = drift_of(dataset, context.earlier, recipe) if context.earlier else None
        return found.model_copy(update={"drift": drift})
    if own_choice.library_choices(dataset) is not None:
        scored = ranking.rank_held_out(model, dataset, threads)
        return evaluate_picks(scored, model.hardware, SCORED_WHOLE, context, model)
    if isinstance(model, OutsideModel):
        return evaluate_picks(ranking.rank_held_out(model, dataset, threads), model.hardware, OUTSIDE, context)
    rows = ranking.validation_rows(dataset)
    rows = rows[ranking.has_pick(dataset)[rows]]
    columns = columns_of_frame(dataset.problems)
    dims = np.stack([columns[name] for name in model.columns], axis=1)[rows]
    served = Selector.of_serving(model, serving).select(dims, use_known=False).candidate
    picks = np.full(len(dataset.problems), own_choice.NONE)
    picks[rows] = np.where(served >= 0, ranking.positions(dataset, model)[served], own_choice.NONE)
    return evaluate_picks(ranking.rank_held_out(model, dataset, threads, picks), model.hardware, SERVED, context, model)


def evaluate_picks(
    scored: Scored, gpu: Hardware, basis: str, context: Context, model: Model | None = None
) -> Evaluation:
    """Evaluate the picks of a ranking; if ``model`` made it, its worst picks are explained."""
    dataset, uses = scored.dataset, context.uses
    several = len(np.unique(scored.fold[scored.rows])) > 1
    if not (several or dataset.trains.any()):
        raise UserError(
            f"{dataset.operation}: the dataset has no problem with split train; the baselines are chosen on them, "
            "give the dataset that the model was trained on"
        )
    if not dataset.held_out.any():
        # Layers that are left out in turn belong to no network that was set aside.
        uses = uses.iloc[:0]
    problems = dataset.problems.set_index("problem_key", drop=False).assign(best_us=best_us(dataset))
    evaluated = problems.iloc[scored.rows]
    judged = dataset.held_out if dataset.held_out.any() else np.ones(len(problems), bool)
    missing = problems[judged & ~ranking.has_pick(dataset)]
    picked = pd.Series(scored.picked, index=evaluated.index)
    best = evaluated["best_us"]
    taken = best / picked.where(picked > 0)
    occurrences = uses.groupby("problem_key")["occurrences"].sum()
    used = occurrences.reindex(problems.index).fillna(1.0 if uses.empty else 0.0)
    weight, ran = used[evaluated.index], taken.notna()
    uncovered = float((used[missing.index] * _estimated_us(missing, evaluated, gpu, context.libraries)).sum())
    covered = float((weight * best).sum())
    floor = noise_floor.best_possible(scored, gpu, context.simulated)
    possible = floor["perfect_selector"]
    offered = scored.pool.sum(axis=1)
    names = dataset.candidates["candidate"].to_numpy()
    chosen = np.where(scored.picks >= 0, names[scored.picks], "")

    def by_time(rows: np.ndarray) -> float:
        times = weight[rows] * best[rows], weight[rows] * taken[rows]
        return efficiency.percent(_ratio(times[0][ran[rows]].sum(), times[1].sum()))

    bounds = calibrated_bounds(dataset)
    classes = held_out_classes(dataset, scored.rows, scored.fold, bounds)
    evidence = [(name, classes == place) for place, name in enumerate(EVIDENCE_CLASSES)]
    kinds = layer_kinds(evaluated)
    own = own_choice.library_choices(dataset)
    return Evaluation(
        **dict(Origin.of(dataset)),
        basis=basis,
        layers=len(evaluated),
        without_candidate=len(missing),
        covered_time=efficiency.percent(covered / (covered + uncovered) if covered else 0.0),
        candidates=len(names),
        timed=efficiency.percent((((scored.achieved > 0) & scored.pool).sum(axis=1) / np.maximum(offered, 1)).mean()),
        first=Summary.of(scored.picked),
        interval=efficiency.intervals(scored.picked),
        best_of_2=Summary.of(scored.fastest_of(2)),
        best_of_3=Summary.of(scored.fastest_of(3)),
        within_2_percent=efficiency.percent((scored.picked >= AS_GOOD_AS_BEST).mean()),
        by_time=by_time(np.ones(len(evaluated), bool)),
        by_kind=parts_by_kind(scored, kinds, possible, (weight * best).to_numpy()),
        by_evidence={
            name: EvidencePart(
                layers=int(rows.sum()),
                efficiency=Summary.of(scored.picked[rows]),
                possible=bound_of(possible[rows], scored.picked[rows]),
                share=efficiency.percent(rows.mean()),
                by_time=by_time(rows),
            )
            for name, rows in evidence
            if rows.any()
        },
        evidence=bounds,
        networks=_networks(uses, best, taken, missing.index),
        worst=_worst(scored, chosen, model),
        baselines=_baselines(scored, gpu, several),
        noise_floor=NoiseFloor(
            basis=noise_floor.basis(scored, context.simulated),
            **{name: bound_of(values, scored.picked) for name, values in floor.items()},
        ),
        libraries=[one for name in context.libraries if (one := _beside(str(name), context.libraries[name], taken))],
        harm={} if own is None else _harm(scored, own[scored.rows], kinds),
        picks={
            key: Pick(candidate=name, efficiency=efficiency.percent(value))
            for key, name, value in sorted(zip(evaluated.index, chosen.tolist(), scored.picked, strict=True))
        },
    )


def _harm(scored: Scored, own: np.ndarray, kinds: np.ndarray) -> dict[str, Harm]:
    """Return the harm of the picks beside the library's own choices, int [R], offered by the model or not."""
    return harm_by_kind(scored.achieved[np.arange(len(own)), own], scored.picked, scored.picks != own, kinds)


def _worst(scored: Scored, chosen: np.ndarray, model: Model | None) -> list[LayerEvaluation]:
    """Return the worst picks, worst first, each with what spoke for it."""
    problems, names = scored.problems, scored.dataset.candidates["candidate"].to_numpy()
    keys = problems["problem_key"].to_numpy()
    listed = sorted(range(len(keys)), key=lambda i: (scored.picked[i], keys[i]))[:WORST_LISTED]
    reasons: list[list[Contribution]] = [[] for _ in listed]
    if model is not None and not isinstance(model, OutsideModel):
        pick, best = scored.picks[listed], scored.best[listed]
        pick = np.where(pick >= 0, pick, best)
        reasons = explain.contributions(model, problems.iloc[listed], scored.dataset.candidates, pick, best)
    return [
        LayerEvaluation(
            network=str(problems["network"].iloc[i]),
            layer=str(problems["layer"].iloc[i]),
            problem=dims_text(problems.iloc[i]),
            pick=str(chosen[i]),
            best=str(names[scored.best[i]]),
            efficiency=efficiency.percent(scored.picked[i]),
            reasons=reason,
        )
        for i, reason in zip(listed, reasons, strict=True)
    ]


def _baselines(scored: Scored, gpu: Hardware, several: bool) -> dict[str, Baseline]:
    """Return choices without a model; best single kernels have names unless each of ``several`` folds has its own."""
    table = {
        name: Baseline(
            meaning=baselines.MEANINGS[name], efficiency=Summary.of(values), speed=_speed(scored.picked, values)
        )
        for name, values in baselines.score_baselines(scored, gpu).items()
    }
    if not several:
        names = scored.dataset.candidates["candidate"]
        best = baselines.best_single(scored.dataset, scored.dataset.trains)
        single = {"candidates": {f"{ndim}d": str(names.iloc[row]) for ndim, row in best.items()}}
        table["best_single_kernel"] = table["best_single_kernel"].model_copy(update=single)
    return table


def best_us(dataset: Dataset) -> np.ndarray:
    """Return the microseconds of the fastest candidate of each problem, NaN without one."""
    flops = implicit_gemm(dataset.problems, dataset.operation.rpartition("_")[0])["flops"].to_numpy(np.float64)
    tflops = dataset.best_tflops
    return np.divide(flops * 1e-6, tflops, out=np.full(len(flops), np.nan), where=tflops > 0)


def _estimated_us(missing: pd.DataFrame, evaluated: pd.DataFrame, gpu: Hardware, libraries: pd.DataFrame) -> pd.Series:
    """Return microseconds of problems that nothing runs: a library's time, else by the others' roofline share."""
    if missing.empty:
        return pd.Series(dtype=float)
    slowdown = (evaluated["best_us"] / roofline_us(evaluated, gpu)).median()
    estimate = pd.Series(roofline_us(missing, gpu) * slowdown, index=missing.index)
    return libraries.reindex(missing.index).min(axis=1).fillna(estimate) if len(libraries.columns) else estimate


def _networks(uses: pd.DataFrame, best: pd.Series, taken: pd.Series, missing: pd.Index) -> list[NetworkEvaluation]:
    table = uses.assign(
        best=uses["problem_key"].map(best),
        taken=uses["problem_key"].map(taken),
        missing=uses["problem_key"].isin(missing),
    )
    table = table[table["best"].notna() | table["missing"]]
    runs = []
    for (network, run), part in table.groupby(["network", "run"], sort=True):
        ran = part[part["taken"].notna()]
        if len(ran):
            times = ran[["best", "taken"]].mul(ran["occurrences"], axis=0).sum()
            runs.append(
                NetworkEvaluation(
                    network=str(network),
                    run=str(run),
                    layers=len(ran),
                    without_candidate=int(part["missing"].sum()),
                    failed=int((part["best"].notna() & part["taken"].isna()).sum()),
                    efficiency=efficiency.percent(_ratio(times["best"], times["taken"])),
                )
            )
    return sorted(runs, key=lambda one: (one.efficiency, one.network, one.run))


def _beside(name: str, theirs: pd.Series, taken: pd.Series) -> LibraryComparison | None:
    """Return the picks beside one library; None where no layer has both times."""
    times = pd.DataFrame({"theirs": theirs, "taken": taken}).dropna()
    if times.empty:
        return None
    theirs, taken = times["theirs"], times["taken"]
    return LibraryComparison(
        library=name,
        layers=len(times),
        speed=_speed(theirs.to_numpy(), taken.to_numpy()),
        slower=efficiency.percent((theirs / taken <= 1 / SLOWER).mean()),
    )


def _speed(picked: np.ndarray, other: np.ndarray) -> float:
    """Return the geometric mean of one efficiency over another where both are known; 0 where they nowhere are."""
    both = (picked > 0) & (other > 0)
    return round(float(np.exp(np.log(picked[both] / other[both]).mean())), 4) if both.any() else 0.0


def _ratio(best: float, taken: float) -> float:
    return float(best) / float(taken) if taken else 0.0
