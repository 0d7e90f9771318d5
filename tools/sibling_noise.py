"""Say in a recording how much its times differ from run to run, by two tables of times of one board or of two siblings.

A find step times each solver once, so a database alone says nothing of its noise. Two boards of one kind, or two
databases of one board, have many pairs of a problem and a solver in common. What a board or a release changes for a
whole problem, or for a solver, is no noise and is taken out: compared are the ratios of the times of two solvers on one
problem, each beside the median ratio of its solver. What is left is noise, and what else differs between the two.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.core import documents, exact
from tileseer.core.errors import reports_user_errors
from tileseer.data.dataset import Dataset
from tileseer.data.dataset_files import FILE
from tileseer.data.provenance import BetweenRuns, Recording
from tileseer.libraries.miopen.kernel import Solver
from tileseer.libraries.miopen.recording import OPERATION_COLUMNS, read_find_dbs
from tileseer.measure.again import noise_between_runs
from tileseer.problems.problem import DIMS, LAYOUTS

PROBLEM = [*OPERATION_COLUMNS, *DIMS]
LEAST_PAIRS = 100
"""Pairs of solvers under which nothing is said."""


@reports_user_errors
def main() -> int:
    """Fill in ``between_runs`` of the operations of a recording that have none; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recording", type=Path, help="folder of a recording of MIOpen's solvers")
    parser.add_argument("times", nargs=2, type=Path, help="folders of recordings, or find-dbs")
    parser.add_argument("--source", required=True, help="what the two are, in words")
    args = parser.parse_args()
    path = args.recording / FILE
    recording, found = documents.read_document(path, Recording), dict[str, BetweenRuns]()
    first, second = map(times_of, args.times)
    for operation in recording.operations:
        variant, _, dtype = operation.rpartition("_")
        parts = (times[(times["variant"] == variant) & (times["dtype"] == dtype)] for times in (first, second))
        differences = differences_within_problems(*parts)
        if operation not in recording.between_runs and len(differences) >= LEAST_PAIRS:
            # A difference of two ratios has the noise of four times, that of two runs of one pair the noise of two.
            relative = noise_between_runs((differences / np.sqrt(2)).tolist()) or 0.0
            found[operation] = BetweenRuns(relative=round(relative, 4), pairs=len(differences), source=args.source)
            print(f"{operation}: {100 * relative:.1f} % by {len(differences):,} pairs of solvers")
    every: Mapping[str, BetweenRuns] = dict(sorted((recording.between_runs | found).items()))
    documents.write_document(path, recording.model_copy(update={"between_runs": every}))
    return 0


def times_of(path: Path) -> pd.DataFrame:
    """Return the times of a recording or a find-db: a row a time, with ``PROBLEM``, ``solver`` and ``milliseconds``."""
    if path.is_file():
        database = read_find_dbs([path])
        return database.problems.iloc[database.times["problem"]].reset_index(drop=True).join(database.times)
    recording = documents.read_document(path / FILE, Recording)
    return pd.concat([_times(Dataset.read(path / name)) for name in recording.operations], ignore_index=True)


def _times(dataset: Dataset) -> pd.DataFrame:
    solvers = np.array([str(Solver.parse(name).solver) for name in dataset.candidates["kernel"]])
    # MIOpen's first layout has no name in a find-db.
    layout = dataset.problems["layout"].replace(LAYOUTS[0], "") if "layout" in dataset.problems else ""
    rows = dataset.problems.assign(layout=layout)[PROBLEM].iloc[dataset.problem[dataset.ok]].reset_index(drop=True)
    return rows.assign(solver=solvers[dataset.candidate[dataset.ok]], milliseconds=dataset.latency_ms[dataset.ok])


def differences_within_problems(first: pd.DataFrame, second: pd.DataFrame) -> np.ndarray:
    """Return how much the ratio of the times of two solvers on one problem differs between two tables, float64 [n].

    Of each problem the solvers are compared one after the other, by name.
    """
    both = first.merge(second, on=[*PROBLEM, "solver"], suffixes=("", "_again"))
    both = both[(both["milliseconds"] > 0) & (both["milliseconds_again"] > 0)].sort_values([*PROBLEM, "solver"])
    change = pd.Series(exact.log((both["milliseconds_again"] / both["milliseconds"]).to_numpy()), both.index)
    change -= change.groupby(both["solver"]).transform("median")
    problem = both.groupby(PROBLEM, sort=False).ngroup()
    return change.diff()[problem.diff() == 0].to_numpy(np.float64)


if __name__ == "__main__":
    raise SystemExit(main())
