"""Make config/recorded/gfx942_miopen and gfx90a_miopen from tables of MIOpen's find-db (see their SOURCE.md).

A table has a row a problem and solver: ``direction, dtype, layout, ndim``, the 19 dimensions, ``solver, ms``. From the
database itself a recording is made by ``tileseer import find-db``; a row that this refuses is left out here as well.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tileseer.config.operations import DTYPES
from tileseer.core.errors import reports_user_errors
from tileseer.dataset import solver_recording
from tileseer.dataset.find_db import Database
from tileseer.problems.problem import DIMS, LAYOUTS, Problem

SOURCE = "ROCm/MIOpen, src/kernels/{file}, commit 2d1fd997a6fcf801ac4ca7a63e0656ef1cb9f488, MIT licence"


def database(table: pd.DataFrame, kept_layouts: Sequence[str]) -> tuple[Database, dict[str, int]]:
    """Times of a table in some layouts, and how many of its rows were left out for which reason."""
    layouts = table["layout"].astype(str).str.replace("D", "")
    flat = (table[["Di", "Z", "stride_d", "dilation_d"]] == 1).all(axis=1) & (table["pad_d"] == 0)
    reasons = pd.Series("", table.index)
    for reason, wrong in {
        "a 3D problem without depth": (table["ndim"] == 3) & flat,
        "layout": ~layouts.isin(kept_layouts),
        "data type": ~table["dtype"].astype(str).isin(DTYPES),
        "the time is not positive": ~(table["ms"] > 0),
    }.items():
        reasons[wrong] = reason
    kept, found = table[reasons == ""], Database()
    words = kept.assign(layout=layouts)[["direction", "dtype", "solver", "layout"]].astype(str).to_numpy()
    rows = zip(words, kept[list(DIMS)].to_numpy(), kept["ms"], strict=True)
    problems: dict[bytes, Problem] = {}
    for (variant, dtype, solver, layout), dims, milliseconds in rows:
        key = f"{variant} {dtype} {layout} ".encode() + dims.tobytes()
        if key not in problems:
            problem = Problem.from_dims(variant, dtype, **dict(zip(DIMS, map(int, dims), strict=True)))
            problems[key] = problem.with_layout(layout if layout == LAYOUTS[1] else "")
        found.times[problems[key], solver] = float(milliseconds)
    return found, dict(Counter(reasons[reasons != ""]))


@reports_user_errors
def main() -> int:
    """Write one recording; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path, help="Parquet file")
    parser.add_argument("--file", required=True, help="database that it was read from, below src/kernels of MIOpen")
    parser.add_argument("--arch", required=True, help="of the recording, for example gfx942_miopen")
    parser.add_argument("--device", required=True, help="product of config/hardware.yaml")
    parser.add_argument("--layouts", nargs="+", default=LAYOUTS, help="of the rows that are kept")
    parser.add_argument("--output", required=True, type=Path, help="new folder")
    args = parser.parse_args()
    found, left_out = database(pd.read_parquet(args.table), args.layouts)
    told = {
        "source": SOURCE.format(file=args.file),
        "left_out": "a fifth of the layers, which others keep to judge models; "
        + ", ".join(f"{count:,} rows: {reason}" for reason, count in sorted(left_out.items())),
    }
    solver_recording.write_solver_recording(args.output, found, args.arch, args.device, told)
    print(f"{args.output}: {len(found.times):,} times; {left_out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
