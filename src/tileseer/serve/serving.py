"""The serving stage: what a dispatcher runs of a trained model.

C++ header, known problems, kernel list and figures of one operation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from tileseer.core import documents, parquet
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.data.dataset import Dataset
from tileseer.facts.hardware import target
from tileseer.judge import ranking
from tileseer.learn import model_files
from tileseer.learn.evidence import calibrated_bounds, compared_candidates
from tileseer.learn.model import Model, OutsideModel
from tileseer.learn.model_schema import Origin
from tileseer.libraries import candidates
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.libraries.registry import library_of_arch
from tileseer.problems.problem import columns_of_frame
from tileseer.serve import header, kernel_set, serving_files
from tileseer.serve.cuts import calibrated_cuts
from tileseer.serve.selector import Selector
from tileseer.serve.serving_files import Cut, KernelEntry
from tileseer.serve.shipping import KernelPool

PROBLEMS_TO_CALIBRATE_ON = 250
"""Training problems whose scores calibrate the cuts: their margins are within a tenth of those of 1200."""
NO_HEADER = "a learner from outside of the checkout has no C++ header, so its models are not published"


@dataclass(frozen=True)
class ServingInputs:
    """What serving needs beside the model and its dataset."""

    template: Path
    """Of the C++ header."""
    api: Path
    """Table of CK Tile names, for the registry keys."""
    coefficients: Coefficients
    """Are published, so that kernels outside the pool can be scored."""


@dataclass(frozen=True)
class Served:
    """What the stage writes."""

    selector: Selector
    header: str
    known: pa.Table
    kernels: serving_files.Kernels
    figures: serving_files.Serving
    estimates: Coefficients | serving_files.NoEstimates

    def save(self, folder: Path) -> None:
        """Write ``model_files.SERVING_FILES`` into ``folder``, each whole or not at all."""
        write_text(folder / model_files.SELECTOR, self.header)
        documents.write_document(folder / model_files.KERNELS, self.kernels)
        documents.write_document(folder / model_files.SERVING, self.figures)
        documents.write_document(folder / model_files.ESTIMATES, self.estimates)
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
        """Scores of about ``PROBLEMS_TO_CALIBRATE_ON`` training problems, [P, Q]; -inf where a candidate cannot run."""
        problems, trains = self.measurements.problems, np.flatnonzero(self.measurements.trains)
        rows = trains[:: max(1, len(trains) // PROBLEMS_TO_CALIBRATE_ON)]
        lists = ranking.listed(self.measurements, self.model)
        scores = np.full((len(problems), len(self.model.pool)), -np.inf)
        of_rows = None if lists is None else lists[rows]
        scores[rows] = self.model.predict(problems.iloc[rows], threads=self.threads, offered=of_rows)
        return scores

    def cuts(self) -> Sequence[Cut]:
        """Return where candidates leave the running."""
        training = self.measurements.trains & np.isfinite(self.scores).any(axis=1)
        if not training.any():
            raise UserError(
                f"{self.measurements.operation}: no candidate can run a training problem; there is nothing to serve"
            )
        problems = self.measurements.problems[training]
        return calibrated_cuts(self.model, problems, self.scores[training], self.threads)

    def known_problems(self) -> pa.Table:
        """Return the problems on which a candidate ran, in the order of their dimensions.

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
            "timed": compared_candidates(self.measurements)[rows].astype(np.int32),
            "device_kind": [self.measurements.device_kind] * len(rows),
        }
        fields = dict.fromkeys(columns, pa.int32()) | {f.name: f.type for f in serving_files.KNOWN_PROBLEMS}
        return pa.table(columns, schema=pa.schema(fields.items()))


def serve_model(measurements: Dataset, model: Model, inputs: ServingInputs, threads: int = 1) -> Served:
    """Make what serves ``model``; one of a learner from outside has no header."""
    pool = _MeasuredPool(measurements, model, threads)
    outside = isinstance(model, OutsideModel)
    cuts, known, kernels = () if outside else pool.cuts(), pool.known_problems(), _kernels(pool, inputs)
    pruned = model.pool["kernel"].isin(kernels.pruned).to_numpy()
    bounds = calibrated_bounds(measurements)
    selector = Selector(model, cuts, pruned, known, bounds)
    text = f'#error "{NO_HEADER}"\n' if outside else header.render_header(inputs.template, selector)
    return Served(
        selector=selector,
        header=text,
        known=known,
        kernels=kernels,
        figures=serving_files.Serving(
            **Origin.of(measurements).model_dump(),
            feature_set=model.spec.feature_set,
            trees=model.tree_count,
            stages=list(cuts),
            known_problems=known.num_rows,
            evidence=bounds,
        ),
        estimates=inputs.coefficients
        if library_of_arch(measurements.arch).estimates_registers
        else serving_files.NoEstimates(),
    )


def header_of(measurements: Dataset, model: Model, template: Path, threads: int = 1) -> str:
    """Return the C++ header alone of a model, all of whose kernels are linked."""
    pool = _MeasuredPool(measurements, model, threads)
    every = np.ones(len(model.pool), bool)
    bounds = calibrated_bounds(measurements)
    return header.render_header(template, Selector(model, pool.cuts(), every, pool.known_problems(), bounds))


def _kernels(pool: _MeasuredPool, inputs: ServingInputs) -> serving_files.Kernels:
    """Return the kernels of the pool and the pruned set: that of ``tileseer ship``."""
    measurements, kernels = pool.measurements, pool.model.pool
    ships = KernelPool.of(measurements, kernels["candidate"])
    chosen = ships.smallest()
    split, runs = measurements.problems["split"].to_numpy(), ships.efficiency.max(axis=1) > 0
    parts = {name: np.flatnonzero((split == name) & runs) for name in ("train", "validation") if name in split}
    aliases = dict(zip(kernels["kernel"], kernels["aliases"], strict=True))
    return serving_files.Kernels(
        **Origin.of(measurements).model_dump(),
        meaning="`pruned` alone loses at most `allowed_loss` of the mean efficiency on the training problems, and "
        f"{1 - kernel_set.FLOOR:.0%} of one, measured best against measured best; `oracle_within_pruned` is that share "
        "in percent",
        allowed_loss=kernel_set.LOSS,
        pool_size=len(ships.names),
        pruned_size=len(chosen),
        oracle_within_pruned={name: ships.reached(chosen, rows) for name, rows in parts.items()},
        pruned=[ships.names[number] for number in chosen],
        kernels=_entries(ships.names, aliases, inputs.api, measurements.arch),
    )


def _entries(names: list[str], aliases: Mapping[str, str], api: Path, arch: str) -> list[KernelEntry]:
    """Return how a dispatcher finds each kernel; ``aliases``: other names of kernels."""
    library = library_of_arch(arch)
    if library.emitter is not None:
        entries = library.emitter.entries(names, api, target(arch))
    else:
        entries = [{"kernel": name, "registry_key": asdict(library.kernel.parse(name))} for name in names]
    return [
        KernelEntry(**entry, aliases=aliases.get(name, "").split(candidates.ALIASES) if aliases.get(name) else None)
        for name, entry in zip(names, entries, strict=True)
    ]
