"""Scores of any kernels on any problems by a published model, to judge it on measurements of others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.core import documents
from tileseer.core.csv_files import FIRST_LINE, read_csv
from tileseer.core.errors import UserError
from tileseer.core.reading import LARGEST_TABLE, read_utf8
from tileseer.facts.operations import DTYPES, ELEMENT_BYTES, VARIANTS
from tileseer.learn import features, model_files
from tileseer.learn.model import Model
from tileseer.libraries import candidates, names
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.libraries.gemm_kernel import field_types
from tileseer.libraries.names import Named
from tileseer.libraries.registry import check_support, library_of_arch
from tileseer.problems import problem_csv
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DEEP_LAYOUTS, DIMS

TEXT_TYPE = pa.dictionary(pa.int32(), pa.string())
SCORE_COLUMNS = pa.schema(
    [
        ("problem_idx", pa.int64()),
        ("kernel", TEXT_TYPE),
        ("variant", TEXT_TYPE),
        ("dtype", TEXT_TYPE),
        ("ndim", pa.int32()),
        *((name, pa.int32()) for name in DIMS),
        ("candidate", TEXT_TYPE),
        ("assumed", TEXT_TYPE),
        ("in_pool", pa.bool_()),
        ("supported", pa.bool_()),
        ("rule", TEXT_TYPE),
        ("score", pa.float64()),
        ("rank", pa.int32()),
        ("model_operation", TEXT_TYPE),
        ("arch", TEXT_TYPE),
        ("device_kind", TEXT_TYPE),
    ]
)
"""``kernel`` as it was given, ``candidate`` as it was understood with what was ``assumed``; ``rule`` refuses the pair
if it is not ``supported``; ``rank`` 1 is the highest score of the problem among its supported pairs, 0 without rank;
``device_kind`` says where the times came from that the model learnt. A column ``layout`` follows if the problems have
one."""

UNKNOWN_LAYOUT = "unknown_layout"
"""The rule that refuses what a model was not trained for: other layouts, and 3D tensors without depth."""
UNKNOWN_LAYOUT_NUMBER = 255
"""Its number; those of a library's rules are small."""
WITHOUT_DEPTH = "3D without depth"


@dataclass(frozen=True)
class ScoredPairs:
    """n pairs of kernels and problems to score."""

    kernels: list[Named]
    """Distinct ones."""
    dims: pd.DataFrame
    """Distinct problems, columns ``DIMS``, ``problem_idx`` and, if the file has one, ``layout`` (of
    ``problem.LAYOUTS``, empty, or what no model knows); every row, where rows say their operation."""
    name: np.ndarray
    problem: np.ndarray
    """Rows of the above, int64 [n]."""

    @property
    def named(self) -> set[str]:
        """Names as they were given; one may stand for a kernel of each operation."""
        return {one.text for one in self.kernels}


def read_pairs(problems: Path, kernels: Path | None, arch: str) -> tuple[ScoredPairs, list[str]]:
    """Return the pairs of a CSV of problems, and remarks: each with all kernels of a list, else with its row's own.

    A kernel and a problem that are paired have one dimensionality and, where the problems say ``direction`` and
    ``dtype``, one operation. No model knows depthwise kernels, which are left out.
    """
    rows, remarks = _problems(problems)
    if kernels is None:
        listed = _csv_kernels(problems, rows)
        named = read_kernels(problems, listed, arch)
        rows = rows[listed.isin(list(named)).to_numpy()]
        pairs = _row_by_row(problems, rows, list(named.values()))
    else:
        listed = read_kernel_names(kernels)
        if "operation" in rows:
            return _of_operations(rows, kernels, listed, arch), remarks
        named = read_kernels(kernels, listed, arch)
        pairs = _paired(list(named.values()), rows.drop_duplicates(subset=_identity(rows), ignore_index=True))
    if depthwise := len(set(listed) - set(named)):
        remarks.append(f"{depthwise} depthwise kernels are left out: no model supports them")
    return pairs, remarks


