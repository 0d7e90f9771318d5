"""How good the picks of a ranking are: all figures of its judged layers, those that ship above all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tileseer.core.documents import Document
from tileseer.core.errors import require
from tileseer.data.dataset import Dataset
from tileseer.facts.hardware import Hardware
from tileseer.judge.figures import (
    Baseline,
    Figures,
    Harm,
    Interval,
    LibraryComparison,
    beside_libraries,
    figures,
    groups,
    harm,
    interval_of_mean,
    longest_layers,
    without_model,
)
from tileseer.judge.layers import Truth, judged_layers, noise_basis
from tileseer.judge.ranking import Scored
from tileseer.learn.evidence import EVIDENCE_CLASSES, EvidenceClass
from tileseer.learn.model_schema import Origin, percent
from tileseer.measure.device import STATUSES, list_failures
from tileseer.problems.problem_csv import without_defaults

DRIFT = 0.01
"""A pair was measured on a drifted device if the sentinel's time had changed by more than this share."""


class NetworkEvaluation(Document):
    """The picks of one run of a network, each layer as often as it occurs."""

    network: str
    run: str
    layers: int
    """These as in ``Figures``."""
    without_candidate: int
    failed: int
    time_us: float
    by_time: float


class LayerEvaluation(Document):
    """The pick of one layer."""

    network: str
    layer: str
    problem: str
    """The 19 dimensions."""
    efficiency: float
    """0 for a pick that did not run."""

    @classmethod
    def of(cls, row: pd.Series) -> LayerEvaluation:
        """Return the evaluation of a row of judged layers."""
        return cls(**row[["network", "layer", "problem"]], efficiency=percent(row["efficiency"]))

    @property
    def name(self) -> str:
        """Network and layer, or the problem of a layer of none."""
        return f"{self.network} {self.layer}".strip() or without_defaults(self.problem)


class Times(Document):
    """The quality of all times of the dataset."""

    timed: int
    """Pairs."""
    failed: str
    """Pairs that failed, by status, in words."""
    error: float | None = None
    """Median relative standard error of a time, percent; None where it is unknown."""
    drifted: float | None = None
    """Share of the pairs that were timed while the device had drifted, percent; None where it is unknown."""

    @classmethod
    def of(cls, dataset: Dataset) -> Times:
        """Return the quality of the times of a dataset."""
        counts = np.bincount(dataset.status, minlength=len(STATUSES)).tolist()
        error, sentinel = (
            values[dataset.ok & np.isfinite(values)] for values in (dataset.relative_error, dataset.sentinel)
        )
        return cls(
            timed=int(dataset.ok.sum()),
            failed=list_failures(dict(zip(STATUSES, counts, strict=True))) or "none",
            error=percent(np.median(error)) if len(error) else None,
            drifted=percent((np.abs(sentinel - 1) > DRIFT).mean()) if len(sentinel) else None,
        )


class Evaluation(Origin, Figures):
    """The picks of one operation; efficiencies and shares in percent. All but the networks follows from its layers."""

    basis: str
    """What the layers are, and whose picks these are."""
    candidates: int
    timed: float
    """Mean share of the candidates that could be picked that were timed with success."""
    interval: Interval
    """Bootstrap interval (95 %) over layers of the mean efficiency of the pick."""
    by_kind: dict[str, Figures]
    """By kind of layer (``layers.layer_kinds``)."""
    by_evidence: dict[EvidenceClass, Figures]
    """By how the layers stand to what was measured (``learn.evidence``), the problems that trained for the pick."""
    networks: list[NetworkEvaluation]
    """The worst by time first; empty where layers belong to no network."""
    worst_layer: LayerEvaluation
    worst_long_layer: LayerEvaluation
    """The worst of the layers that take most time (``figures.longest_layers``)."""
    baselines: dict[str, Baseline]
    possible_basis: str
    """What ``possible`` rests on."""
    libraries: list[LibraryComparison]
    harm: Harm | None = None
    """Where a library offers the candidates."""
    times: Times
    peak_tflops: float
    """Dense matrix peak of the GPU for the data type, and its bandwidth: what bounds the layers."""
    memory_tb_per_s: float

    @property
    def worst_network(self) -> NetworkEvaluation | None:
        """The network whose picks cost the most time."""
        return self.networks[0] if self.networks else None

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
    def summary(self) -> str:
        """The figures in one line."""
        left = f"; {self.without_candidate} more layers have no candidate" if self.without_candidate else ""
        return (
            f"picks for {self.layers:,} unseen layers have efficiency {self.efficiency.mean:.1f} % (mean; P10 "
            f"{self.efficiency.p10:.1f} %, worst {self.efficiency.min:.1f} %; {self.device_kind} times) and together "
            f"take {self.sum_over_best:.3f} times as long as the fastest; the best fixed choice has "
            f"{self.best_baseline.efficiency.mean:.1f} %{left}"
        )


