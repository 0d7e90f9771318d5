"""The serving stage: what a dispatcher runs of a trained model.

C++ header, known problems, kernel list and figures of one operation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.config.model import ServingParameters, ServingSettings
from tileseer.core import documents, parquet
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.core.script import Settings
from tileseer.dataset.dataset import Dataset
from tileseer.dataset.library_times import read_library_times
from tileseer.gpus.hardware import target
from tileseer.kernels import candidates
from tileseer.kernels.costs.coefficients import Coefficients, load_coefficients
from tileseer.kernels.libraries import library_of_arch
from tileseer.learn import efficiency, model_files, own_choice, ranking
from tileseer.learn.model import Model
from tileseer.learn.model_schema import Origin, Summary
from tileseer.learn.validation_report import Validation
from tileseer.problems.problem_rows import columns_of_frame
from tileseer.problems.problem_table import read_uses
from tileseer.serve import evaluation, header, kernel_set, serving_files
from tileseer.serve.cuts import calibrated_cuts
from tileseer.serve.evaluation import Evaluation
from tileseer.serve.selector import Selector
from tileseer.serve.serving_files import Cut, KernelEntry

SERVED = "layers of networks that no model was trained on; picks of the served model"
SCORED_WHOLE = "layers of networks that no model was trained on; picks among all that the library offers"
CALIBRATING = 250
"""Training problems whose scores calibrate the cuts: their margins are within a tenth of those of 1200."""
PRUNED_FLOOR = 0.7
"""Share of its best efficiency that the pruned set keeps of each training problem. It costs one kernel at most of a
library of GEMMs; without it, an unseen layer of an H200 had 57 %, with it 77 %."""
LEFT_OUT = "layers left out of the training in turn; picks of the models without them"


@dataclass(frozen=True)
class ServingInputs:
    """What serving needs beside the model and its dataset."""

    template: Path
    """Of the C++ header."""
    api: Path
    """Table of CK Tile names, for the registry keys."""
    coefficients: Coefficients
    """Are published, so that kernels outside the pool can be scored."""
    settings: ServingParameters

    @classmethod
    def read(cls, template: Path, api: Path, coefficients: Path, settings: Settings) -> Self:
        """Read the files of the stage."""
        overrides = ServingSettings.of(settings, "serving").overrides
        return cls(template, api, load_coefficients(coefficients), overrides)


@dataclass(frozen=True)
class EvaluationInputs:
    """What the picks that ship are evaluated with."""

    report: Validation
    """Of the model with all its trees."""
    uses: pd.DataFrame
    """The problems of each run of a network (``problem_table.USES``)."""
    libraries: pd.DataFrame
    """Microseconds of other libraries by problem key."""

    @classmethod
    def read(cls, report: Path, uses: Path | None, library_times: Sequence[Path]) -> Self:
        """Read the files of the stage."""
        return cls(documents.read_document(report, Validation), read_uses(uses), read_library_times(library_times))


@dataclass(frozen=True)
class Served:
    """What the stage writes."""

    selector: Selector
    header: str
    known: pa.Table
    kernels: serving_files.Kernels
    figures: serving_files.Serving
    estimates: Coefficients | serving_files.NoEstimates
    evaluation: Evaluation | None = None
    """None where the model was not validated."""

    def save(self, folder: Path) -> None:
        """Write ``model_files.SERVING_FILES`` into ``folder``, each whole or not at all."""
        write_text(folder / model_files.SELECTOR, self.header)
        documents.write_document(folder / model_files.KERNELS, self.kernels)
        documents.write_document(folder / model_files.SERVING, self.figures)
        documents.write_document(folder / model_files.ESTIMATES, self.estimates)
        if self.evaluation is not None:
            documents.write_document(folder / model_files.EVALUATION, self.evaluation)
        parquet.write_table(self.known, folder / model_files.KNOWN)


@dataclass(frozen=True)
class _MeasuredPool:
    """The pool of a model on the problems of its dataset."""

    measurements: Dataset
    model: Model
    threads: int

    @cached_property
    def dims(self) -> np.ndarray:
        """int64 [P, 19], or with the layout [P, 20]."""
        columns = columns_of_frame(self.measurements.problems)
        return np.stack([columns[name] for name in self.model.columns], axis=1)

    @cached_property
    def achieved(self) -> np.ndarray:
        """Measured efficiency, [P, Q]; 0 where there is none."""
        every = np.arange(len(self.measurements.problems))
        return self.measurements.grid(every)[:, ranking.positions(self.measurements, self.model)]

    @cached_property
    def scores(self) -> np.ndarray:
        """Scores, [P, Q]; -inf where a candidate cannot run or is not offered.

        Of training problems, which only the cuts are calibrated on, about ``CALIBRATING`` have scores.
        """
        problems, trains = self.measurements.problems, np.flatnonzero(self.measurements.trains)
        rows = np.concatenate([self.unseen(), trains[:: max(1, len(trains) // CALIBRATING)]])
        lists = ranking.listed(self.measurements, self.model)
        scores = np.full((len(problems), len(self.model.pool)), -np.inf)
        of_rows = None if lists is None else lists[rows]
        scores[rows] = self.model.predict(problems.iloc[rows], threads=self.threads, offered=of_rows)
        return scores

    def cuts(self) -> Sequence[Cut]:
        """Where candidates leave the running."""
        training = self.measurements.trains & np.isfinite(self.scores).any(axis=1)
        if not training.any():
            raise UserError(
                f"{self.measurements.operation}: no candidate can run a training problem; there is nothing to serve"
            )
        problems = self.measurements.problems[training]
        return calibrated_cuts(self.model, problems, self.scores[training], self.threads)

    def listed(self, rows: np.ndarray, own: np.ndarray, count: int) -> np.ndarray:
        """Efficiency of the fastest of the short lists (``Selector.shortlist``) of problems, [n].

        ``own`` [n]: efficiency of what runs without timing, which is always in the list.
        """
        order = np.argsort(-self.scores[rows], axis=1, kind="stable")[:, :count]
        runs = np.isfinite(np.take_along_axis(self.scores[rows], order, axis=1))
        reached = np.where(runs, np.take_along_axis(self.achieved[rows], order, axis=1), 0.0)
        return np.maximum(reached.max(axis=1, initial=0.0), own)

    def known_problems(self) -> pa.Table:
        """The problems on which a candidate ran, in the order of their dimensions.

        The winner of single timings is a little lucky: its TFLOPS are what was measured, not a promise.
        """
        order = np.lexsort(self.dims.T[::-1])
        rows = order[self.achieved[order].max(axis=1, initial=0.0) > 0]
        best = self.achieved[rows].argmax(axis=1)
        columns = {
            **{name: self.dims[rows, i].astype(np.int32) for i, name in enumerate(self.model.columns)},
            "candidate": self.model.pool["candidate"].to_numpy()[best],
            "row": best.astype(np.int32),
            "tflops": self.measurements.best_tflops[rows] * self.achieved[rows, best],
            "device_kind": [self.measurements.device_kind] * len(rows),
        }
        fields = dict.fromkeys(columns, pa.int32()) | {f.name: f.type for f in serving_files.KNOWN_PROBLEMS}
        return pa.table(columns, schema=pa.schema(fields.items()))

    def unseen(self) -> np.ndarray:
        """Rows of the validation problems with a pick that can be judged."""
        if not ranking.has_validation_split(self.measurements):
            return np.empty(0, np.int64)
        rows = ranking.validation_rows(self.measurements)
        return rows[ranking.has_pick(self.measurements)[rows]]


def serve_training(
    dataset: Path, training: Path, inputs: ServingInputs, evaluated_with: EvaluationInputs, threads: int
) -> tuple[Served, str]:
    """What serves a trained model, evaluated; and a line about it."""
    measurements = Dataset.read(dataset)
    model = Model.read_for(training, measurements, dataset)
    served = serve_model(measurements, model, inputs, threads, evaluated_with)
    return served, _summary(served)


def _summary(served: Served) -> str:
    """A line about what was made."""
    kernels, shipped = served.kernels, served.evaluation
    words = f"{kernels.pruned_size} of {kernels.pool_size} kernels stay within {100 * kernels.allowed_loss:g} % of all"
    if shipped is None:
        return words
    return (
        f"picks on {shipped.layers} layers: efficiency mean {shipped.first.mean:.2f} %, P10 {shipped.first.p10:.2f} %, "
        f"minimum {shipped.first.min:.2f} %; {shipped.without_candidate} more layers without a candidate "
        f"({kernels.device_kind}); {words}"
    )


def serve_model(
    measurements: Dataset, model: Model, inputs: ServingInputs, threads: int = 1,
    evaluated_with: EvaluationInputs | None = None,
) -> Served:  # fmt: skip
    """Make what serves ``model``."""
    pool = _MeasuredPool(measurements, model, threads)
    cuts, known, unseen, kernels = pool.cuts(), pool.known_problems(), pool.unseen(), _kernels(pool, inputs)
    selector = Selector(model, cuts, model.pool["kernel"].isin(kernels.pruned).to_numpy(), known)
    served = None
    if ranking.has_validation_split(measurements) and own_choice.library_choices(measurements) is None:
        served = selector.select(pool.dims[unseen], use_known=False).candidate
    return Served(
        selector=selector,
        header=header.render_header(inputs.template, selector),
        known=known,
        kernels=kernels,
        figures=serving_files.Serving(
            **Origin.of(measurements).model_dump(),
            feature_set=model.spec.feature_set,
            trees=model.tree_count,
            stages=list(cuts),
            known_problems=known.num_rows,
            validation=None if served is None else _cost(pool, unseen, selector, served),
        ),
        estimates=inputs.coefficients
        if library_of_arch(measurements.arch).estimates_registers
        else serving_files.NoEstimates(),
        evaluation=_evaluate(pool, served, unseen, evaluated_with) if evaluated_with else None,
    )


def _evaluate(
    pool: _MeasuredPool, served: np.ndarray | None, unseen: np.ndarray, inputs: EvaluationInputs
) -> Evaluation:
    """Evaluate the picks ``served`` on the problems ``unseen``; None: those of the validation report."""
    uses = inputs.uses
    if served is not None:
        picks = _served_picks(pool, served, unseen)
    elif len(unseen):
        picks = _offered_picks(pool, inputs.report, unseen)
    else:
        picks, uses = evaluation.picks_of_report(inputs.report, LEFT_OUT), uses.iloc[:0]
    return evaluation.evaluate_picks(
        picks, pool.measurements, inputs.report, pool.model.hardware, uses, inputs.libraries
    )


def _served_picks(pool: _MeasuredPool, served: np.ndarray, rows: np.ndarray) -> evaluation.Picks:
    """The picks ``served`` on problems, and the short lists."""
    keys = pd.Index(pool.measurements.problems["problem_key"].to_numpy()[rows], name="problem_key")
    names = pool.model.pool["candidate"].to_numpy()[served]
    first, *lists = (pool.listed(rows, _reached(pool, rows, served), count) for count in (0, 2, 3))
    return evaluation.Picks(
        SERVED,
        pd.Series(first, index=keys),
        pd.Series(names, index=keys).where(served >= 0, ""),
        *map(Summary.of, lists),
    )


def _offered_picks(pool: _MeasuredPool, report: Validation, rows: np.ndarray) -> evaluation.Picks:
    """The picks of a report where a library offers the candidates, and the short lists with its own choice."""
    own = own_choice.library_choices(pool.measurements)
    assert own is not None
    achieved = pool.measurements.grid(rows)
    first = achieved[np.arange(len(rows)), own[rows]]
    has = np.isin(own[rows], ranking.positions(pool.measurements, pool.model))
    # Without the own choice in the pool, the list is that choice alone.
    lists = [np.where(has, pool.listed(rows, first, count), first) for count in (2, 3)]
    picks = evaluation.picks_of_report(report, SCORED_WHOLE)
    return replace(picks, best_of_2=Summary.of(lists[0]), best_of_3=Summary.of(lists[1]))


def _reached(pool: _MeasuredPool, rows: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Efficiency of a candidate of each problem, 0 without one, [n]."""
    return np.where(candidate >= 0, pool.achieved[rows, candidate], 0.0)


