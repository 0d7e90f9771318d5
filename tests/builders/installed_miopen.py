"""A folder like that of an installed ROCm, whose find-dbs have times of the recordings in config/recorded."""

import bz2

import pandas as pd
from repository import CONFIG

from tileseer.libraries.miopen.find_db import DIRECTION_OF_LETTER, Entry, Key
from tileseer.libraries.miopen.kernel import Solver
from tileseer.libraries.miopen.solvers import algorithm_prefix, algorithm_word, facts_of
from tileseer.libraries.miopen.workspace import workspace
from tileseer.problems.operation import Operation
from tileseer.problems.problem import problems_of_rows

LETTERS = {variant: letter for letter, variant in DIRECTION_OF_LETTER.items()}
HEADER = "#define MIOPEN_VERSION_MAJOR {}\n#define MIOPEN_VERSION_MINOR {}\n#define MIOPEN_VERSION_PATCH {}\n"


def find_db_lines(operations, one_in=1, arch="gfx90a_miopen", start=0):
    """Lines of a find-db with each ``one_in``-th problem of the recording of an arch."""
    for name in operations:
        folder, operation = CONFIG / "recorded" / arch / name, Operation.parse(name)
        problems, kernels, pairs = (
            pd.read_parquet(folder / f"{one}.parquet") for one in ("problems", "kernels", "pairs")
        )
        solvers = [Solver.parse(one).solver for one in kernels["kernel"]]
        rows = problems.iloc[start::one_in]
        layouts = rows["layout"] if "layout" in rows else [""] * len(rows)
        dims = rows.drop(columns="layout", errors="ignore").itertuples(index=False, name=None)
        made = dict(zip(rows.index, problems_of_rows(operation.variant, operation.dtype, dims, layouts), strict=True))
        letter = LETTERS[operation.variant]
        for row, times in pairs[pairs["problem"].isin(made)].groupby("problem"):
            entries = [_entry(solvers[one.kernel], made[row], one.median_us, letter) for one in times.itertuples()]
            yield f"{Key.of(made[row])}={';'.join(map(str, entries))}\n"


def _entry(solver, problem, microseconds, letter):
    algorithm = algorithm_word(solver, letter) or f"{algorithm_prefix(letter)}{facts_of(solver).algorithm}"
    return Entry(solver, f"{microseconds / 1000:.6g}", str(workspace(solver, problem) or 0), algorithm)


def write_installation(root, databases, version="3.5.2"):
    """Write ``share/miopen/db`` with texts by name, packed where the name says so, and the version's header."""
    folder = root / "share/miopen/db"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in databases.items():
        packed = bz2.compress(text.encode()) if name.endswith(".bz2") else text.encode()
        (folder / name).write_bytes(packed)
    if version:
        (root / "include/miopen").mkdir(parents=True, exist_ok=True)
        (root / "include/miopen/version.h").write_text(HEADER.format(*version.split(".")))
    return root
