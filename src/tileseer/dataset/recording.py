"""A recorded device: what a real GPU measured once, replayed as a dataset on any machine.

A recording is a folder of one arch::

    recording.json               what was measured, on what, how
    OPERATION/kernels.parquet    the kernels, what became of their build, what the compiler said of them
    OPERATION/problems.parquet   the problems, in the form of the problems stage, or their dimensions alone
    OPERATION/pairs.parquet      one row a measured pair: numbers of problem and kernel, split-K, status, quantiles

Its columns: ``PAIRS`` and ``KERNELS``. ``solver_recording`` makes them of others' times: without a compiler's report,
the resources of the kernels are the library's estimates.
No time is estimated: a pair without a row has the reason of the support rule that refuses it, or is ``skipped``.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.core import documents, parquet
from tileseer.core.errors import UserError, shown
from tileseer.dataset.provenance import DatasetProvenance, Recording
from tileseer.dataset.schema import BUILD, CODE, SCHEMA, typed, with_layout
from tileseer.gpus.hardware import Hardware
from tileseer.kernels import candidates as candidate_tables
from tileseer.kernels.costs.coefficients import Coefficients
from tileseer.kernels.libraries import check_support, library_of_arch, library_of_kernels, parse_kernels
from tileseer.measure.device import STATUSES, are_times
from tileseer.problems import problem_table
from tileseer.problems.implicit_gemm import implicit_gemm
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS, problem_frame, problems_of_rows

FILE = "recording.json"
TABLES = ("kernels", "pairs", "problems")
"""Of each operation."""
PAIRS = pa.schema(
    [
        ("problem", pa.int32()),
        ("kernel", pa.int32()),
        ("split_k", pa.int32()),
        ("status", pa.dictionary(pa.int32(), pa.string())),
        ("samples", pa.int32()),
        ("p10_us", pa.float32()),
        ("median_us", pa.float32()),
        ("p90_us", pa.float32()),
        ("cv", pa.float32()),
        ("brief", pa.bool_()),
        ("noise", pa.float32()),
        ("worst", pa.float32()),
        ("sm_clock_mhz", pa.float32()),
        ("sentinel", pa.float32()),
        ("power_w", pa.float32()),
        ("temperature_c", pa.float32()),
        ("gpu", pa.int8()),
    ]
)
"""Of a measured pair. ``problem`` and ``kernel`` are row numbers of the tables beside it. ``brief``: the first launches
showed that the kernel is far from the best of its problem, and no more were spent on it. ``noise`` is the relative
standard error of the median, ``worst`` the largest error in tolerances (NaN: not compared), ``sm_clock_mhz`` the clock
after the samples. ``sentinel`` (its time over its first one), ``power_w`` and ``temperature_c`` are of the batch that
the pair was in, ``gpu`` counts the boards. A recording from before the workflow's harness lacks the columns from
``noise`` on; one of others' times has ``TIMES``."""
TIMES = pa.schema(
    [PAIRS.field(name) for name in ("problem", "kernel", "split_k", "status", "samples", "median_us", "cv")]
)
"""The columns that every recording has."""


PAIR = {name: PAIRS.field(name).type for name in ("problem", "kernel", "split_k", "status", "samples")}
REPORTED = parquet.schema([(name, pa.int32()) for name in ("registers", "shared_bytes", "blocks")])
"""A compiler's message about a kernel."""


def read_recording(folder: Path) -> Recording:
    """Read the description of a recording; ``UserError`` if it is missing or damaged."""
    return documents.read_document(folder / FILE, Recording)


def check_recording(folder: Path, operation: str, hardware: Hardware) -> Recording:
    """The description of a recording; ``UserError`` unless it is of a device and has the tables of an operation."""
    recording = read_recording(folder)
    if operation not in recording.operations:
        raise UserError(
            f"{folder / FILE}: {operation} was not recorded; it has {', '.join(recording.operations)}. "
            "List those under operations"
        )
    if hardware.name != recording.device:
        raise UserError(
            f"{folder / FILE}: the device is {recording.device}, but benchmark.products gives {hardware.name}"
        )
    for path in (folder / operation / f"{name}.parquet" for name in TABLES):
        if not path.is_file():
            raise UserError(f"{path}: there is no such file, but {FILE} lists {operation}; fetch the recording again")
    return recording