def read_kernel_names(path: Path) -> pd.Series:
    """Return the names of a list of kernels by line: one a line, # for remarks, or a CSV with a column ``kernel``."""
    lines = read_utf8(path, LARGEST_TABLE, "utf-8-sig").splitlines()
    if lines and ("," in lines[0] or lines[0].strip() == "kernel"):
        return _csv_kernels(path, read_csv(path))
    words = pd.Series([line.partition("#")[0].strip() for line in lines], range(1, len(lines) + 1), dtype=object)
    if not words.any():
        raise UserError(f"{path}: it contains no kernel name; write one per line")
    return words[words != ""]


def _csv_kernels(path: Path, table: pd.DataFrame) -> pd.Series:
    if "kernel" not in table:
        raise UserError(f"{path}: column kernel is missing; give the kernels with --kernels, or a column kernel")
    return table["kernel"].str.strip().set_axis(table.index + FIRST_LINE)


def read_kernels(
    path: Path, listed: pd.Series, arch: str, operation: Operation | None = None, ndim: int = 2
) -> dict[str, Named]:
    """Return the kernel of each distinct name, without depthwise kernels; see ``names.read_kernel_name``.

    ``UserError`` names file and line of the first name that is unknown.
    """
    kernels: dict[str, Named] = {}
    for line, name in listed.drop_duplicates().items():
        try:
            kernels[name] = names.read_kernel_name(name, arch, operation, ndim)
        except UserError as error:
            raise UserError(f"{path}, line {line}: {error}") from error
    scored = library_of_arch(arch).kernel
    return {name: one for name, one in kernels.items() if isinstance(one.kernel, scored)}


def _paired(kernels: list[Named], rows: pd.DataFrame) -> ScoredPairs:
    """Return each row with the kernels of its dimensionality and, where rows have one, ``operation``."""
    fits = _kernels_3d(kernels)[None, :] == _is_3d(rows)[:, None]
    if "operation" in rows:
        operation = np.array([_operation(one) for one in kernels], object)
        fits &= operation[None, :] == rows["operation"].to_numpy()[:, None]
    problem, name = np.nonzero(fits)
    return ScoredPairs(kernels, rows, name, problem)


def _of_operations(rows: pd.DataFrame, path: Path, listed: pd.Series, arch: str) -> ScoredPairs:
    """Return every row with the kernels of its ``operation`` and dimensionality; a name may leave both out."""
    kernels: list[Named] = []
    kinds = set(zip(rows["operation"], np.where(_is_3d(rows), 3, 2).tolist(), strict=True))
    for operation, ndim in sorted(kinds):
        every = read_kernels(path, listed, arch, Operation.parse(operation), ndim).values()
        kernels += [one for one in every if _operation(one) == operation and one.kernel.ndim == ndim]
    return _paired(kernels, rows)


def _row_by_row(path: Path, rows: pd.DataFrame, kernels: list[Named]) -> ScoredPairs:
    """Return each row with the kernel that it names."""
    problem = rows.groupby(_identity(rows), sort=False).ngroup().to_numpy()
    name = pd.Index([one.text for one in kernels]).get_indexer(pd.Index(rows["kernel"].str.strip()))
    wrong = _kernels_3d(kernels)[name] != _is_3d(rows)
    if wrong.any():
        row = int(wrong.argmax())
        raise UserError(
            f"{path}, line {rows.index[row] + FIRST_LINE}: kernel {kernels[name[row]].text!r} has another "
            "dimensionality than the problem (3D: Di or Z above 1)"
        )
    return ScoredPairs(kernels, rows.drop_duplicates(subset=_identity(rows), ignore_index=True), name, problem)


