"""Scores of any kernels on any problems by a published model, to judge it on measurements of others."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.config.operations import DTYPES, VARIANTS
from tileseer.core import documents
from tileseer.core.errors import UserError
from tileseer.core.yaml_files import read_utf8
from tileseer.costmodel.coefficients import Coefficients
from tileseer.costmodel.resources import REGISTERS, RESOURCES
from tileseer.kernels import candidates, names
from tileseer.kernels.gemm_kernel import field_types
from tileseer.kernels.names import Named
from tileseer.kernels.registry import of_arch
from tileseer.kernels.support import SUPPORT, check_support
from tileseer.learn import model_files
from tileseer.learn.features import features
from tileseer.learn.model import Model
from tileseer.problems import problem_csv
from tileseer.problems.operation import ELEMENT_BYTES, Operation
from tileseer.problems.problem import DIMS

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
class ScoredPairs:
    """n pairs of kernels and problems to score."""

    kernels: list[Named]
    """Distinct ones."""
    dims: pd.DataFrame
    """Distinct problems, columns ``DIMS`` and ``problem_idx``; every row, where rows say their operation."""
    name: np.ndarray
    problem: np.ndarray
    """Rows of the above, int64 [n]."""

    @property
    def named(self) -> set[str]:
        """Names as they were given; one may stand for a kernel of each operation."""
        return {one.text for one in self.kernels}


def read_kernel_names(path: Path) -> list[tuple[int, str]]:
    """(line, name) of a list of kernels: one a line, # for remarks, or a CSV with a column ``kernel``."""
    lines = read_utf8(path, "utf-8-sig").splitlines()
    if lines and ("," in lines[0] or lines[0].strip() == "kernel"):
        return csv_kernels(path, problem_csv.read_csv(path))
    words = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, start=1)]
    named = [(number, word) for number, word in words if word]
    if not named:
        raise UserError(f"{path}: there is no kernel name in it; write one a line")
    return named


def csv_kernels(path: Path, table: pd.DataFrame) -> list[tuple[int, str]]:
    """(line, name) of every row of a CSV with a column ``kernel``."""
    if "kernel" not in table:
        raise UserError(f"{path}: column kernel is missing; give the kernels with --kernels, or a column kernel")
    names = table["kernel"].str.strip().tolist()
    return [(row + problem_csv.FIRST_LINE, name) for row, name in enumerate(names)]


def read_kernels(
    path: Path, named: Sequence[tuple[int, str]], arch: str, operation: Operation | None = None, ndim: int = 2
) -> dict[str, Named]:
    """Kernel of each distinct name, without depthwise kernels, which no model knows; see ``names.read``.

    ``UserError`` names file and line of the first name that is unknown.
    """
    kernels: dict[str, Named] = {}
    for line, name in named:
        if name not in kernels:
            try:
                kernels[name] = names.read(name, arch, operation, ndim)
            except UserError as error:
                raise UserError(f"{path}, line {line}: {error}") from error
    scored = of_arch(arch).kernel
    return {name: one for name, one in kernels.items() if isinstance(one.kernel, scored)}


def pair_all(problems: Path, kernels: Path, arch: str) -> tuple[ScoredPairs, list[str]]:
    """Each kernel of a list with each distinct problem of its dimensionality, and remarks.

    Where the problems say ``direction`` and ``dtype``, each is paired with the kernels for that.
    """
    rows, remarks = _problems(problems)
    named = read_kernel_names(kernels)
    if "operation" in rows:
        return _of_operations(rows, kernels, named, arch), remarks
    found = read_kernels(kernels, named, arch)
    distinct = rows.drop_duplicates(subset=list(DIMS), ignore_index=True)
    problem, name = np.nonzero(_kernels_3d(found)[None, :] == _is_3d(distinct)[:, None])
    return ScoredPairs(list(found.values()), distinct, name, problem), remarks + _left_out(named, found)