def recorded_dataset(
    folder: Path, operation: Operation, hardware: Hardware, coefficients: Coefficients | None = None
) -> pa.Table:
    """Dataset (``schema.SCHEMA``) of one operation of a recording, with its provenance.

    ``coefficients`` give the resources of kernels of which no compiler reported any.
    """
    recording = check_recording(folder, str(operation), hardware)
    own = folder / str(operation)
    problems = _problems(own / "problems.parquet", operation)
    kernels = _kernels(own / "kernels.parquet", recording.arch)
    pairs = _pairs(own / "pairs.parquet", library_of_arch(recording.arch).offered)
    candidates = _candidates(kernels, pairs, recording.arch)
    if "registers" not in kernels:
        candidates = _estimated(candidates, hardware, coefficients)
    table = _rows(problems, candidates, _without_wrong_kernels(pairs), operation, hardware)
    provenance = DatasetProvenance(
        arch=recording.arch,
        operation=str(operation),
        device=recording.device,
        device_kind="recorded",
        measurement_id=hashlib.sha256((own / "pairs.parquet").read_bytes()).hexdigest()[:16],
        rows_by_status=dict(Counter(table["status"].to_pylist())),
        recording=recording,
        between_runs=recording.between_runs.get(str(operation)),
    )
    return table.replace_schema_metadata(provenance.metadata())


def _without_wrong_kernels(pairs: pd.DataFrame) -> pd.DataFrame:
    """The pairs without the times of a kernel that computed a wrong result anywhere, as in ``assembly``."""
    wrong = pairs["kernel"].isin(pairs["kernel"][pairs["status"] == "wrong_result"])
    return pairs.assign(status=pairs["status"].astype(object).mask(wrong & (pairs["status"] == "ok"), "wrong_result"))


def _problems(path: Path, operation: Operation) -> pd.DataFrame:
    """Problems in the form of the problems stage; of those that are dimensions only, all are for training."""
    table = _read_table(path, {"problem_key": problem_table.SCHEMA}, _required(dict.fromkeys(DIMS, pa.int32())))
    try:
        rows, layouts = table[list(DIMS)].to_numpy(), table.get("layout")
        made = problem_frame(problems_of_rows(operation.variant, operation.dtype, rows, layouts))
    except UserError as error:
        raise UserError(f"{path}: {error}; fetch it again") from error
    _refuse(path, "problem_key", made["problem_key"], ~made["problem_key"].duplicated())
    if "problem_key" not in table:
        return made.assign(split="train", network="", layer="")
    _refuse(path, "split", table["split"], table["split"].isin(problem_table.SPLITS))
    if not (table[made.columns] == made).all(axis=None):
        raise UserError(f"{path}: keys of problems do not belong to their dimensions; fetch it again")
    return table


def _kernels(path: Path, arch: str) -> pd.DataFrame:
    """Kernels of the library of an arch, each with a name of its own."""
    table = _read_table(path, {"registers": REPORTED}, _required({"kernel": pa.string()}))
    try:
        if library_of_kernels(table["kernel"].tolist()) != (library := library_of_arch(arch)):
            raise UserError(f"kernels of {arch} have names that begin with {library.prefix}")
        parse_kernels(table["kernel"].tolist())
    except UserError as error:
        raise UserError(f"{path}: {error}; fetch it again") from error
    for name in REPORTED.names if "registers" in table else ():
        _refuse(path, name, table[name], table[name] >= 0)
    _refuse(path, "kernel", table["kernel"], ~table["kernel"].duplicated())
    return table