@dataclass(frozen=True)
class Context:
    """What picks are evaluated with, beside the dataset."""

    uses: pd.DataFrame
    """The problems of each run of a network (``problem_table.USES``)."""
    libraries: pd.DataFrame
    """Microseconds of other libraries by problem key, one column per library."""
    truth: Truth | None = None
    """Of a device that knows its true times."""


def evaluate(scored: Scored, gpu: Hardware, context: Context) -> tuple[Evaluation, pd.DataFrame]:
    """Evaluate the picks of a ranking; return the evaluation and its judged layers (``layers.LAYERS``)."""
    require("scored", scored, Scored, "what rank_by, rank_held_out or rank_left_out returns")
    require("gpu", gpu, Hardware, "a product: facts.hardware.read_hardware(Path('config/hardware.yaml'), NAME)")
    require("context", context, Context, "a tileseer.judge.evaluation.Context")
    dataset, uses = scored.dataset, context.uses
    if not dataset.held_out.any():
        # Layers that are left out in turn belong to no network that was set aside.
        uses = uses.iloc[:0]
    layers = judged_layers(scored, gpu, uses, context.libraries, context.truth)
    by_evidence = {name: figures(rows) for name, rows in groups(layers, "evidence")}
    worst, long = (rows.sort_values(["efficiency", "problem_key"]).iloc[0] for rows in (layers, longest_layers(layers)))
    found = Evaluation(
        **dict(Origin.of(dataset)),
        **dict(figures(layers)),
        basis=scored.basis,
        candidates=len(dataset.candidates),
        timed=percent(layers["timed"].mean()),
        interval=interval_of_mean(layers["efficiency"].dropna().to_numpy()),
        by_kind={name: figures(rows) for name, rows in groups(layers, "kind")},
        by_evidence={name: by_evidence[name] for name in EVIDENCE_CLASSES if name in by_evidence},
        networks=_networks(layers, uses),
        worst_layer=LayerEvaluation.of(worst),
        worst_long_layer=LayerEvaluation.of(long),
        baselines=without_model(layers),
        possible_basis=noise_basis(dataset, context.truth),
        libraries=beside_libraries(layers),
        harm=harm(layers),
        times=Times.of(dataset),
        peak_tflops=gpu.peak_tflops(dataset.problems["dtype"].iloc[0]),
        memory_tb_per_s=gpu.hbm_tb_per_s,
    )
    return found, layers


def _networks(layers: pd.DataFrame, uses: pd.DataFrame) -> list[NetworkEvaluation]:
    """Return the figures of each run of a network that has a layer with a candidate, the worst by time first."""
    named = uses[["network", "run", "problem_key", "occurrences"]].rename(columns={"occurrences": "uses"})
    table = named.merge(layers.drop(columns=["network", "uses"]), on="problem_key")
    of_figures = NetworkEvaluation.model_fields.keys() & Figures.model_fields.keys()
    found = [
        NetworkEvaluation(network=str(network), run=str(run), **figures(rows).model_dump(include=of_figures))
        for (network, run), rows in table.groupby(["network", "run"], sort=True)
        if rows["best_us"].notna().any()
    ]
    return sorted(found, key=lambda one: (one.by_time, one.network, one.run))
