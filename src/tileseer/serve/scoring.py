"""Scores of any kernels on any problems by a published model, to judge it on measurements of others."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.core import documents
from tileseer.core.csv_files import FIRST_LINE, read_csv
from tileseer.core.errors import UserError, shown
from tileseer.core.reading import LARGEST_TABLE, read_utf8
from tileseer.learn import features, model_files
from tileseer.learn.model import Model
from tileseer.libraries import candidates, names
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.libraries.gemm_kernel import field_types
from tileseer.libraries.names import Named
from tileseer.libraries.problem_lists import read_problems
from tileseer.libraries.registry import check_support, library_of_arch
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS, Problem
from tileseer.serve.selector import Selector


def score_kernels(models: Path, problems: Path, kernels: Path) -> tuple[pd.DataFrame, list[str]]:
    """Return the pairs of two files in the columns of ``_scores``, and remarks on what a reader has to know.

    A kernel is paired with the problems of its operation and dimensionality. ``UserError`` if there is no such pair.
    """
    index, listed = model_files.read_index(models), read_kernel_names(kernels)
    library, left_out, parts = library_of_arch(index.arch), set(listed), []
    for operation, own in read_problems(problems, list(index.operations)).items():
        for ndim in (2, 3):
            asked, chosen = Operation.parse(operation), [problem for problem in own if problem.ndim == ndim]
            # No model knows depthwise kernels.
            named = [
                one
                for one in (read_kernels(kernels, listed, index.arch, asked, ndim) if chosen else ())
                if isinstance(one.kernel, library.kernel)
                and (one.kernel.variant, one.kernel.dtype, one.kernel.ndim) == (asked.variant, asked.dtype, ndim)
            ]
            if named:
                scored = model_files.of_one_version(models, partial(_scores, models, operation, chosen, named))
                # Without formulas, nothing tells anything of a kernel that was not measured.
                scored = scored if library.estimate else scored[scored["in_pool"]]
                left_out -= set(scored["kernel"])
                parts.append(scored)
    if left_out == set(listed):
        raise UserError(
            f"{kernels}: no kernel is of an operation, a dimensionality and a model that {problems} has; the models "
            f"are of {', '.join(index.operations)}, the first kernel is {shown(listed.iloc[0])}"
        )
    table = pd.concat(parts, ignore_index=True).assign(arch=index.arch, device_kind=index.device_kind)
    kinds = table.drop_duplicates("kernel")
    remarks = {
        "kernels are left out: they are for no problem of the table, or the model does not know them": len(left_out),
        "kernel names leave fields open; column assumed has them": (kinds["assumed"] != "").sum(),
        "kernels are not in the model's pool: their resources are estimates": (~kinds["in_pool"]).sum(),
    }
    notes = [f"{count} of {listed.nunique()} {said}" for said, count in remarks.items() if count]
    if strange := [*sorted(left_out), *kinds.loc[~kinds["in_pool"], "kernel"]]:
        notes.append(f"the first of them is {strange[0]}")
    return table, notes


def read_kernel_names(path: Path) -> pd.Series:
    """Return the names of a list of kernels by line: one a line, # for remarks, or a CSV with a column ``kernel``."""
    lines = read_utf8(path, LARGEST_TABLE, "utf-8-sig").splitlines()
    if lines and lines[0].startswith(("{", "[")):
        raise UserError(f"{path}: is JSON; write the names of kernels, one per line")
    if lines and ("," in lines[0] or lines[0].strip() == "kernel"):
        table = read_csv(path)
        if "kernel" not in table:
            swapped = "it is a table of problems; are --problems and --kernels swapped?"
            way = swapped if {"N", "C"} <= set(table) else "write one, or one name per line without commas"
            raise UserError(f"{path}: column kernel is missing: {way}")
        return table["kernel"].str.strip().set_axis(table.index + FIRST_LINE)
    words = pd.Series([line.partition("#")[0].strip() for line in lines], range(1, len(lines) + 1), dtype=object)
    if not words.any():
        raise UserError(f"{path}: it contains no kernel name; write one per line")
    return words[words != ""]


def read_kernels(path: Path, listed: pd.Series, arch: str, operation: Operation, ndim: int) -> list[Named]:
    """Return the kernel of each distinct name of ``path``; ``UserError`` with the line of the first that is unknown."""
    kernels = []
    for line, name in listed.drop_duplicates().items():
        try:
            kernels.append(names.read_kernel_name(name, arch, operation, ndim))
        except UserError as error:
            if len(name.split()) > 3:
                raise UserError(
                    f"{path}, line {line}: {shown(name)} is no name; write kernel names, one per line, such as "
                    "tileseer codegen --list-names prints"
                ) from error
            raise UserError(f"{path}, line {line}: {error}") from error
    return kernels


def _scores(models: Path, operation: str, problems: Sequence[Problem], named: Sequence[Named]) -> pd.DataFrame:
    """Return a row for each of P problems with each of Q kernels: ``kernel`` as it was given, the problem.

    ``candidate`` is the kernel as it was understood with what was ``assumed``. ``rule`` refuses the pair if it is not
    ``supported``. ``rank`` 1 is the highest score of the problem among its supported pairs, 0 is without rank.
    """
    selector = Selector.read(models, operation)
    model = selector.model
    pool, in_pool = _pool(model, selector.folder, named)
    rows = selector.frame(np.concatenate([selector.dims_of(problem) for problem in problems]))
    problem, kernel = np.divmod(np.arange(len(rows) * len(pool)), len(pool))
    score = replace(model, pool=pool).score_pairs(rows, problem, kernel)
    verdicts = check_support(rows, pool, model.spec.variant, model.hardware)
    masked = pd.DataFrame(np.where(verdicts == 0, score.reshape(verdicts.shape), np.nan))
    ranks = masked.rank(axis=1, method="first", ascending=False).fillna(0).astype(int).to_numpy()
    given = rows[["variant", "dtype", "ndim", *DIMS]].assign(layout=[problem.layout for problem in problems])
    about = given.iloc[problem].reset_index(drop=True)
    about.insert(0, "kernel", np.array([one.text for one in named], object)[kernel])
    return about.assign(
        candidate=pool["candidate"].to_numpy()[kernel],
        assumed=np.array([one.assumed for one in named], object)[kernel],
        in_pool=in_pool[kernel],
        supported=verdicts.ravel() == 0,
        rule=np.array(library_of_arch(model.spec.arch).rules.names, object)[verdicts.ravel()],
        score=score,
        rank=ranks.ravel(),
    )


def _pool(model: Model, folder: Path, named: Sequence[Named]) -> tuple[pd.DataFrame, np.ndarray]:
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
