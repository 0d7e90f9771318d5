"""Scores of any kernels on any problems by a published model, to judge it on measurements of others."""

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
WITHOUT_DEPTH = "3D without depth"


@dataclass(frozen=True)
class ScoredPairs:
    """n pairs of kernels and problems to score."""

    kernels: list[Named]
    dims: pd.DataFrame
    """Distinct problems, columns ``DIMS``, ``problem_idx``, ``deep`` (3D) and, if the file has one, ``layout`` (of
    ``problem.LAYOUTS``, empty, or what no model knows)."""
    name: np.ndarray
    problem: np.ndarray
    """Rows of the above, int64 [n]."""


def read_pairs(problems: Path, kernels: Path | None, arch: str) -> tuple[ScoredPairs, list[str]]:
    """Return the pairs of a CSV of problems, and remarks: each with all kernels of a list, else with its row's own.

    A kernel and a problem that are paired have one dimensionality and, where the problems say ``direction`` and
    ``dtype``, one operation. No model knows depthwise kernels, which are left out.
    """
    rows, remarks = _problems(problems)
    scored = library_of_arch(arch).kernel
    identity = [name for name in (*DIMS, "layout", "operation") if name in rows]
    rows["problem"] = rows.groupby(identity, sort=False).ngroup()
    distinct = rows.drop_duplicates("problem", ignore_index=True)
    listed = _csv_kernels(problems, rows) if kernels is None else read_kernel_names(kernels)
    named: list[Named] = []
    found, left_out = [np.zeros((0, 3), np.int64)], set[str]()
    groups: Any = (rows if kernels is None else distinct).groupby(["operation", "deep"])
    for (operation, deep), own in groups:
        texts = listed.loc[own.index + FIRST_LINE] if kernels is None else listed
        asked = Operation.parse(operation) if operation else None
        read = read_kernels(kernels or problems, texts, arch, asked, 2 + deep)
        left_out |= {text for text, one in read.items() if not isinstance(one.kernel, scored)}
        fits = [
            one
            for text, one in read.items()
            if text not in left_out and (one.kernel.ndim == 3) == deep and operation in ("", _operation(one))
        ]
        number = {one.text: at for at, one in enumerate(fits, len(named))}
        named += fits
        if kernels is None:
            known = texts.isin(list(number))
            if (wrong := ~known & ~texts.isin(list(left_out))).any():
                at = int(wrong.argmax())
                raise UserError(
                    f"{problems}, line {texts.index[at]}: kernel {texts.iloc[at]!r} is for another operation or "
                    "dimensionality than the problem (3D: Di or Z above 1)"
                )
            own, column = own[known.to_numpy()], texts[known].map(number)
            found.append(np.stack([own.index, own["problem"], column], axis=1))
        else:
            row, column = own["problem"].to_numpy(), np.arange(len(number)) + len(named) - len(number)
            row, column = np.repeat(row, len(column)), np.tile(column, len(row))
            found.append(np.stack([row, row, column], axis=1))
    pairs = np.concatenate(found)
    _, problem, name = pairs[np.lexsort((pairs[:, 2], pairs[:, 0]))].T
    if left_out:
        remarks.append(f"{len(left_out)} depthwise kernels are left out: no model supports them")
    return ScoredPairs(named, distinct.drop(columns="kernel", errors="ignore"), name, problem), remarks


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
    """Return the kernel of each distinct name; see ``names.read_kernel_name``.

    ``UserError`` names file and line of the first name that is unknown.
    """
    kernels: dict[str, Named] = {}
    for line, name in listed.drop_duplicates().items():
        try:
            kernels[name] = names.read_kernel_name(name, arch, operation, ndim)
        except UserError as error:
            raise UserError(f"{path}, line {line}: {error}") from error
    return kernels


