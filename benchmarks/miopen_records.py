#!/usr/bin/env python3
"""How fast the records are that ``tileseer export miopen`` writes for layers that a model never saw.

The layers are those that were left out of the training of a published model. They are asked for as if nobody had
measured them, and the kinds that get no records are decided by the other half of the layers, in turn. The times are
those of the recording; it has no time of a solver that was not the fastest of its algorithm.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.core.errors import reports_user_errors
from tileseer.data.dataset import Dataset
from tileseer.data.recordings import configured
from tileseer.facts.hardware import target
from tileseer.judge.layers import read_layers
from tileseer.learn import model_files
from tileseer.learn.evidence import HALF
from tileseer.libraries.miopen.exporter import Export, Files, Settings, Writer, kinds_often_slow
from tileseer.libraries.miopen.find_db import Key, parse_entry
from tileseer.libraries.miopen.kernel import Solver
from tileseer.libraries.miopen.solvers import release_of
from tileseer.problems.kinds import GROUPINGS, grouping
from tileseer.problems.problem import columns_of_frame, problems_of_frame
from tileseer.serve.selector import Selector


@reports_user_errors
def main() -> None:
    """Print the share of records with less than half of the speed, by operation, grouping and kind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", type=Path, help="results/models/ARCH, of MIOpen's solvers with a recording")
    parser.add_argument("--operations", nargs="+", help="default: all of the models")
    args = parser.parse_args()
    operations = args.operations or model_files.read_index(args.models).operations
    rows = pd.concat(part for name in operations for part in _records(args.models, name))
    for by in ("grouping", "kind"):
        table = rows.groupby(["operation", by])["efficiency"].agg(["size", "count", "mean"])
        slow = (rows["efficiency"] < 1 / HALF).where(rows["efficiency"].notna())
        share = slow.groupby([rows["operation"], rows[by]]).mean()
        written = rows.groupby(["operation", by])["written"].sum()
        table = table.assign(written=written, mean=100 * table["mean"], below_half=100 * share)
        table = table.rename(columns={"size": "layers", "count": "timed"})
        print(
            table[["layers", "written", "timed", "mean", "below_half"]].astype(float).round(2).to_string(), end="\n\n"
        )


def _records(models: Path, operation: str) -> Iterator[pd.DataFrame]:
    """Yield a row for each left-out layer of one half: whether it gets a record, and its first solver's efficiency."""
    selector = Selector.read(models, operation)
    judged = read_layers(selector.folder / model_files.LAYERS)
    dataset = Dataset.read(Path(configured().replays[selector.spec.arch]) / operation)
    columns, is_judged = columns_of_frame(dataset.problems), dataset.problems["problem_key"].isin(judged["problem_key"])
    dims = np.stack([columns[name] for name in selector.model.columns], axis=1)
    left_out = set(map(tuple, dims[is_judged].tolist()))
    known = pa.array([tuple(row) not in left_out for row in selector.known_dims.tolist()])
    selector = Selector(selector.model, selector.pruned, selector.known.filter(known), selector.folder)
    solvers = [Solver.parse(name) for name in dataset.candidates["kernel"]]
    rows = np.flatnonzero(is_judged & (dataset.best_tflops > 0))
    half = np.array([int(family, 16) % 2 for family in dataset.problems["layer_family"].iloc[rows]])
    for own in (rows[half == 0], rows[half == 1]):
        table, export = dataset.problems.iloc[own], Export()
        problems, efficiency = problems_of_frame(table), dataset.grid(own)
        with tempfile.TemporaryDirectory() as folder:
            release = "_".join(map(str, release_of(str(selector.spec.taken))))
            user = Path(folder) / f"{target(selector.spec.arch)}_1.HIP.{release}.ufdb.txt"
            user.touch()
            settings = Settings(user, measured=True)
            writer = Writer(selector, Files.read(settings, Path(folder)), settings)
        others = judged[~judged["problem_key"].isin(table["problem_key"])]
        writer.slow_kinds = kinds_often_slow(others)
        writer.write(problems, export)
        first = {key: parse_entry(values.split(";")[0]).solver for key, _, values in map(_parts, export.lines)}
        picked = [first.get(str(Key.of(problem)), "") for problem in problems]
        place = {(one.ndim, one.solver): column for column, one in enumerate(solvers)}
        found = [
            efficiency[row, place[problem.ndim, solver]] if (problem.ndim, solver) in place else 0.0
            for row, (problem, solver) in enumerate(zip(problems, picked, strict=True))
        ]
        kinds = judged.set_index("problem_key")["kind"]
        yield pd.DataFrame(
            {
                "operation": operation,
                "grouping": np.array(GROUPINGS)[grouping(columns_of_frame(table))],
                "kind": kinds[table["problem_key"]].to_numpy(),
                "written": [bool(solver) for solver in picked],
                "efficiency": np.where(np.array(found) > 0, found, np.nan),
            }
        )


def _parts(line: str) -> tuple[str, str, str]:
    return line.partition("=")


if __name__ == "__main__":
    main()
