"""Scores of any kernels on any problems by a published model, so that it can be judged on others' measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.client.selection import Selector
from tileseer.conv.operation import ELEMENT_BYTES, Operation
from tileseer.conv.problem import DIMS
from tileseer.core import documents
from tileseer.core.errors import UserError
from tileseer.families import candidates
from tileseer.families.coefficients import Coefficients
from tileseer.families.gemm_kernel import GemmKernel
from tileseer.families.names import Named, read
from tileseer.families.registry import of_arch
from tileseer.families.support_rules import check
from tileseer.model import features, model_files
from tileseer.model.model import OFFSET
from tileseer.problems import foreign_problems
from tileseer.publish import index as published

TEXT = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        ("problem_idx", pa.int64()),
        ("kernel", TEXT),
        ("variant", TEXT),
        ("dtype", TEXT),
        ("ndim", pa.int32()),
        *((name, pa.int32()) for name in DIMS),
        ("candidate", TEXT),
        ("assumed", TEXT),
        ("in_pool", pa.bool_()),
        ("supported", pa.bool_()),
        ("rule", TEXT),
        ("score", pa.float64()),
        ("rank", pa.int32()),
        ("model_operation", TEXT),
        ("arch", TEXT),
        ("device_kind", TEXT),
    ]
)
"""``kernel`` as it was given, ``candidate`` as it was understood with what was ``assumed``; ``rule`` refuses the pair
if it is not ``supported``; ``rank`` 1 is the highest score of the problem among its supported pairs, 0 without rank;
``device_kind`` says where the times came from that the model learnt."""


@dataclass(frozen=True)
class Pairs:
    """Which kernels are to be scored on which problems: n pairs."""

    names: list[str]
    """Distinct names, as they were given."""
    kernels: list[Named]
    """What they stand for."""
    dims: pd.DataFrame
    """Distinct problems, columns ``DIMS`` and ``problem_idx``."""
    name: np.ndarray
    problem: np.ndarray
    """Rows of the above, int64 [n]."""


def kernel_names(path: Path) -> list[tuple[int, str]]:
    """Return (line, name) of a list of kernels: one a line, # for remarks, or a CSV with a column ``kernel``."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    if lines and ("," in lines[0] or lines[0].strip() == "kernel"):
        return csv_kernels(path, foreign_problems.read_csv(path))
    words = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, start=1)]
    named = [(number, word) for number, word in words if word]
    if not named:
        raise UserError(f"{path}: there is no kernel name in it; write one a line")
    return named


def csv_kernels(path: Path, table: pd.DataFrame) -> list[tuple[int, str]]:
    """Return (line, name) of every row of a CSV with a column ``kernel``."""
    if "kernel" not in table:
        raise UserError(f"{path}: column kernel is missing; give the kernels with --kernels, or a column kernel")
    names = table["kernel"].str.strip().tolist()
    return [(row + foreign_problems.FIRST_LINE, name) for row, name in enumerate(names)]


def understood(path: Path, named: Sequence[tuple[int, str]], arch: str) -> dict[str, Named]:
    """Return what each distinct name stands for, without depthwise kernels, which no model knows.

    ``UserError`` names file and line of the first name that is unknown.
    """
    found: dict[str, Named] = {}
    for line, name in named:
        if name not in found:
            try:
                found[name] = read(name, arch)
            except UserError as error:
                raise UserError(f"{path}, line {line}: {error}") from error
    return {name: one for name, one in found.items() if isinstance(one.kernel, GemmKernel)}


def every_pair(problems: Path, kernels: Path, arch: str) -> tuple[Pairs, list[str]]:
    """Return each kernel of a list with each distinct problem of its dimensionality, and remarks."""
    table = foreign_problems.read_csv(problems)
    rows, remarks = foreign_problems.dims(problems, table)
    foreign_problems.check(problems, rows, "forward", "bf16")
    rows["problem_idx"] = _problem_idx(table)
    distinct = rows.drop_duplicates(subset=list(DIMS), ignore_index=True)
    named = kernel_names(kernels)
    found = understood(kernels, named, arch)
    remarks += _left_out(named, found)
    is_3d = _is_3d(distinct)
    ndim = np.array([named.kernel.ndim for named in found.values()])
    problem, name = np.nonzero((ndim[None, :] == 3) == is_3d[:, None])
    return Pairs(list(found), list(found.values()), distinct, name, problem), remarks