def _problems(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of a CSV, and remarks: checked dimensions, ``problem_idx``, ``deep``, ``operation`` or an empty
    text, and kernel and layout if said. The index is the number of the row in the file.
    """
    table = read_csv(path)
    rows, remarks = problem_csv.dims_of_rows(path, table)
    problem_csv.check_problems(path, rows, "forward", "bf16")
    rows["deep"] = (rows["Di"] != 1) | (rows["Z"] != 1)
    numbered = "problem_idx" in table and table["problem_idx"].str.fullmatch(r"\d{1,18}").all()
    rows["problem_idx"] = table["problem_idx"].astype(np.int64) if numbered else np.arange(len(table))
    if "kernel" in table:
        rows["kernel"] = table["kernel"]
    # In a table of layers, the layout is that of the network's framework.
    if not {"network", "layer"} <= set(table) and not {"layout", "ndim"}.isdisjoint(table):
        rows["layout"] = _layouts(table, rows["deep"])
    if not {"direction", "dtype"} <= set(table):
        return rows.assign(operation=""), remarks
    rows["operation"] = table["direction"].str.strip() + "_" + table["dtype"].str.strip()
    known = rows["operation"].isin([f"{variant}_{dtype}" for variant in VARIANTS for dtype in DTYPES])
    if not known.all():
        first = rows["operation"][~known].iloc[0]
        remarks.append(f"{path}: {sum(~known)} rows of operations without a model are left out: {first}")
    return rows[known], remarks


def _layouts(table: pd.DataFrame, deep: pd.Series) -> pd.Series:
    """Return the layout of each row, of ``problem.LAYOUTS`` if it is one in any spelling, such as NDHWC or nhwgc."""
    words = table["layout"] if "layout" in table else pd.Series("", table.index)
    texts = words.str.strip().str.upper()
    distinct = {text: set(text.replace("G", "").replace("D", "").split("-")) for text in texts.unique()}
    one = {text: next(iter(parts)) if len(parts) == 1 else text for text, parts in distinct.items()}
    flat = (texts.str.contains("D") | (table.get("ndim", "2") == "3")) & ~deep
    return texts.map(one).mask(flat, WITHOUT_DEPTH)


def score_pairs(models: Path, pairs: ScoredPairs) -> tuple[pa.Table, list[str]]:
    """Return one row a pair, in their order, columns ``SCORE_COLUMNS``, and remarks on what a reader has to know."""
    return model_files.of_one_version(models, lambda: _score_pairs(models, pairs))


def _score_pairs(models: Path, pairs: ScoredPairs) -> tuple[pa.Table, list[str]]:
    index, named = model_files.read_index(models), pairs.kernels
    library = library_of_arch(index.arch)
    kernels = pd.DataFrame(
        {
            "kernel": [one.text for one in named],
            "variant": [one.kernel.variant for one in named],
            "dtype": [one.kernel.dtype for one in named],
            "ndim": [one.kernel.ndim for one in named],
            "candidate": [candidates.label(one.kernel.name, one.split_k) for one in named],
            "assumed": [one.assumed for one in named],
        }
    ).astype(dict.fromkeys(("kernel", "variant", "dtype", "candidate", "assumed"), "category"))
    operations = np.array([_operation(one) for one in named], object)[pairs.name]
    multiples = np.array([one.channel_multiple for one in named], np.int64)[pairs.name]
    values = pd.DataFrame({"name": pairs.name, "problem": pairs.problem, "operation": operations})
    values = values.assign(score=np.nan, rule="", in_pool=False, model_operation="")
    remarks: dict[str, None] = {}
    groups: Any = values.groupby(["operation", multiples], sort=False)
    for (own, multiple), rows in groups:
        operation = _modelled(models, Operation.parse(own), list(index.operations))
        if operation != own:
            remarks[f"there is no model of {own}; its kernels are scored by that of {operation}"] = None
        folder = models / index.operations[operation].folder
        scored = _scored(folder, pairs, Operation.parse(own), int(multiple), rows)
        values.loc[rows.index, list(scored)] = pd.DataFrame(scored, rows.index)
    refused = values["problem"][values["rule"] == UNKNOWN_LAYOUT]
    if len(refused):
        strange = ", ".join(sorted(set(pairs.dims["layout"].iloc[refused])))
        remarks[f"problems of a layout that the model does not know have no score: {strange}"] = None
    if library.estimate is None:
        # Nothing tells anything of a kernel that was not measured.
        values = values[values["in_pool"]].reset_index(drop=True)
        every = {one.text for one in named}
        if strangers := len(every - {named[at].text for at in values["name"].unique()}):
            remarks[f"{strangers} of {len(every)} kernels are left out: the model has not seen them"] = None
    if assumed := sum(bool(one.assumed) for one in named):
        remarks[f"{assumed} of {len(named)} kernel names leave fields open; column assumed has them"] = None
    if outside := values["name"][~values["in_pool"]].nunique():
        remarks[
            f"{outside} of {len(named)} kernels are not in the model's pool: their registers, LDS and occupancy are "
            "estimates"
        ] = None
    values["supported"] = values["rule"] == ""
    ranks = values[values["supported"]].groupby(["problem", "operation"])["score"].rank("first", ascending=False)
    values = values.assign(rank=ranks.reindex(values.index, fill_value=0))
    values = values.assign(arch=index.arch, device_kind=index.device_kind)
    parts = kernels.iloc[values["name"]], pairs.dims.iloc[values["problem"]], values.drop(columns="operation")
    table = pd.concat([part.reset_index(drop=True) for part in parts], axis=1)
    schema = SCORE_COLUMNS.append(pa.field("layout", TEXT_TYPE)) if "layout" in table else SCORE_COLUMNS
    columns = table[schema.names].astype(dict.fromkeys(("rule", "model_operation", "arch", "device_kind"), "category"))
    return pa.Table.from_pandas(columns, schema, preserve_index=False).replace_schema_metadata(None), list(remarks)


def _modelled(models: Path, own: Operation, available: list[str]) -> str:
    """Return the operation whose model scores another: its own, else of its direction, equal sizes first."""
    near = [one.dtype for one in map(Operation.parse, available) if one.variant == own.variant]
    if not near:
        raise UserError(f"{models}: there is no model of {own.variant}; it has {', '.join(available)}")
    size = ELEMENT_BYTES[own.dtype]
    return f"{own.variant}_{min(near, key=lambda one: (one != own.dtype, ELEMENT_BYTES[one] != size, one))}"


def _scored(
    folder: Path, pairs: ScoredPairs, operation: Operation, multiple: int, rows: pd.DataFrame
) -> dict[str, np.ndarray | str]:
    """Return ``score``, ``rule``, ``in_pool`` and ``model_operation`` of some pairs, whose kernels are of one operation
    and pad the channels of a group to one multiple.
    """
    model = Model.read(folder)
    used, name = np.unique(rows["name"], return_inverse=True)
    used_problems, problem = np.unique(rows["problem"], return_inverse=True)
    pool, in_pool = _pool(model, folder, [pairs.kernels[at] for at in used])
    problems = pairs.dims.iloc[used_problems].reset_index(drop=True)
    layout = problems["layout"] if "layout" in problems else pd.Series("", problems.index)
    layout = layout.where(layout != "", model.layouts[0].replace("D", ""))
    unknown = ~layout.where(~problems["deep"], layout.replace(DEEP_LAYOUTS)).isin(model.layouts).to_numpy()[problem]
    padded = {n: -(-problems[n] // (problems["G"] * multiple)) * problems["G"] * multiple for n in "CK"}
    ndim = 2 + problems["deep"].astype(np.int64)
    problems = problems.assign(variant=operation.variant, dtype=operation.dtype, ndim=ndim, layout=layout, **padded)
    verdicts = check_support(problems, pool, operation.variant, model.hardware)[problem, name]
    score = replace(model, pool=pool).score_pairs(problems, problem, name)
    rules = np.array(library_of_arch(model.spec.arch).rules.names, object)
    return {
        "score": np.where(unknown, np.nan, score),
        "rule": np.where(unknown, UNKNOWN_LAYOUT, rules[verdicts]),
        "in_pool": in_pool[name],
        "model_operation": model.spec.operation,
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
        # Of the candidate of the pool that shares the most fields: without formulas it is all that is known.
        fields = (*field_types(library.kernel), "split_k")
        same = sum((table[name].to_numpy()[:, None] == model.pool[name].to_numpy()).astype(int) for name in fields)
        estimate = model.pool.iloc[np.argmax(same, axis=1)].reset_index(drop=True)
    own = published.reindex(table["candidate"])
    # Of a kernel outside the pool nobody knows the code: the model takes that as it has learnt it.
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


def _operation(named: Named) -> str:
    return f"{named.kernel.variant}_{named.kernel.dtype}"
