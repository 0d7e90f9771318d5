"""Make config/recorded/gfx950_mi355x from the CSV beside it: what others measured on an MI355X (see its SOURCE.md).

Names of one kernel become one candidate, a shape that was measured twice one problem. A kernel's time on a shape is
the geometric mean of its times there, without outliers: times above ``OUTLIER`` times the fastest time of the same
kernel on the shape, or, of a kernel with a single time, above that of every other kernel.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tileseer.core.atomic import replacing, write_text
from tileseer.core.documents import json_text
from tileseer.core.errors import UserError, reports_user_errors
from tileseer.dataset import provenance, recording
from tileseer.kernels import names
from tileseer.problems import problem_csv
from tileseer.problems.problem import DIMS, FIELDS, problems_of_rows

ARCH = DEVICE = "gfx950_mi355x"
OPERATION = "forward_bf16"
FOLDER = Path(__file__).parents[1] / "config/recorded" / ARCH
SCHEME = "grouped_conv_forward_bf16_2d_"
LAUNCHES = 10
"""Behind each time."""
OUTLIER = 2.0
DIGITS = 12
"""Of a time. Logarithms differ in the last digits from processor to processor."""
SOURCE = (
    "ROCm/rocm-libraries, projects/composablekernel/tile_engine/ops/grouped_conv/training_data_forward_bf16_20.csv, "
    "commit 10cdca2d64d1193f936e9bc2dca8338f17938e67, MIT licence"
)
KERNELS = pa.schema([("kernel", pa.string()), ("names", pa.list_(pa.string()))])
"""``names``: what the source calls the kernel, without ``SCHEME``."""
PAIRS = recording.TIMES.set(recording.TIMES.get_field_index("median_us"), pa.field("median_us", pa.float64()))
"""``samples`` are launches; ``median_us`` is the mean above; ``cv`` is not known."""


def read(path: Path) -> pd.DataFrame:
    """Read the times as ``names``, ``kernel`` (of ours), ``session``, ``ms`` and the 19 dimensions.

    ``UserError`` names the first line that is no measurement, or is there twice.
    """
    table = problem_csv.read_csv(path)
    for column in ("problem_idx", "kernel", "latency_ms"):
        if column not in table:
            raise UserError(f"{path}: column {column} is missing; give the CSV that SOURCE.md names")
    rows, _ = problem_csv.dims_of_rows(path, table)
    problem_csv.check_problems(path, rows, *OPERATION.split("_"))
    milliseconds = pd.to_numeric(table["latency_ms"], errors="coerce")
    _refuse(path, ~(milliseconds > 0) | ~np.isfinite(milliseconds), table["latency_ms"], "latency_ms", "a time above 0")
    twice = table.duplicated(["problem_idx", "kernel"])
    _refuse(path, twice, table["problem_idx"] + " " + table["kernel"], "problem_idx and kernel", "one row a pair")
    ours = {}
    for row, name in table["kernel"].drop_duplicates().items():
        try:
            ours[name] = names.read_kernel_name(SCHEME + name, ARCH).kernel.name
        except UserError as error:
            raise UserError(f"{path}, line {row + problem_csv.FIRST_LINE}: {error}") from error
    kernels = table["kernel"].map(ours)
    return rows.assign(names=table["kernel"], kernel=kernels, session=table["problem_idx"], ms=milliseconds)


def _refuse(path: Path, wrong: pd.Series, values: pd.Series, column: str, wanted: str) -> None:
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        raise UserError(f"{path}, line {row + problem_csv.FIRST_LINE}: {column} is {values.iloc[row]!r}; give {wanted}")


def outliers(times: pd.DataFrame) -> pd.Series:
    """Tell which times are outliers, as the text above says; bool, in the order of the rows."""
    of_shape = times.groupby(list(DIMS))
    of_kernel = times.groupby([*DIMS, "kernel"])["ms"]
    fastest, count = of_kernel.transform("min"), of_kernel.transform("size")
    slowest = of_shape["ms"].transform("max")
    next_slowest = of_shape["ms"].transform(lambda ms: np.partition(ms.to_numpy(), -2)[-2])
    alone = (count == 1) & (times["ms"] == slowest) & (times["ms"] > OUTLIER * next_slowest)
    return (times["ms"] > OUTLIER * fastest) | alone


def between_sessions(times: pd.DataFrame) -> provenance.BetweenRuns:
    """How much a time differs from session to session, from the shapes that were measured twice."""
    of_session = times.assign(log=np.log(times["ms"])).groupby([*DIMS, "kernel", "session"])["log"].mean()
    again = of_session.groupby([*DIMS, "kernel"]).agg(["size", "var"])
    again = again[again["size"] == 2]
    return provenance.BetweenRuns(
        relative=round(float(np.sqrt(again["var"].mean())), 6),
        pairs=len(again),
        source="shapes that stand twice in the source, each kernel in both sessions",
    )


@reports_user_errors
def main() -> int:
    """Write the tables and the description; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", type=Path, default=FOLDER / OPERATION / "source.csv", help="the CSV")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder of the recording")
    args = parser.parse_args()
    every = read(args.source)
    odd = outliers(every)
    times = every[~odd]
    shapes = times[list(DIMS)].drop_duplicates()
    problems = problems_of_rows("forward", "bf16", shapes.to_numpy())
    number = {tuple(row): i for i, row in enumerate(shapes.itertuples(index=False, name=None))}
    called = every.groupby("kernel")["names"].agg(lambda found: list(dict.fromkeys(found)))
    pairs = times.assign(log=np.log(times["ms"])).groupby([*DIMS, "kernel"], sort=False)["log"].agg(["mean", "size"])
    pairs = pairs.reset_index()
    table = pd.DataFrame(
        {
            "problem": [number[row] for row in pairs[list(DIMS)].itertuples(index=False, name=None)],
            "kernel": called.index.get_indexer(pairs["kernel"]),
            "split_k": 1,
            "status": "ok",
            "samples": LAUNCHES * pairs["size"],
            "median_us": [float(f"{us:.{DIGITS}g}") for us in 1000 * np.exp(pairs["mean"])],
            "cv": np.nan,
        }
    ).sort_values(["problem", "kernel"])
    origin = {"split": "train", "network": "tile_engine", "layer": ""}
    known = [{"problem_key": p.key, "layer_family": p.layer_family, **origin, **vars(p)} for p in problems]
    text = [pa.field(name, pa.string()) for name in ("problem_key", "layer_family", *origin)]
    fields = [pa.field(name, pa.string() if name in ("variant", "dtype") else pa.int32()) for name in FIELDS]
    _write(pa.Table.from_pylist(known, pa.schema(text + fields)), args.output, "problems")
    _write(pa.table({"kernel": called.index.tolist(), "names": called.tolist()}, KERNELS), args.output, "kernels")
    _write(pa.Table.from_pandas(table, PAIRS, preserve_index=False), args.output, "pairs")
    left_out = [f"{row.session} {row.names}" for row in every[odd].itertuples()]
    told = provenance.Recording(
        arch=ARCH,
        device=DEVICE,
        operations=[OPERATION],
        latency=f"mean of {LAUNCHES} launches after 3 that were not timed; of several times of one kernel on one shape "
        "the geometric mean",
        provenance={
            "source": SOURCE,
            "measured by": "others; Tileseer transcribed it and measured nothing",
            "rows": f"{len(every):,} times: {every['names'].nunique()} names on {every['session'].nunique()} problems",
            "one kernel, several names": "; ".join(
                f"{found[0]}: {', '.join(found[1:])}" for found in called if len(found) > 1
            ),
            "outliers left out": ", ".join(left_out),
            "resources": "estimated: no compiler described the kernels",
            "not known": "driver, ROCm version, compiler, clocks, power limit, cache state",
        },
        between_runs={OPERATION: between_sessions(times)},
    )
    write_text(args.output / "recording.json", json_text(told.model_dump(mode="json", exclude_none=True)))
    print(f"{args.output}: {len(table):,} pairs of {len(problems)} problems and {len(called)} kernels")
    return 0


def _write(table: pa.Table, folder: Path, name: str) -> None:
    """Write a table as small as Parquet makes it, whole or not at all."""
    path = folder / OPERATION / f"{name}.parquet"
    with replacing(path) as part:
        pq.write_table(table, part, compression="zstd", compression_level=19)


if __name__ == "__main__":
    sys.exit(main())