def _of_operations(rows: pd.DataFrame, path: Path, named: Sequence[tuple[int, str]], arch: str) -> ScoredPairs:
    """Every row with the kernels of its ``operation`` and dimensionality."""
    kernels: list[Named] = []
    problem, name = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for (operation, is_3d), part in rows.groupby([rows["operation"], _is_3d(rows)]):
        wanted, ndim = Operation.parse(str(operation)), 3 if is_3d else 2
        own = [
            one
            for one in read_kernels(path, named, arch, wanted, ndim).values()
            if (one.kernel.variant, one.kernel.dtype, one.kernel.ndim) == (wanted.variant, wanted.dtype, ndim)
        ]
        problem.append(np.repeat(part.index.to_numpy(), len(own)))
        name.append(np.tile(np.arange(len(own)) + len(kernels), len(part)))
        kernels += own
    return ScoredPairs(kernels, rows, np.concatenate(name), np.concatenate(problem))


def read_pairs(problems: Path, arch: str) -> tuple[ScoredPairs, list[str]]:
    """The pairs of a CSV that has a column ``kernel``, row by row, and remarks."""
    rows, remarks = _problems(problems)
    named = csv_kernels(problems, problem_csv.read_csv(problems))
    found = read_kernels(problems, named, arch)
    remarks += _left_out(named, found)
    kept = [row for row, (_, name) in enumerate(named) if name in found]
    rows, named = rows.iloc[kept].reset_index(drop=True), [named[row] for row in kept]
    distinct = rows.drop_duplicates(subset=list(DIMS), ignore_index=True)
    problem = rows.groupby(list(DIMS), sort=False).ngroup().to_numpy()
    name = pd.Index(list(found)).get_indexer(pd.Index([text for _, text in named]))
    wrong = _kernels_3d(found)[name] != _is_3d(distinct)[problem]
    if wrong.any():
        line, text = named[int(wrong.argmax())]
        raise UserError(
            f"{problems}, line {line}: kernel {text!r} has another dimensionality than the problem "
            "(3D: Di or Z above 1)"
        )
    return ScoredPairs(list(found.values()), distinct, name, problem), remarks