def _pairs(path: Path, ranked: bool) -> pd.DataFrame:
    """Measured pairs whose numbers can be; ``ranked``: a library offered the kernels in an order."""
    pairs = _read_table(path, {}, _required(PAIR))
    for name in ("median_us", "cv", *(("rank",) if ranked else ()), *(("sentinel",) if "sentinel" in pairs else ())):
        if name not in pairs or pairs[name].dtype.kind not in "fiu":
            raise UserError(f"{path}: there is no column {name} with numbers; fetch it again")
    ok = pairs["status"] == "ok"
    _refuse(path, "status", pairs["status"], pairs["status"].isin(STATUSES))
    _refuse(path, "split_k", pairs["split_k"], pairs["split_k"] >= 1)
    _refuse(path, "samples", pairs["samples"], pairs["samples"] >= 0)
    _refuse(path, "median_us", pairs["median_us"], ~ok | are_times(pairs["median_us"].to_numpy() / 1000))
    for name in (name for name in ("cv", "rank", "sentinel") if name in pairs):
        # A missing value is no number.
        _refuse(path, name, pairs[name], pairs[name].isna() | pairs[name].between(0, np.inf, "left"))
    return pairs


def _required(columns: Mapping[str, pa.DataType]) -> pa.Schema:
    return parquet.schema(columns.items())


def _read_table(path: Path, together: Mapping[str, pa.Schema], expected: pa.Schema) -> pd.DataFrame:
    """A table of a recording with some rows, ``expected`` columns, and text that can be printed.

    ``together``: columns that have to be there where another one is. Floats are float64, by Arrow: damage leaves NaNs
    that NumPy only converts with a warning.
    """
    table = parquet.read_table(path, expected)
    for name, others in together.items():
        table = parquet.read_table(path, others) if name in table.column_names else table
    if not table.num_rows:
        raise UserError(f"{path}: there is no row in it; fetch it again")
    wide = [field.with_type(pa.float64()) if pa.types.is_floating(field.type) else field for field in table.schema]
    rows = table.cast(pa.schema(wide)).to_pandas()
    for field in table.schema:
        if any(kind(field.type) for kind in (pa.types.is_string, pa.types.is_large_string, pa.types.is_dictionary)):
            printable = {text: str(text).isprintable() for text in rows[field.name].unique()}
            _refuse(path, field.name, rows[field.name], rows[field.name].astype(object).map(printable))
    return rows


def _refuse(path: Path, name: str, values: pd.Series, right: pd.Series) -> None:
    """``UserError`` with the first of ``values`` that is not ``right``."""
    if not right.all():
        row = int(np.argmin(right.to_numpy()))
        raise UserError(f"{path}: row {row}, {name} is {shown(values.tolist()[row])}, which cannot be; fetch it again")


def _candidates(kernels: pd.DataFrame, pairs: pd.DataFrame, arch: str) -> pd.DataFrame:
    """One row a candidate, by name and split-K: build columns, every field, ``number`` of its kernel."""
    codes = kernels["object_sha256"] if "object_sha256" in kernels else [""] * len(kernels)
    built = pd.DataFrame(
        {
            "number": np.arange(len(kernels)),
            "kernel": kernels["kernel"],
            "kernel_id": [
                hashlib.sha256(f"{name}\n{arch}\n{code}".encode()).hexdigest()[:16]
                for name, code in zip(kernels["kernel"], codes, strict=True)
            ],
        }
    )
    if "registers" in kernels:
        built = built.assign(
            resources_from="code_object",
            vgprs=kernels["registers"].astype("float64"),
            lds_bytes=kernels["shared_bytes"],
            occupancy=kernels["blocks"].astype("float64"),
        )
    splits = pd.DataFrame({"split_k": np.sort(pairs["split_k"].unique()).astype("int64")})
    rows = built.merge(splits, how="cross").sort_values(["kernel", "split_k"], ignore_index=True)
    return candidate_tables.with_fields(rows)


def _estimated(candidates: pd.DataFrame, hardware: Hardware, coefficients: Coefficients | None) -> pd.DataFrame:
    """Candidates with the resources that their library's formulas give, or none if it has no formulas."""
    library = library_of_kernels(candidates["kernel"].tolist())
    if coefficients is None or library.estimate is None:
        return candidates.assign(resources_from="unknown", **dict.fromkeys(candidate_tables.RESOURCES, np.nan))
    resources = library.estimate(candidates, hardware, coefficients)[list(candidate_tables.RESOURCES)]
    return candidates.assign(resources_from="estimated", **resources.astype({"vgprs": "float64"}))