def header_of(measurements: Dataset, model: Model, template: Path, threads: int = 1) -> str:
    """The C++ header alone of a model, all of whose kernels are linked."""
    pool = _MeasuredPool(measurements, model, threads)
    every = np.ones(len(model.pool), bool)
    return header.render_header(template, Selector(model, pool.cuts(), every, pool.known_problems()))


def _kernels(pool: _MeasuredPool, inputs: ServingInputs) -> serving_files.Kernels:
    """The kernels of the pool and the pruned set."""
    measurements, kernels, allowed = pool.measurements, pool.model.pool, inputs.settings.pruned_loss
    number, names = pd.factorize(kernels["kernel"], sort=True)
    by_kernel = kernel_set.best_by_kernel(pool.achieved, number, len(names))
    split = measurements.problems["split"].to_numpy()
    parts = {name: (split == name) & (by_kernel.max(axis=1) > 0) for name in ("train", "validation") if name in split}
    own = by_kernel[parts["train"]]
    chosen = kernel_set.smallest_set(own, np.full(len(own), 1 / len(own)), allowed, floor=PRUNED_FLOOR)
    aliases = dict(zip(kernels["kernel"], kernels["aliases"], strict=True))
    return serving_files.Kernels(
        **Origin.of(measurements).model_dump(),
        meaning="`pruned` alone loses at most `allowed_loss` of the mean efficiency on the training problems, and "
        f"{1 - PRUNED_FLOOR:.0%} of one, measured best against measured best; `oracle_within_pruned` is that share, in "
        "percent",
        allowed_loss=allowed,
        pool_size=len(names),
        pruned_size=len(chosen),
        oracle_within_pruned={
            name: Summary.of(by_kernel[rows][:, chosen].max(axis=1) / by_kernel[rows].max(axis=1))
            for name, rows in parts.items()
        },
        pruned=[str(names[number]) for number in chosen],
        kernels=_entries(list(map(str, names)), aliases, inputs.api, measurements.arch),
    )


