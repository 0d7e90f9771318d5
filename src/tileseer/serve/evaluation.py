"""How good the picks are that ship, on layers that no model was trained on: layer by layer, by network, by library.

A pick is one of the served model (``serve.cuts``), not of the model with all its trees for all candidates. Where no
layers were set aside, layers are left out in turn, and the picks are those of the models without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tileseer.core.documents import Document
from tileseer.dataset.dataset import Dataset
from tileseer.gpus.hardware import Hardware
from tileseer.learn import efficiency
from tileseer.learn.model_schema import Origin, Summary
from tileseer.learn.ranking import dims_text
from tileseer.problems.implicit_gemm import implicit_gemm

if TYPE_CHECKING:
    from tileseer.learn.validation_report import Validation

SLOWER = 1.02
"""A pick that takes so much longer than another library's choice is slower than it."""


class LayerEvaluation(Document):
    """The pick of one layer."""

    network: str
    layer: str
    problem: str
    """The 19 dimensions."""
    pick: str
    efficiency: float


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


class Evaluation(Origin):
    """The picks of one operation; efficiencies and shares in percent."""

    basis: str
    """What the layers are, and whose picks these are."""
    layers: int
    """With a measured candidate: the efficiencies are of these."""
    without_candidate: int
    """Layers that no candidate ran, or that the model leaves to a library whose own choice was wrong: no efficiency
    includes them."""
    covered_layers: float
    covered_time: float
    """Share of the time of all layers in those with a candidate. Where nothing was measured, the time is estimated by
    the roofline."""
    first: Summary
    """Of the pick."""
    best_of_2: Summary
    """Of the fastest of the short list (``Selector.shortlist``) of two, each timed without error."""
    best_of_3: Summary
    by_time: float
    """Time of the fastest candidates over the time of the picks, over all layers with all their uses."""
    networks: list[NetworkEvaluation]
    """The worst first; empty where layers belong to no network."""
    worst_layer: LayerEvaluation
    without_model: Summary
    """Of the best choice that needs no model, such as one fixed kernel."""
    possible: Summary
    """Of a perfect model, or where that is unknown of a perfect selector."""
    libraries: list[LibraryComparison]

    @property
    def worst_network(self) -> NetworkEvaluation | None:
        """The network whose picks cost the most time."""
        return self.networks[0] if self.networks else None


@dataclass(frozen=True)
class Picks:
    """The order of the candidates on the evaluated layers, as far as figures need it."""

    basis: str
    first: pd.Series
    """Efficiency of the pick (0..1) by problem key."""
    names: pd.Series
    """The picks by problem key."""
    best_of_2: Summary
    best_of_3: Summary


def picks_of_report(report: Validation, basis: str) -> Picks:
    """The picks of a validation report."""
    return Picks(
        basis,
        pd.Series({key: pick.efficiency / 100 for key, pick in report.picks.items()}, dtype=float),
        pd.Series({key: pick.candidate for key, pick in report.picks.items()}, dtype=object),
        report.efficiency_best_of_2,
        report.efficiency_best_of_3,
    )


def evaluate_picks(
    picks: Picks, dataset: Dataset, report: Validation, gpu: Hardware, uses: pd.DataFrame, libraries: pd.DataFrame
) -> Evaluation:
    """Evaluate ``picks`` on the layers of their ``report``.

    ``uses`` has the columns of ``problem_table.USES``; ``libraries`` are microseconds by problem key, one column per
    library.
    """
    problems = dataset.problems.set_index("problem_key", drop=False)
    problems = problems.assign(best_us=best_us(dataset))
    evaluated = problems.loc[picks.first.index]
    judged = dataset.held_out if dataset.held_out.any() else np.ones(len(problems), bool)
    missing = problems[judged & ~problems.index.isin(picks.first.index)]
    best = evaluated["best_us"]
    taken = best / picks.first.where(picks.first > 0)
    occurrences = uses.groupby("problem_key")["occurrences"].sum()
    used = occurrences.reindex(problems.index).fillna(1.0 if uses.empty else 0.0)
    weight, ran = used[evaluated.index], taken.notna()
    uncovered = float((used[missing.index] * _estimated_us(missing, evaluated, gpu, libraries)).sum())
    covered = float((weight * best).sum())
    position = int(picks.first.to_numpy().argmin())
    worst = str(picks.first.index[position])
    baseline = max(report.baselines.values(), key=lambda one: one.efficiency.mean)
    return Evaluation(
        **dict(Origin.of(dataset)),
        basis=picks.basis,
        layers=len(evaluated),
        without_candidate=len(missing),
        covered_layers=efficiency.percent(len(evaluated) / (len(evaluated) + len(missing))),
        covered_time=efficiency.percent(covered / (covered + uncovered) if covered else 0.0),
        first=Summary.of(picks.first.to_numpy()),
        best_of_2=picks.best_of_2,
        best_of_3=picks.best_of_3,
        by_time=efficiency.percent(_ratio((weight * best)[ran].sum(), (weight * taken).sum())),
        networks=_networks(uses, best, taken, missing.index),
        worst_layer=LayerEvaluation(
            network=problems["network"][worst],
            layer=problems["layer"][worst],
            problem=dims_text(evaluated.iloc[position]),
            pick=picks.names[worst],
            efficiency=efficiency.percent(picks.first[worst]),
        ),
        without_model=baseline.efficiency,
        possible=report.noise_floor.best.efficiency,
        libraries=[comparison for name in libraries if (comparison := _beside(str(name), libraries[name], taken))],
    )


def best_us(dataset: Dataset) -> np.ndarray:
    """Microseconds of the fastest candidate of each problem, NaN without one."""
    flops = implicit_gemm(dataset.problems, dataset.operation.rpartition("_")[0])["flops"].to_numpy(np.float64)
    tflops = dataset.best_tflops
    return np.divide(flops * 1e-6, tflops, out=np.full(len(flops), np.nan), where=tflops > 0)


def _roofline_us(problems: pd.DataFrame, gpu: Hardware) -> pd.Series:
    """Microseconds that problems of one operation take at least."""
    gemm = implicit_gemm(problems, str(problems["variant"].iloc[0]))
    peak = gpu.peak_tflops_fp32 if problems["dtype"].iloc[0] == "fp32" else gpu.peak_tflops_16bit
    moved = gemm["bytes_read"] + gemm["bytes_written"]
    return pd.Series(np.maximum(gemm["flops"] / peak, moved / gpu.hbm_tb_per_s) * 1e-6, index=problems.index)


def _estimated_us(missing: pd.DataFrame, evaluated: pd.DataFrame, gpu: Hardware, libraries: pd.DataFrame) -> pd.Series:
    """Microseconds of problems without a candidate: a library's time, else by the roofline share of the others."""
    if missing.empty:
        return pd.Series(dtype=float)
    slowdown = (evaluated["best_us"] / _roofline_us(evaluated, gpu)).median()
    estimate = _roofline_us(missing, gpu) * slowdown
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
    """The picks beside one library; None where no layer has both times."""
    times = pd.DataFrame({"theirs": theirs, "taken": taken}).dropna()
    if times.empty:
        return None
    speed = times["theirs"] / times["taken"]
    return LibraryComparison(
        library=name,
        layers=len(speed),
        speed=round(float(np.exp(np.log(speed).mean())), 4),
        slower=efficiency.percent((speed <= 1 / SLOWER).mean()),
    )


def _ratio(best: float, taken: float) -> float:
    return float(best) / float(taken) if taken else 0.0