def _rows(
    problems: pd.DataFrame, candidates: pd.DataFrame, pairs: pd.DataFrame, operation: Operation, hardware: Hardware
) -> pa.Table:
    """One row for every problem with every candidate of its dimensionality, by problem, then by candidate.

    Where a library offers the candidates, only those that it offered for the problem.
    """
    problems = problems.assign(number=np.arange(len(problems))).sort_values("problem_key", ignore_index=True)
    library = library_of_kernels(candidates["kernel"].tolist())
    verdicts = check_support(problems, candidates, operation.variant, hardware)
    same = problems["ndim"].to_numpy()[:, None] == candidates["ndim"].to_numpy()[None, :]
    position = _position(problems, candidates, pairs)
    p, q = np.nonzero(same & (position >= 0) if library.offered else same)
    measured = position[p, q]
    tried = measured >= 0
    at = np.where(tried, measured, 0)
    codes = pd.Categorical(pairs["status"], categories=STATUSES).codes
    refused = np.where(verdicts[p, q] > 0, STATUSES.index("unsupported"), STATUSES.index("skipped"))
    status = np.asarray(STATUSES, object)[np.where(tried, codes[at], refused)]
    ok = status == "ok"
    milliseconds = np.where(ok, pairs["median_us"].to_numpy(np.float64)[at] / 1000.0, np.nan)
    flops = implicit_gemm(problems, operation.variant)["flops"].to_numpy()[p]
    names = ["", *(rule.name for rule in library.rules.rules)]
    reason = np.where(tried, np.where(ok, "", status), np.asarray(names, object)[verdicts[p, q]])
    # A recording from before the workflow's harness has no sentinel.
    drift = pairs["sentinel"].to_numpy(np.float64) if "sentinel" in pairs else np.full(len(pairs), np.nan)
    rank = pairs["rank"].to_numpy(np.float64) if library.offered else np.full(len(pairs), np.nan)
    columns: dict[str, np.ndarray] = {
        **{str(name): column.to_numpy()[p] for name, column in problems.items()},
        **{name: candidates[name].to_numpy()[q] for name in (*BUILD, "split_k") if name not in CODE},
        "alias_of": np.full(len(p), ""),
        "status": status,
        "reason": reason,
        "latency_ms": milliseconds,
        "tflops": flops / milliseconds * 1e-9,
        "non_zero": np.full(len(p), np.nan),
        "samples": np.where(ok, pairs["samples"].to_numpy()[at], 0),
        "latency_cv": np.where(ok, pairs["cv"].to_numpy(np.float64)[at], np.nan),
        "sentinel": np.where(tried, drift[at], np.nan),
        "rank": np.where(tried, rank[at], np.nan),
        **dict.fromkeys(CODE, np.full(len(p), np.nan)),
    }
    expected = with_layout(SCHEMA, problems.columns)
    table = pa.table({name: pa.array(columns[name], from_pandas=True) for name in expected.names})
    return typed(table).cast(expected)


def _position(problems: pd.DataFrame, candidates: pd.DataFrame, pairs: pd.DataFrame) -> np.ndarray:
    """For each problem and candidate the row of ``pairs``, int64 [P, Q]; -1 where there is none."""
    problem = np.empty(len(problems), np.int64)
    problem[problems["number"].to_numpy()] = np.arange(len(problems))
    keys = pd.MultiIndex.from_frame(candidates[["number", "split_k"]])
    measured = pd.MultiIndex.from_arrays([pairs["kernel"].astype("int64"), pairs["split_k"].astype("int64")])
    candidate = keys.get_indexer(measured)
    if (candidate < 0).any() or not pairs["problem"].between(0, len(problems), "left").all():
        raise UserError("a pair of the recording names a kernel or problem missing from its tables; fetch it again")
    position = np.full((len(problems), len(candidates)), -1, np.int64)
    position[problem[pairs["problem"].to_numpy()], candidate] = np.arange(len(pairs))
    return position