def listed_pairs(problems: Path, arch: str) -> tuple[Pairs, list[str]]:
    """Return the pairs of a CSV that has a column ``kernel``, row by row, and remarks."""
    table = foreign_problems.read_csv(problems)
    named = csv_kernels(problems, table)
    rows, remarks = foreign_problems.dims(problems, table)
    foreign_problems.check(problems, rows, "forward", "bf16")
    found = understood(problems, named, arch)
    remarks += _left_out(named, found)
    rows["problem_idx"] = _problem_idx(table)
    kept = [row for row, (_, name) in enumerate(named) if name in found]
    rows, named = rows.iloc[kept].reset_index(drop=True), [named[row] for row in kept]
    distinct = rows.drop_duplicates(subset=list(DIMS), ignore_index=True)
    problem = pd.MultiIndex.from_frame(distinct[list(DIMS)]).get_indexer(pd.MultiIndex.from_frame(rows[list(DIMS)]))
    position = {name: i for i, name in enumerate(found)}
    name = np.array([position[text] for _, text in named])
    wrong = np.array([k.kernel.ndim == 3 for k in found.values()])[name] != _is_3d(distinct)[problem]
    if wrong.any():
        row = int(wrong.argmax())
        raise UserError(
            f"{problems}, line {named[row][0]}: kernel {named[row][1]!r} has another "
            "dimensionality than the problem (3D: Di or Z above 1)"
        )
    return Pairs(list(found), list(found.values()), distinct, name, problem), remarks


def _left_out(named: Sequence[tuple[int, str]], found: dict[str, Named]) -> list[str]:
    missing = {name for _, name in named} - set(found)
    return [f"{len(missing)} depthwise kernels are left out: no model knows them"] if missing else []


def score(models: Path, pairs: Pairs, threads: int = 1) -> tuple[pa.Table, list[str]]:
    """Return one row a pair, in their order, columns ``SCHEMA``, and remarks on what a reader has to know."""
    index = published.verify(models)
    operations = [f"{named.kernel.variant}_{named.kernel.dtype}" for named in pairs.kernels]
    remarks, values = [], _Values(len(pairs.name))
    of_name = np.array(operations, dtype=object)
    for operation in dict.fromkeys(operations):
        model = _model_for(models, operation, list(index.operations))
        if model != operation:
            remarks.append(f"there is no model of {operation}; its kernels are scored by that of {model}")
        rows = np.flatnonzero((of_name == operation)[pairs.name])
        if len(rows):
            _score_operation(Selector.load(models, model), pairs, operation, rows, values, threads)
    values.rank[:] = _ranks(pairs.problem, of_name[pairs.name], values)
    assumed = sum(bool(named.assumed) for named in pairs.kernels)
    if assumed:
        remarks.append(f"{assumed} of {len(pairs.names)} kernel names leave fields open; column assumed has them")
    outside = len(set(pairs.name[~values.in_pool].tolist()))
    if outside:
        remarks.append(
            f"{outside} of {len(pairs.names)} kernels are not in the model's pool: their registers, LDS and occupancy "
            "are estimates, and they have no offset of their own"
        )
    return _table(pairs, operations, values, index), remarks


class _Values:
    """What scoring fills in, one entry a pair."""

    def __init__(self, count: int) -> None:
        self.score = np.full(count, np.nan)
        self.supported = np.zeros(count, bool)
        self.rule = np.zeros(count, np.int32)
        self.in_pool = np.zeros(count, bool)
        self.rank = np.zeros(count, np.int32)
        self.model = np.full(count, "", dtype=object)


def _model_for(models: Path, operation: str, known: list[str]) -> str:
    """Return the operation whose model scores ``operation``: its own, else of its direction, equal sizes first."""
    wanted = Operation.parse(operation)
    size = ELEMENT_BYTES[wanted.dtype]
    own = [Operation.parse(name) for name in known if Operation.parse(name).variant == wanted.variant]
    own.sort(key=lambda o: (o.dtype != wanted.dtype, ELEMENT_BYTES[o.dtype] != size, o.dtype))
    if not own:
        raise UserError(f"{models}: there is no model of {wanted.variant}; it has {', '.join(known)}")
    return str(own[0])


def _score_operation(
    selector: Selector, pairs: Pairs, operation: str, rows: np.ndarray, values: _Values, threads: int
) -> None:
    wanted = Operation.parse(operation)
    used, local_name = np.unique(pairs.name[rows], return_inverse=True)
    used_problems, local_problem = np.unique(pairs.problem[rows], return_inverse=True)
    pool, in_pool = _pool(selector, [pairs.kernels[i] for i in used])
    problems = pairs.dims.iloc[used_problems][list(DIMS)].reset_index(drop=True)
    problems = problems.assign(variant=wanted.variant, dtype=wanted.dtype, ndim=np.where(_is_3d(problems), 3, 2))
    verdicts = check(problems, pool, wanted.variant, selector.hardware.wave_size)
    verdict = verdicts[local_problem, local_name]
    values.rule[rows] = verdict
    values.supported[rows] = verdict == 0
    values.in_pool[rows] = in_pool[local_name]
    values.model[rows] = selector.spec.operation
    model = replace(selector, pool=pool)
    values.score[rows] = model.predict(problems, local_problem, local_name, threads)


