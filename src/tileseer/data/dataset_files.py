"""The files of a dataset, measured here or recorded elsewhere: three tables, joined by row numbers.

::

    problems.parquet    the problems, in the form of the problems stage, or their dimensions alone
    kernels.parquet     the kernels, what became of their build, what the compiler said of them
    pairs.parquet       one row a pair that was tried (``PAIRS``)
    recording.json      what was measured, on what, how; of a recording of several operations in the folder above

The dataset stage writes them, and so do importers of libraries.
A pair without a row was not tried: a rule refuses it, its kernel was not built, or nobody measured it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.build.build import SCHEMA as BUILD
from tileseer.core import documents, parquet
from tileseer.core.errors import UserError, nearest, shown
from tileseer.core.seal import file_digest
from tileseer.data.provenance import Recording
from tileseer.facts.hardware import Hardware
from tileseer.libraries.candidates import RESOURCES
from tileseer.libraries.registry import library_of_arch, library_of_kernels, parse_kernels
from tileseer.measure.device import STATUSES, are_times
from tileseer.problems import problem_table
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS, problem_frame, problems_of_rows

FILE = "recording.json"
TABLES = ("problems", "kernels", "pairs")
MAKE_AGAIN = parquet.REMAKE
TWICE = "as an earlier row has it"
MOST_CANDIDATES, MOST_CELLS, CELLS_OF_A_PAIR = 100_000, 2**25, 64
"""Kernels with a split-K, and cells of the table of problems and candidates, which grows with the tried pairs."""
CODE = (
    "agprs", "sgprs", "scratch_bytes", "vgpr_spills", "code_bytes",
    "n_mfma", "n_buffer_loads", "n_buffer_stores", "n_lds_reads", "n_lds_writes", "n_barriers",
)  # fmt: skip
"""Facts of a kernel that only a compiler has; empty in estimates."""
NOT_TRIED = ("unsupported", "compile_error", "compile_timeout", "skipped")
"""Statuses of pairs that a recording has although nobody ran them."""
KERNELS = BUILD.append(pa.field("alias_of", pa.string(), False))
"""The columns of a build table, and the kernel with the same machine code whose pairs count for an alias, which has
none of its own. Only ``kernel`` is in every recording."""
PAIRS = pa.schema(
    [
        pa.field("problem", pa.int32(), False),
        pa.field("kernel", pa.int32(), False),
        pa.field("split_k", pa.int32(), False),
        pa.field("status", pa.dictionary(pa.int32(), pa.string()), False),
        pa.field("reason", pa.dictionary(pa.int32(), pa.string())),
        pa.field("samples", pa.int32(), False),
        pa.field("median_us", pa.float64()),
        pa.field("cv", pa.float64()),
        pa.field("non_zero", pa.int64()),
        pa.field("sentinel", pa.float64()),
        pa.field("rank", pa.int32()),
    ]
)
"""Documented in docs/internals/data.md. A recording has all but ``reason``, ``non_zero``, ``sentinel`` and ``rank``,
and perhaps more that nobody reads."""
IN_EVERY_RECORDING = ("problem", "kernel", "split_k", "status", "samples")
REPORTED = parquet.schema([(name, pa.int32()) for name in ("registers", "shared_bytes", "blocks")])
"""A compiler's message about a kernel of a recording that is older than ``KERNELS``."""


@dataclass(frozen=True, eq=False)
class DatasetTables:
    """The content of a dataset's folder; rows of ``pairs`` have row numbers of the other two tables."""

    operation: Operation
    recording: Recording
    problems: pd.DataFrame
    kernels: pd.DataFrame
    """With the columns of ``KERNELS`` about resources, identity and aliases; NaN where nobody knows."""
    pairs: pd.DataFrame


def read_recording(folder: Path) -> Recording:
    """Read the description of a recording; ``UserError`` if it is missing or damaged."""
    return documents.read_document(folder / FILE, Recording)


