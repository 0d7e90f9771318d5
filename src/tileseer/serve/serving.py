"""The serving stage: what a dispatcher runs of a trained model.

C++ header, known problems, kernel list and figures of one operation.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from tileseer.core import documents, parquet
from tileseer.core.atomic import write_text
from tileseer.data.dataset import Dataset
from tileseer.facts.hardware import target
from tileseer.learn import model_files
from tileseer.learn.evidence import compared_candidates
from tileseer.learn.model import Model
from tileseer.learn.model_schema import Origin
from tileseer.libraries import candidates
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.libraries.registry import library_of_arch
from tileseer.problems.problem import DIMS, columns_of_frame, wrong_rows
from tileseer.serve import header, kernel_set, serving_files
from tileseer.serve.selector import Selector
from tileseer.serve.serving_files import KernelEntry
from tileseer.serve.shipping import KernelPool


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
    golden: pa.Table
    kernels: serving_files.Kernels
    estimates: Coefficients | serving_files.NoEstimates

    def save(self, folder: Path) -> None:
        """Write ``model_files.SERVING_FILES`` into ``folder``, each whole or not at all."""
        write_text(folder / model_files.SELECTOR, self.header)
        documents.write_document(folder / model_files.KERNELS, self.kernels)
        documents.write_document(folder / model_files.ESTIMATES, self.estimates)
        parquet.write_table(self.known, folder / model_files.KNOWN)
        parquet.write_table(self.golden, folder / model_files.GOLDEN)


def known_problems(measurements: Dataset, model: Model) -> pa.Table:
    """Return the problems on which a candidate of the pool ran, in the order of their dimensions.

    The winner of single timings is a little lucky: its TFLOPS are what was measured, not a promise.
    """
    columns = columns_of_frame(measurements.problems)
    dims = np.stack([columns[name] for name in model.columns], axis=1)
    achieved = measurements.grid(np.arange(len(dims)))[:, model.positions(measurements)]
    order = np.lexsort(dims.T[::-1])
    rows = order[achieved[order].max(axis=1, initial=0.0) > 0]
    best = achieved[rows].argmax(axis=1)
    table = {
        **{name: dims[rows, i].astype(np.int32) for i, name in enumerate(model.columns)},
        "candidate": model.pool["candidate"].to_numpy()[best],
        "row": best.astype(np.int32),
        "tflops": measurements.best_tflops[rows] * achieved[rows, best],
        "timed": compared_candidates(measurements)[rows].astype(np.int32),
        "device_kind": [measurements.device_kind] * len(rows),
    }
    fields = dict.fromkeys(table, pa.int32()) | {f.name: f.type for f in serving_files.KNOWN_PROBLEMS}
    return pa.table(table, schema=pa.schema(fields.items()))


def golden_problems(selector: Selector) -> pa.Table:
    """Return problems like those that were measured, at another batch size, with what a port has to say of them."""
    known, columns = selector.known, selector.model.columns
    spread = np.unique(np.linspace(0, known.num_rows - 1, serving_files.GOLDEN_ROWS).round().astype(np.int64))
    dims = selector.known_dims[spread[: known.num_rows]]
    dims[:, 0] += 1
    dims = np.unique(dims[~wrong_rows(dims[:, : len(DIMS)])], axis=0)
    picks = selector.select(dims, use_known=False)
    dims, row, score = (values[picks.candidate >= 0] for values in (dims, picks.candidate, picks.score))
    pairs = np.arange(len(dims)), row
    features = selector.model.features.matrix(selector.frame(dims), selector.model.pool, *pairs) if len(dims) else dims
    table = {
        **{name: dims[:, i].astype(np.int32) for i, name in enumerate(columns)},
        "candidate": selector.model.pool["candidate"].to_numpy()[row],
        "row": row.astype(np.int32),
        "score": score,
        "features": features.astype(np.float64).tolist(),
    }
    fields = dict.fromkeys(table, pa.int32()) | {f.name: f.type for f in serving_files.GOLDEN_PROBLEMS}
    return pa.table(table, schema=pa.schema(fields.items()))


def serve_model(measurements: Dataset, model: Model, inputs: ServingInputs) -> Served:
    """Make what serves ``model``."""
    known, kernels = known_problems(measurements, model), _kernels(measurements, model, inputs)
    selector = Selector(model, model.pool["kernel"].isin(kernels.pruned).to_numpy(), known)
    estimates = library_of_arch(measurements.arch).estimates_registers
    return Served(
        selector=selector,
        header=header.render_header(inputs.template, selector),
        known=known,
        golden=golden_problems(selector),
        kernels=kernels,
        estimates=inputs.coefficients if estimates else serving_files.NoEstimates(),
    )


def header_of(measurements: Dataset, model: Model, template: Path) -> str:
    """Return the C++ header alone of a model of part of a pool, all of whose kernels are linked."""
    model = model.calibrated_on(measurements)
    every = np.ones(len(model.pool), bool)
    return header.render_header(template, Selector(model, every, known_problems(measurements, model)))


def _kernels(measurements: Dataset, model: Model, inputs: ServingInputs) -> serving_files.Kernels:
    """Return the kernels of the pool and the pruned set: that of ``tileseer ship``."""
    kernels = model.pool
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