def _entries(names: list[str], aliases: Mapping[str, str], api: Path, arch: str) -> list[KernelEntry]:
    """How a dispatcher finds each kernel; ``aliases``: other names of kernels."""
    library = library_of_arch(arch)
    if library.emitter is not None:
        entries = library.emitter.entries(names, api, target(arch))
    else:
        entries = [{"kernel": name, "registry_key": asdict(library.kernel.parse(name))} for name in names]
    return [
        KernelEntry(**entry, aliases=aliases.get(name, "").split(candidates.ALIASES) if aliases.get(name) else None)
        for name, entry in zip(names, entries, strict=True)
    ]


def _cost(pool: _MeasuredPool, rows: np.ndarray, selector: Selector, served: np.ndarray) -> serving_files.Cost:
    """What serving costs on the problems ``rows``, whose picks are ``served``.

    Figures of the full model, of the served model, and of the served model with the pruned set alone.
    """
    scores, dims = pool.scores[rows], pool.dims[rows]

    best = np.where(np.isfinite(scores).any(axis=1), scores.argmax(axis=1), -1)
    full, small = _reached(pool, rows, best), _reached(pool, rows, served)
    pruned = _reached(pool, rows, selector.select(dims, use_known=False, pruned_only=True).candidate)
    return serving_files.Cost(
        n_problems=len(rows),
        efficiency=serving_files.Efficiencies(
            full_model=Summary.of(full),
            served_model=Summary.of(small),
            served_from_pruned_set=Summary.of(pruned),
            served_best_of_2=Summary.of(pool.listed(rows, small, 2)),
            served_best_of_3=Summary.of(pool.listed(rows, small, 3)),
        ),
        loss_of_mean=serving_files.Losses(
            served_model=efficiency.percent(full.mean() - small.mean()),
            served_from_pruned_set=efficiency.percent(full.mean() - pruned.mean()),
        ),
        same_pick=efficiency.percent(np.mean(served == best)),
    )