def check_recording(folder: Path, operation: str, hardware: Hardware) -> Recording:
    """Read the description of a recording; ``UserError`` unless it has the device and the tables of an operation."""
    recording = read_recording(folder)
    if operation not in recording.operations:
        raise UserError(
            f"{folder / FILE}: {operation} was not recorded; it has {', '.join(recording.operations)}. "
            "Take those alone: operations of a configuration, --variant and --dtype of a command"
        )
    if hardware.name != recording.device:
        raise UserError(
            f"{folder / FILE}: the device is {recording.device}, "
            f"but the models are of {hardware.name} (benchmark.products); give a recording of that device"
        )
    for path in (folder / operation / f"{name}.parquet" for name in TABLES):
        if not path.is_file():
            raise UserError(f"{path}: there is no such file, but {FILE} lists {operation}; {MAKE_AGAIN}")
    return recording


def _way_to_datasets(folder: Path) -> str:
    """Return which datasets are like one that is not there, or what makes it."""
    places = folder.parent.parent, Path("results/datasets"), Path("config/recorded")
    found = sorted({each.parent for place in places for each in place.glob("*/*/pairs.parquet")})
    archs = [each.parent.name for each in found]
    arch = nearest(folder.parent.name, archs, 0.8) or nearest(folder.name, archs, 0.8)
    own = [each for each in found if each.parent.name == arch] or found
    alike = [each for each in own if each.name == folder.name] or own
    way = f"give a folder such as {', '.join(map(str, alike[:3]))}" if alike else "tileseer run makes some"
    is_made = folder.parent.parent.name == "datasets"
    return f"tileseer run --arch {folder.parent.name} makes it; or {way}" if is_made else way


def describe(folder: Path) -> tuple[Recording, Operation]:
    """Return what the dataset in ``folder`` is of, with its measurement id; ``UserError`` where there is none."""
    is_own = (folder / FILE).is_file()
    if not is_own and not (folder.parent / FILE).is_file():
        if (folder / "pairs.parquet").is_file():
            raise UserError(
                f"{folder.parent / FILE}: there is no such file, which says what was measured; copy it too, and call "
                "the folder as it was, by its operation"
            )
        raise UserError(f"{folder}: there is no dataset; {_way_to_datasets(folder)}")
    recording = read_recording(folder if is_own else folder.parent)
    operation = recording.operations[0] if is_own else folder.name
    if operation not in recording.operations or (is_own and len(recording.operations) > 1):
        names = ", ".join(recording.operations)
        way = "rename it as its operation, or " if (folder / "pairs.parquet").is_file() else ""
        raise UserError(f"{folder}: is no dataset of one operation; {way}give the folder of one of {names}")
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder, but {folder.parent / FILE} lists {operation}; copy it too")
    pairs = folder / "pairs.parquet"
    if is_own and not pairs.is_file() and (folder / operation).is_dir():
        raise UserError(f"{folder}: is no dataset of one operation; give {folder / operation}")
    if recording.measurement_id is None and pairs.is_file():
        recording = recording.model_copy(update={"measurement_id": file_digest(pairs)[:16]})
    return recording, Operation.parse(operation)