def _pool(selector: Selector, named: list[Named]) -> tuple[pd.DataFrame, np.ndarray]:
    """Return kernels as a pool: resources and offset of the published pool where it has them, else estimates and 0."""
    table = candidates.with_fields(
        pd.DataFrame({"kernel": [n.kernel.name for n in named], "split_k": [n.split_k for n in named]})
    )
    known = selector.pool.set_index("candidate")
    in_pool = table["candidate"].isin(known.index).to_numpy()
    resources = of_arch(selector.spec.arch).part("resources")
    if resources.FORMULAS:
        coefficients = documents.read(selector.folder / model_files.ESTIMATES, Coefficients)
        estimate = resources.estimate(table, selector.hardware, coefficients)
    else:
        estimate = _of_most_alike(table, selector)
    own = known.reindex(table["candidate"])
    for column in candidates.RESOURCES:
        table[column] = np.where(in_pool, own[column].to_numpy(float), estimate[column].to_numpy(float))
    # Of a kernel outside the pool nobody knows the code: the model's trees take that as they have learnt it.
    known_code = set(features.CODE).intersection(features.feature_set(selector.spec.feature_set).names)
    for column in sorted(known_code):
        table[column] = np.where(in_pool, own[column].to_numpy(float), np.nan)
    table[OFFSET] = np.where(in_pool, own[OFFSET].to_numpy(float), 0.0)
    return table, in_pool


def _of_most_alike(table: pd.DataFrame, selector: Selector) -> pd.DataFrame:
    """Return the resources of the candidate of the pool that shares the most fields with each kernel.

    There are formulas for the registers of CK Tile kernels only; of others the pool is all that is known.
    """
    pool = selector.pool
    same = np.zeros((len(table), len(pool)), np.int64)
    for field in (*of_arch(selector.spec.arch).part("kernel").FIELDS, "split_k"):
        same += table[field].to_numpy()[:, None] == pool[field].to_numpy()[None, :]
    return pool.iloc[same.argmax(axis=1)].reset_index(drop=True)


def _is_3d(dims: pd.DataFrame) -> np.ndarray:
    flat = {"Di": 1, "Z": 1, **foreign_problems.FLAT}
    return pd.concat([dims[name] != value for name, value in flat.items()], axis=1).any(axis=1).to_numpy()


def _problem_idx(table: pd.DataFrame) -> np.ndarray:
    """Return the column ``problem_idx`` where it is there and whole, else the row's number."""
    if "problem_idx" in table and table["problem_idx"].str.fullmatch(r"\d{1,18}").all():
        return table["problem_idx"].astype(np.int64).to_numpy()
    return np.arange(len(table))


def _ranks(problem: np.ndarray, operation: np.ndarray, values: _Values) -> np.ndarray:
    """Return the rank of each supported pair among those of its problem and operation; 0 for the others."""
    ranks = np.zeros(len(problem), np.int32)
    rows = np.flatnonzero(values.supported)
    frame = pd.DataFrame({"p": problem[rows], "o": operation[rows].astype(str), "s": -values.score[rows]})
    ranks[rows] = frame.groupby(["p", "o"])["s"].rank(method="first").to_numpy(np.int32)
    return ranks


def _table(pairs: Pairs, operations: list[str], values: _Values, index: published.Index) -> pa.Table:
    def word(texts: Sequence[str], rows: np.ndarray) -> pa.DictionaryArray:
        distinct, code = np.unique(np.array(texts, dtype=object).astype(str), return_inverse=True)
        return pa.DictionaryArray.from_arrays(pa.array(code[rows].astype(np.int32)), pa.array(distinct.tolist()))

    every = np.zeros(len(pairs.name), np.int64)
    dims = pairs.dims.iloc[pairs.problem]
    parsed = [Operation.parse(operation) for operation in operations]
    columns = {
        "problem_idx": dims["problem_idx"].to_numpy(),
        "kernel": word(pairs.names, pairs.name),
        "variant": word([o.variant for o in parsed], pairs.name),
        "dtype": word([o.dtype for o in parsed], pairs.name),
        "ndim": np.array([n.kernel.ndim for n in pairs.kernels], np.int32)[pairs.name],
        **{name: dims[name].to_numpy(np.int32) for name in DIMS},
        "candidate": word([candidates.label(n.kernel.name, n.split_k) for n in pairs.kernels], pairs.name),
        "assumed": word([n.assumed for n in pairs.kernels], pairs.name),
        "in_pool": values.in_pool,
        "supported": values.supported,
        "rule": word(["", *(rule.name for rule in of_arch(index.arch).part("support").RULES)], values.rule),
        "score": values.score,
        "rank": values.rank,
        "model_operation": word(values.model.tolist(), np.arange(len(every))),
        "arch": word([index.arch], every),
        "device_kind": word([index.device_kind], every),
    }
    return pa.table(columns, schema=SCHEMA)