def _problems(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of a CSV, and remarks: checked dimensions, ``problem_idx``, and kernel and operation if said.

    The index is the number of the row in the file.
    """
    table = read_csv(path)
    rows, remarks = problem_csv.dims_of_rows(path, table)
    problem_csv.check_problems(path, rows, "forward", "bf16")
    numbered = "problem_idx" in table and table["problem_idx"].str.fullmatch(r"\d{1,18}").all()
    rows["problem_idx"] = table["problem_idx"].astype(np.int64) if numbered else np.arange(len(table))
    if "kernel" in table:
        rows["kernel"] = table["kernel"]
    # In a table of layers, the layout is that of the network's framework.
    if not {"network", "layer"} <= set(table) and not {"layout", "ndim"}.isdisjoint(table):
        rows["layout"] = _layouts(table, _is_3d(rows))
    if not {"direction", "dtype"} <= set(table):
        return rows, remarks
    rows["operation"] = table["direction"].str.strip() + "_" + table["dtype"].str.strip()
    registered = [f"{variant}_{dtype}" for variant in VARIANTS for dtype in DTYPES]
    unknown = rows["operation"][~rows["operation"].isin(registered)]
    if len(unknown):
        remarks.append(f"{path}: {len(unknown)} rows of operations without a model are left out: {unknown.iloc[0]}")
    return rows.drop(index=unknown.index), remarks


def _layouts(table: pd.DataFrame, deep: np.ndarray) -> pd.Series:
    """Return the layout of each row, of ``problem.LAYOUTS`` if it is one in any spelling, such as NDHWC or nhwgc."""
    words = table["layout"] if "layout" in table else pd.Series("", table.index)
    texts = words.str.strip().str.upper()
    distinct = {text: set(text.replace("G", "").replace("D", "").split("-")) for text in texts.unique()}
    one = {text: next(iter(parts)) if len(parts) == 1 else text for text, parts in distinct.items()}
    flat = (texts.str.contains("D") | (table.get("ndim", "2") == "3")) & ~deep
    return texts.map(one).mask(flat, WITHOUT_DEPTH)


def _identity(rows: pd.DataFrame) -> list[str]:
    """Return the columns in which problems differ."""
    return [*DIMS, *(["layout"] if "layout" in rows else [])]


def score_pairs(models: Path, pairs: ScoredPairs, threads: int = 1) -> tuple[pa.Table, list[str]]:
    """Return one row a pair, in their order, columns ``SCORE_COLUMNS``, and remarks on what a reader has to know."""
    return model_files.of_one_version(models, lambda: _score_pairs(models, pairs, threads))


def _score_pairs(models: Path, pairs: ScoredPairs, threads: int) -> tuple[pa.Table, list[str]]:
    index = model_files.read_index(models)
    operation = np.array([_operation(one) for one in pairs.kernels], object)[pairs.name]
    values = pd.DataFrame({"name": pairs.name, "problem": pairs.problem, "operation": operation})
    values = values.assign(score=np.nan, rule=0, in_pool=False, model="")
    remarks = []
    for own, rows in values.groupby("operation", sort=False):
        model = _model_for(models, str(own), list(index.operations))
        if model != own:
            remarks.append(f"there is no model of {own}; its kernels are scored by that of {model}")
        folder = models / index.operations[model].folder
        scored = _scored(folder, pairs, Operation.parse(str(own)), rows, threads)
        values.loc[rows.index, list(scored)] = pd.DataFrame(scored, rows.index)
    refused = values["problem"][values["rule"] == UNKNOWN_LAYOUT_NUMBER]
    if len(refused):
        strange = sorted(set(pairs.dims["layout"].iloc[refused]))
        remarks.append(f"problems of a layout that the model does not know have no score: {', '.join(strange)}")
    named = pairs.kernels
    if library_of_arch(index.arch).estimate is None:
        # Nothing tells anything of a kernel that was not measured.
        values = values[values["in_pool"]].reset_index(drop=True)
        if strangers := len(pairs.named - {named[i].text for i in set(values["name"])}):
            remarks.append(f"{strangers} of {len(pairs.named)} kernels are left out: the model has not seen them")
    groups = values[values["rule"] == 0].groupby(["problem", "operation"])
    values["rank"] = groups["score"].rank(method="first", ascending=False)
    if assumed := sum(bool(one.assumed) for one in named):
        remarks.append(f"{assumed} of {len(named)} kernel names leave fields open; column assumed has them")
    if outside := values["name"][~values["in_pool"]].nunique():
        remarks.append(
            f"{outside} of {len(named)} kernels are not in the model's pool: their registers, LDS and occupancy "
            "are estimates"
        )
    return _table(pairs, values, index), remarks


def _model_for(models: Path, operation: str, available: list[str]) -> str:
    """Return the operation whose model scores ``operation``: its own, else of its direction, equal sizes first."""
    variant, dtype = (own := Operation.parse(operation)).variant, own.dtype
    near = [one.dtype for one in map(Operation.parse, available) if one.variant == variant]
    if not near:
        raise UserError(f"{models}: there is no model of {variant}; it has {', '.join(available)}")
    size = ELEMENT_BYTES[dtype]
    best = min(near, key=lambda other: (other != dtype, ELEMENT_BYTES[other] != size, other))
    return str(Operation(variant, best))


def _scored(
    folder: Path, pairs: ScoredPairs, operation: Operation, rows: pd.DataFrame, threads: int
) -> dict[str, np.ndarray | str]:
    """Return ``score``, ``rule``, ``in_pool`` and ``model`` of some pairs, whose kernels are of one operation."""
    model = Model.read(folder)
    used, name = np.unique(rows["name"], return_inverse=True)
    used_problems, problem = np.unique(rows["problem"], return_inverse=True)
    named = [pairs.kernels[i] for i in used]
    pool, in_pool = _pool(model, folder, named)
    problems = pairs.dims.iloc[used_problems][list(DIMS)].reset_index(drop=True)
    problems = problems.assign(variant=operation.variant, dtype=operation.dtype, ndim=np.where(_is_3d(problems), 3, 2))
    layout = pairs.dims["layout"].to_numpy(object)[used_problems] if "layout" in pairs.dims else ""
    problems["layout"] = np.where(layout == "", model.layouts[0].replace("D", ""), layout)
    names = problems["layout"].where(problems["ndim"] == 2, problems["layout"].replace(DEEP_LAYOUTS))
    unknown = ~names.isin(model.layouts).to_numpy()[problem]
    multiples, padding = np.unique([one.channel_multiple for one in named], return_inverse=True)
    # The same problems once for each padding of the channels of a group, one below the other.
    problem = problem + padding[name] * len(problems)
    steps = [problems["G"] * multiple for multiple in multiples]
    padded = [problems.assign(**{n: -(-problems[n] // step) * step for n in "CK"}) for step in steps]
    problems = pd.concat(padded, ignore_index=True)
    verdicts = check_support(problems, pool, operation.variant, model.hardware)
    score = replace(model, pool=pool).score_pairs(problems, problem, name, threads)
    return {
        "score": np.where(unknown, np.nan, score),
        "rule": np.where(unknown, UNKNOWN_LAYOUT_NUMBER, verdicts[problem, name]),
        "in_pool": in_pool[name],
        "model": model.spec.operation,
    }


def _pool(model: Model, folder: Path, named: list[Named]) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the kernels as a pool: resources of the published pool where it has them, else estimates."""
    table = candidates.with_fields(
        pd.DataFrame({"kernel": [n.kernel.name for n in named], "split_k": [n.split_k for n in named]})
    )
    published = with_other_names(model.pool).set_index("candidate")
    in_pool = table["candidate"].isin(published.index).to_numpy()
    library = library_of_arch(model.spec.arch)
    if library.estimate is not None and library.estimates_registers:
        coefficients = documents.read_document(folder / model_files.ESTIMATES, Coefficients)
        estimate = library.estimate(table, model.hardware, coefficients)
    else:
        estimate = _of_most_alike(table, model)
    own = published.reindex(table["candidate"])
    # Of a kernel outside the pool nobody knows the code: the model's trees take that as they have learnt it.
    code = set(features.CODE_COLUMNS).intersection(features.feature_set(model.spec.feature_set).names)
    unknown = np.full(len(table), np.nan)
    resources = {name: estimate[name].to_numpy(float) for name in candidates.RESOURCES}
    for column, outside in {**resources, **dict.fromkeys(sorted(code), unknown)}.items():
        table[column] = np.where(in_pool, own[column].to_numpy(float), outside)
    return table, in_pool


def with_other_names(pool: pd.DataFrame) -> pd.DataFrame:
    """Return the pool and, under each of its other names, a kernel once more."""
    others = pool.assign(kernel=pool["aliases"].str.split(candidates.ALIASES)).explode("kernel")
    others = others[others["kernel"] != ""]
    labels = [candidates.label(name, split) for name, split in zip(others["kernel"], others["split_k"], strict=True)]
    return pd.concat([pool, others.assign(candidate=labels)], ignore_index=True)


def _of_most_alike(table: pd.DataFrame, model: Model) -> pd.DataFrame:
    """Return the resources of the candidate of the pool that shares the most fields with each kernel.

    Where a library has no formulas for registers, the pool is all that is known.
    """
    pool = model.pool
    same = np.zeros((len(table), len(pool)), np.int64)
    for field in (*field_types(library_of_arch(model.spec.arch).kernel), "split_k"):
        same += table[field].to_numpy()[:, None] == pool[field].to_numpy()[None, :]
    return pool.iloc[same.argmax(axis=1)].reset_index(drop=True)


def _operation(named: Named) -> str:
    return f"{named.kernel.variant}_{named.kernel.dtype}"


def _is_3d(dims: pd.DataFrame) -> np.ndarray:
    flat = pd.Series({"Di": 1, "Z": 1, **problem_csv.DIMS_WITHOUT_DEPTH})
    return (dims[list(flat.index)] != flat).any(axis=1).to_numpy()


def _kernels_3d(kernels: Sequence[Named]) -> np.ndarray:
    return np.array([named.kernel.ndim == 3 for named in kernels], bool)


def _table(pairs: ScoredPairs, values: pd.DataFrame, index: model_files.Index) -> pa.Table:
    kernels = pd.DataFrame(
        {
            "kernel": [one.text for one in pairs.kernels],
            "variant": [one.kernel.variant for one in pairs.kernels],
            "dtype": [one.kernel.dtype for one in pairs.kernels],
            "candidate": [candidates.label(one.kernel.name, one.split_k) for one in pairs.kernels],
            "assumed": [one.assumed for one in pairs.kernels],
        },
        dtype="category",
    ).assign(ndim=[one.kernel.ndim for one in pairs.kernels])
    rules = dict(enumerate(library_of_arch(index.arch).rules.names))
    rule = values["rule"].map(rules | {UNKNOWN_LAYOUT_NUMBER: UNKNOWN_LAYOUT})
    texts: dict[str, Any] = {"rule": rule, "arch": index.arch, "device_kind": index.device_kind}
    scored = values.assign(
        supported=values["rule"] == 0, rank=values["rank"].fillna(0), model_operation=values["model"], **texts
    ).astype(dict.fromkeys([*texts, "model_operation"], "category"))
    of_problems = ["problem_idx", *_identity(pairs.dims)]
    parts = kernels.iloc[values["name"]], pairs.dims.iloc[values["problem"]][of_problems], scored
    table = pd.concat([part.reset_index(drop=True) for part in parts], axis=1)
    schema = SCORE_COLUMNS.append(pa.field("layout", TEXT_TYPE)) if "layout" in of_problems else SCORE_COLUMNS
    return pa.Table.from_pandas(table, schema, preserve_index=False).replace_schema_metadata(None)