def table_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each table of a dataset, by its name."""
    return {f"{name}.parquet": file_digest(folder / f"{name}.parquet") for name in TABLES}


def read_tables(folder: Path) -> DatasetTables:
    """Read the dataset in ``folder``; ``UserError`` if a file is missing or damaged, or a number cannot be.

    A kernel that computed a wrong result anywhere has no time: it must not be chosen, and its other pairs were perhaps
    not compared with a reference.
    """
    recording, operation = describe(folder)
    problems = _read_problems(folder / "problems.parquet", operation)
    kernels = _read_kernels(folder / "kernels.parquet", recording.arch)
    pairs = _read_pairs(folder / "pairs.parquet", library_of_arch(recording.arch).offered)
    path = folder / "pairs.parquet"
    for name, table in (("problem", problems), ("kernel", kernels)):
        _refuse(path, name, pairs[name], pairs[name].between(0, len(table), "left"))
    twice = pairs.duplicated(["problem", "kernel", "split_k"])
    if twice.any():
        raise UserError(f"{path}: row {twice.argmax()}, its pair occurs twice; {MAKE_AGAIN}")
    counts = kernels["split_k"].map(len) if "split_k" in kernels else pairs["split_k"].nunique()
    candidates = int(np.sum(np.broadcast_to(counts, len(kernels))))
    if candidates > MOST_CANDIDATES or candidates * len(problems) > MOST_CELLS + CELLS_OF_A_PAIR * len(pairs):
        raise UserError(
            f"{folder}: has {candidates:,} kernels with a split-K for {len(problems):,} problems, more than can be "
            f"compared; {MAKE_AGAIN}"
        )
    wrong = pairs["kernel"].isin(pairs["kernel"][pairs["status"] == "wrong_result"])
    pairs["status"] = pairs["status"].astype(object).mask(wrong & (pairs["status"] == "ok"), "wrong_result")
    return DatasetTables(operation, recording, problems, kernels, pairs)


def write_tables(folder: Path, recording: Recording, tables: Mapping[str, pa.Table]) -> None:
    """Write a dataset; ``tables`` has those of ``TABLES``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        parquet.write_table(tables[name], folder / f"{name}.parquet")
    documents.write_document(folder / FILE, recording)


def _read_problems(path: Path, operation: Operation) -> pd.DataFrame:
    """Read the problems, in the form of the problems stage; without one, all are for training."""
    table = _read_table(
        path, parquet.schema([(name, pa.int32()) for name in DIMS]), {"problem_key": problem_table.SCHEMA}, ["layout"]
    )
    try:
        rows, layouts = table[list(DIMS)].to_numpy(), table.get("layout")
        made = problem_frame(problems_of_rows(operation.variant, operation.dtype, rows, layouts))
    except UserError as error:
        raise UserError(f"{path}: {error}; {MAKE_AGAIN}") from error
    _refuse(path, "problem_key", made["problem_key"], ~made["problem_key"].duplicated(), TWICE)
    if "problem_key" not in table:
        return made.assign(split="train", network="", layer="")
    _refuse(path, "split", table["split"], table["split"].isin(problem_table.SPLITS))
    if not (table[made.columns] == made).all(axis=None):
        raise UserError(f"{path}: keys of problems do not belong to their dimensions; {MAKE_AGAIN}")
    return table.assign(**made[["ndim", *DIMS]])


def _read_kernels(path: Path, arch: str) -> pd.DataFrame:
    """Read the kernels of the library of an arch, each with a name of its own."""
    table = _read_table(
        path,
        parquet.schema([("kernel", pa.string())]),
        {"registers": REPORTED, "kernel_id": KERNELS},
        ["object_sha256"],
    )
    names = table["kernel"].tolist()
    try:
        if library_of_kernels(names) != (library := library_of_arch(arch)):
            raise UserError(f"kernels of {arch} have names that begin with {library.prefix}")
        parse_kernels(names)
    except UserError as error:
        raise UserError(f"{path}: {error}; {MAKE_AGAIN}") from error
    _refuse(path, "kernel", table["kernel"], ~table["kernel"].duplicated(), TWICE)
    if "kernel_id" in table:
        _refuse(path, "alias_of", table["alias_of"], table["alias_of"].isin([*names, ""]))
        sizes = {} if table["lds_bytes"].hasnans else {"lds_bytes": "int64"}
        return table.astype(dict.fromkeys(CODE, "float64") | sizes)
    codes = table["object_sha256"] if "object_sha256" in table else [""] * len(names)
    ids = [f"{name}\n{arch}\n{code}" for name, code in zip(names, codes, strict=True)]
    table["kernel_id"] = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in ids]
    table = table.assign(alias_of="", resources_from="unknown", **dict.fromkeys((*RESOURCES, *CODE), np.nan))
    if "registers" not in table:
        return table
    for name in REPORTED.names:
        _refuse(path, name, table[name], table[name] >= 0)
    floats = {"vgprs": table["registers"].astype("float64"), "occupancy": table["blocks"].astype("float64")}
    return table.assign(resources_from="code_object", lds_bytes=table["shared_bytes"].astype("int64"), **floats)