def _problems(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """The checked dimensions of each row of a CSV, ``problem_idx`` and, if it says so, ``operation``; and remarks."""
    table = problem_csv.read_csv(path)
    rows, remarks = problem_csv.dims_of_rows(path, table)
    problem_csv.check_problems(path, rows, "forward", "bf16")
    numbered = "problem_idx" in table and table["problem_idx"].str.fullmatch(r"\d{1,18}").all()
    rows["problem_idx"] = table["problem_idx"].astype(np.int64) if numbered else np.arange(len(table))
    if not {"direction", "dtype"} <= set(table):
        return rows, remarks
    rows["operation"] = table["direction"].str.strip() + "_" + table["dtype"].str.strip()
    known = rows["operation"].isin([f"{variant}_{dtype}" for variant in VARIANTS for dtype in DTYPES])
    if not known.all():
        other = rows["operation"][~known].iloc[0]
        remarks.append(f"{path}: {int((~known).sum())} rows of operations that no model knows are left out: {other}")
    return rows[known].reset_index(drop=True), remarks


def _left_out(named: Sequence[tuple[int, str]], found: dict[str, Named]) -> list[str]:
    missing = {name for _, name in named} - set(found)
    return [f"{len(missing)} depthwise kernels are left out: no model knows them"] if missing else []


def score_pairs(models: Path, pairs: ScoredPairs, threads: int = 1) -> tuple[pa.Table, list[str]]:
    """One row a pair, in their order, columns ``SCHEMA``, and remarks on what a reader has to know."""
    index = model_files.read_index(models)
    named = pairs.kernels
    of_kernel = np.array([f"{one.kernel.variant}_{one.kernel.dtype}" for one in named], object)
    operation = of_kernel[pairs.name]
    count, remarks = len(pairs.name), []
    values = pd.DataFrame({"score": np.full(count, np.nan), "rule": 0, "in_pool": False, "model": ""})
    for wanted in dict.fromkeys(of_kernel):
        model = _model_for(models, wanted, list(index.operations))
        if model != wanted:
            remarks.append(f"there is no model of {wanted}; its kernels are scored by that of {model}")
        rows = np.flatnonzero(operation == wanted)
        if len(rows):
            folder = models / index.operations[model].folder
            for column, found in _scored(folder, pairs, Operation.parse(wanted), rows, threads).items():
                values.loc[rows, column] = found
    if of_arch(index.arch).name not in RESOURCES:
        # Nothing tells anything of a kernel that was not measured.
        kept = values["in_pool"].to_numpy(bool)
        known = {named[i].text for i in set(pairs.name[kept].tolist())}
        if strangers := len(pairs.named - known):
            remarks.append(f"{strangers} of {len(pairs.named)} kernels are left out: the model has not seen them")
        pairs = replace(pairs, name=pairs.name[kept], problem=pairs.problem[kept])
        values, operation = values[kept].reset_index(drop=True), operation[kept]
    supported = values.assign(problem=pairs.problem, operation=operation, behind=-values["score"])[values["rule"] == 0]
    values["rank"] = supported.groupby(["problem", "operation"])["behind"].rank(method="first")
    assumed = sum(bool(one.assumed) for one in named)
    if assumed:
        remarks.append(f"{assumed} of {len(named)} kernel names leave fields open; column assumed has them")
    outside = len(set(pairs.name[~values["in_pool"]].tolist()))
    if outside:
        remarks.append(
            f"{outside} of {len(named)} kernels are not in the model's pool: their registers, LDS and occupancy "
            "are estimates"
        )
    return _table(pairs, values, index), remarks


def _model_for(models: Path, operation: str, known: list[str]) -> str:
    """The operation whose model scores ``operation``: its own, else of its direction, equal sizes first."""
    wanted = Operation.parse(operation)
    size = ELEMENT_BYTES[wanted.dtype]
    own = [Operation.parse(name) for name in known if Operation.parse(name).variant == wanted.variant]
    own.sort(key=lambda o: (o.dtype != wanted.dtype, ELEMENT_BYTES[o.dtype] != size, o.dtype))
    if not own:
        raise UserError(f"{models}: there is no model of {wanted.variant}; it has {', '.join(known)}")
    return str(own[0])


def _scored(
    folder: Path, pairs: ScoredPairs, operation: Operation, rows: np.ndarray, threads: int
) -> dict[str, np.ndarray | str]:
    """Columns ``score``, ``rule``, ``in_pool`` and ``model`` of some pairs, whose kernels are of one operation."""
    model = Model.read(folder)
    used, name = np.unique(pairs.name[rows], return_inverse=True)
    used_problems, problem = np.unique(pairs.problem[rows], return_inverse=True)
    named = pairs.kernels
    pool, in_pool = _pool(model, folder, [named[i] for i in used])
    problems = pairs.dims.iloc[used_problems][list(DIMS)].reset_index(drop=True)
    problems = problems.assign(variant=operation.variant, dtype=operation.dtype, ndim=np.where(_is_3d(problems), 3, 2))
    multiples, padding = np.unique([named[i].channel_multiple for i in used], return_inverse=True)
    # The same problems once for each padding of their channels, one below the other.
    problem = problem + padding[name] * len(problems)
    problems = pd.concat([_padded(problems, int(multiple)) for multiple in multiples], ignore_index=True)
    verdicts = check_support(problems, pool, operation.variant, model.hardware)
    return {
        "score": replace(model, pool=pool).score_pairs(problems, problem, name, threads),
        "rule": verdicts[problem, name],
        "in_pool": in_pool[name],
        "model": model.spec.operation,
    }


def _padded(problems: pd.DataFrame, multiple: int) -> pd.DataFrame:
    """Problems with the channels of each group padded to a multiple."""
    groups = problems["G"]
    return problems.assign(**{name: -(-problems[name] // (groups * multiple)) * groups * multiple for name in "CK"})


def _pool(model: Model, folder: Path, named: list[Named]) -> tuple[pd.DataFrame, np.ndarray]:
    """Kernels as a pool: resources of the published pool where it has them, else estimates."""
    table = candidates.with_fields(
        pd.DataFrame({"kernel": [n.kernel.name for n in named], "split_k": [n.split_k for n in named]})
    )
    known = with_other_names(model.pool).set_index("candidate")
    in_pool = table["candidate"].isin(known.index).to_numpy()
    family = of_arch(model.spec.arch)
    if family.name in REGISTERS:
        coefficients = documents.read_document(folder / model_files.ESTIMATES, Coefficients)
        estimate = RESOURCES[family.name](table, model.hardware, coefficients)
    else:
        estimate = _of_most_alike(table, model)
    own = known.reindex(table["candidate"])
    # Of a kernel outside the pool nobody knows the code: the model's trees take that as they have learnt it.
    known_code = set(features.CODE_COLUMNS).intersection(features.feature_set(model.spec.feature_set).names)
    unknown = np.full(len(table), np.nan)
    resources = {name: estimate[name].to_numpy(float) for name in candidates.RESOURCES}
    for column, outside in {**resources, **dict.fromkeys(sorted(known_code), unknown)}.items():
        table[column] = np.where(in_pool, own[column].to_numpy(float), outside)
    return table, in_pool


def with_other_names(pool: pd.DataFrame) -> pd.DataFrame:
    """The pool and, under each of its other names, a kernel once more."""
    others = pool.assign(kernel=pool["aliases"].str.split(candidates.ALIASES)).explode("kernel")
    others = others[others["kernel"] != ""]
    labels = [candidates.label(name, split) for name, split in zip(others["kernel"], others["split_k"], strict=True)]
    return pd.concat([pool, others.assign(candidate=labels)], ignore_index=True)


def _of_most_alike(table: pd.DataFrame, model: Model) -> pd.DataFrame:
    """The resources of the candidate of the pool that shares the most fields with each kernel.

    Where a family has no formulas for registers, the pool is all that is known.
    """
    pool = model.pool
    same = np.zeros((len(table), len(pool)), np.int64)
    for field in (*field_types(of_arch(model.spec.arch).kernel), "split_k"):
        same += table[field].to_numpy()[:, None] == pool[field].to_numpy()[None, :]
    return pool.iloc[same.argmax(axis=1)].reset_index(drop=True)


def _is_3d(dims: pd.DataFrame) -> np.ndarray:
    flat = {"Di": 1, "Z": 1, **problem_csv.FLAT}
    return pd.concat([dims[name] != value for name, value in flat.items()], axis=1).any(axis=1).to_numpy()


def _kernels_3d(found: Mapping[str, Named]) -> np.ndarray:
    return np.array([named.kernel.ndim == 3 for named in found.values()], bool)


def _table(pairs: ScoredPairs, values: pd.DataFrame, index: model_files.Index) -> pa.Table:
    def words(texts: Iterable[str], rows: np.ndarray) -> pa.DictionaryArray:
        distinct, code = np.unique(np.array(list(texts), object).astype(str), return_inverse=True)
        return pa.DictionaryArray.from_arrays(pa.array(code[rows].astype(np.int32)), pa.array(distinct.tolist()))

    named = pairs.kernels
    every = np.zeros(len(pairs.name), np.int64)
    dims = pairs.dims.iloc[pairs.problem]
    rules = ["", *(rule.name for rule in SUPPORT[of_arch(index.arch).name].rules)]
    columns = {
        "problem_idx": dims["problem_idx"].to_numpy(),
        "kernel": words((one.text for one in named), pairs.name),
        "variant": words((one.kernel.variant for one in named), pairs.name),
        "dtype": words((one.kernel.dtype for one in named), pairs.name),
        "ndim": np.array([one.kernel.ndim for one in named], np.int32)[pairs.name],
        **{name: dims[name].to_numpy(np.int32) for name in DIMS},
        "candidate": words((candidates.label(one.kernel.name, one.split_k) for one in named), pairs.name),
        "assumed": words((one.assumed for one in named), pairs.name),
        "in_pool": values["in_pool"].to_numpy(bool),
        "supported": (values["rule"] == 0).to_numpy(),
        "rule": words(rules, values["rule"].to_numpy()),
        "score": values["score"].to_numpy(),
        "rank": values["rank"].fillna(0).to_numpy(np.int32),
        "model_operation": words(values["model"], np.arange(len(every))),
        "arch": words([index.arch], every),
        "device_kind": words([index.device_kind], every),
    }
    return pa.table(columns, schema=SCHEMA)