def _read_pairs(path: Path, ranked: bool) -> pd.DataFrame:
    """Read the tried pairs, whose numbers can be; ``ranked``: a library offered the kernels in an order."""
    pairs = _read_table(path, pa.schema([PAIRS.field(name) for name in IN_EVERY_RECORDING]), {}, PAIRS.names)
    # A recording from before the workflow's harness has no sentinel.
    for name in ("rank", "sentinel"):
        if name not in pairs and not (ranked and name == "rank"):
            pairs[name] = np.nan
    for name in ("median_us", "cv", "rank", "sentinel"):
        if name not in pairs or pairs[name].dtype.kind not in "fiu":
            raise UserError(f"{path}: there is no column {name} with numbers; {MAKE_AGAIN}")
    ok = pairs["status"] == "ok"
    _refuse(path, "status", pairs["status"], pairs["status"].isin(STATUSES))
    _refuse(path, "split_k", pairs["split_k"], pairs["split_k"] >= 1)
    _refuse(path, "samples", pairs["samples"], pairs["samples"] >= 0)
    _refuse(path, "median_us", pairs["median_us"], ~ok | are_times(pairs["median_us"].to_numpy() / 1000))
    for name in ("cv", "rank", "sentinel"):
        # A missing value is no number.
        _refuse(path, name, pairs[name], pairs[name].isna() | pairs[name].between(0, np.inf, "left"))
    return pairs[~pairs["status"].isin(NOT_TRIED)].reset_index(drop=True)


def _read_table(
    path: Path, expected: pa.Schema, together: Mapping[str, pa.Schema], others: Sequence[str]
) -> pd.DataFrame:
    """Read a table with ``expected`` columns, some rows, and text that can be printed.

    ``together``: columns that have to be there where another one is; ``others`` may be there. Floats are float64, by
    Arrow: damage leaves NaNs that NumPy only converts with a warning.
    """
    known = [*expected.names, *others, *chain.from_iterable(schema.names for schema in together.values())]
    table = parquet.read_table(path, expected, columns=known)
    for name, schema in together.items():
        if name in table.column_names:
            parquet.check_columns(table, schema, path)
    if not table.num_rows:
        raise UserError(f"{path}: there is no row in it; {MAKE_AGAIN}")
    for field in table.schema:
        if pa.types.is_nested(field.type) and field not in KERNELS:
            raise UserError(f"{path}: column {field.name} holds lists or structs; {MAKE_AGAIN}")
    wide = [field.with_type(pa.float64()) if pa.types.is_floating(field.type) else field for field in table.schema]
    rows = table.cast(pa.schema(wide)).to_pandas()
    for field in table.schema:
        if any(kind(field.type) for kind in (pa.types.is_string, pa.types.is_large_string, pa.types.is_dictionary)):
            printable = {text: str(text).isprintable() for text in rows[field.name].unique()}
            _refuse(path, field.name, rows[field.name], rows[field.name].astype(object).map(printable))
    return rows


def _refuse(
    path: Path,
    name: str,
    values: pd.Series,
    right: pd.Series | Sequence[bool] | np.ndarray,
    why: str = "which cannot be",
) -> None:
    """Raise ``UserError`` with the first of ``values`` that is not ``right``."""
    right = np.asarray(right, bool)
    if not right.all():
        row = int(np.argmin(right))
        raise UserError(f"{path}: row {row}, {name} is {shown(values.tolist()[row])}, {why}; {MAKE_AGAIN}")
