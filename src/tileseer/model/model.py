"""A trained model: trees, feature spec, pool of candidates and hardware, and what it says of problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.conv import problem
from tileseer.conv.problem import Problem
from tileseer.core import documents, parquet, seal
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.dataset.measurements import Measurements
from tileseer.families.registry import of_arch
from tileseer.families.support_rules import check
from tileseer.gpu.hardware import Hardware, target
from tileseer.model import features, index, model_files, trees
from tileseer.model.formula import Formula
from tileseer.model.schema import FeatureSpec, Origin, same_origin

if TYPE_CHECKING:
    import lightgbm

BLOCK = 1 << 15
"""Pairs predicted at a time: what a large pool costs in memory. The matrix of the reference's set is then below the
32 MiB from which the allocator gives every block back to the system and gets fresh pages for the next."""

UNIT_PLACE = 11
"""Place in the ranking of a problem that makes the unit of its scores' differences."""


@dataclass(frozen=True)
class Model:
    """A model of one operation on one device."""

    spec: FeatureSpec
    booster: lightgbm.Booster
    """The trees."""
    pool: pd.DataFrame
    """The Q candidates to choose from: name, kernel, split-K, fields of the kernel, resources."""
    hardware: Hardware

    @property
    def text(self) -> str:
        """The trees as LightGBM writes them, without the thread count."""
        return trees.canonical(self.booster.model_to_string())

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a training folder or the folder of a published operation.

        ``UserError`` for a file that is missing, damaged or does not fit the others, or for features that this
        release does not have. Files have seals beside them, those of a published folder are in the index above it.
        """
        models = folder.resolve().parent
        if (models / model_files.INDEX).is_file():
            index.verify(models)
        spec = documents.read(folder / model_files.SPEC, FeatureSpec)
        hardware = documents.read(folder / model_files.HARDWARE, Hardware)
        if hardware.arch != target(spec.arch):
            raise UserError(
                f"{folder / model_files.HARDWARE}: arch is {hardware.arch}, but {model_files.SPEC} says {spec.arch}; "
                "train or publish the model again"
            )
        pool = read_pool(folder / model_files.CANDIDATES, spec.arch)
        try:
            features.of_candidates(pool, hardware, spec.feature_set)
        except KeyError as error:
            raise UserError(
                f"{folder / model_files.CANDIDATES}: column {error} is missing; train or publish the model again"
            ) from error
        return cls(spec, read_trees(folder / model_files.MODEL, spec.feature_set, spec.feature_names), pool, hardware)

    @classmethod
    def read_for(cls, folder: Path, measurements: Measurements, dataset: Path) -> Self:
        """Read a training folder that belongs to ``measurements``, which were read from ``dataset``."""
        model = cls.read(folder)
        fix = "give the dataset that the model belongs to"
        same_origin(folder / model_files.SPEC, model.spec, measurements, dataset, fix, Origin.model_fields)
        return model

    def save(self, folder: Path) -> None:
        """Write the files that ``read`` reads, each whole or not at all."""
        write_text(folder / model_files.MODEL, self.text, sealed=True)
        documents.write(folder / model_files.SPEC, self.spec)
        documents.write(folder / model_files.HARDWARE, self.hardware)
        write_table(folder / model_files.CANDIDATES, self.pool)

    def with_trees_of(self, folder: Path) -> Self:
        """The same pool, ranked by the trees of another folder: that of the baseline has no pool."""
        spec = documents.read(folder / model_files.SPEC, FeatureSpec)
        return replace(
            self, spec=spec, booster=read_trees(folder / model_files.MODEL, spec.feature_set, spec.feature_names)
        )

    def supported(self, problems: pd.DataFrame) -> np.ndarray:
        """Which candidates can run which of P problems, bool [P, Q]."""
        return check(problems, self.pool, self.spec.variant, self.hardware.wave_size) == 0

    def predict(
        self, problems: pd.DataFrame, problem: np.ndarray, candidate: np.ndarray, threads: int = 1
    ) -> np.ndarray:
        """Scores of n pairs, float64 [n]; higher is faster, comparable within a problem.

        ``problem`` and ``candidate`` (int [n]) are rows of ``problems`` and of the pool. A score is ln(efficiency), or
        the same up to a constant of the problem where it starts from a formula.
        """
        if not len(problem):
            return np.empty(0)
        spec = self.spec
        columns = features.columns(problems, self.pool, self.hardware, spec.feature_set)
        start = None if spec.formula is None else Formula(problems, self.pool, self.hardware, spec.formula)
        scores = np.empty(len(problem))
        for first in range(0, len(problem), BLOCK):
            part = slice(first, first + BLOCK)
            pairs = problem[part], candidate[part]
            matrix = features.matrix(*columns, *pairs, self.hardware, spec.feature_set, spec.feature_names)
            scores[part] = trees.predict(self.booster, matrix, threads)
            if start is not None:
                scores[part] += start.score(*pairs)
        return scores

    def scores(self, problems: pd.DataFrame, threads: int = 1) -> np.ndarray:
        """Score of every candidate on P problems, float64 [P, Q]; -inf where a candidate cannot run the problem."""
        scores = np.full((len(problems), len(self.pool)), -np.inf)
        if len(problems):
            row, candidate = np.nonzero(self.supported(problems))
            scores[row, candidate] = self.predict(problems, row, candidate, threads)
        return scores

    def rank(self, wanted: Problem, top: int | None = None) -> pd.DataFrame:
        """Supported candidates of a problem, best first, at most ``top``; empty if there is none.

        Columns: ``rank`` (from 1), ``candidate``, ``kernel``, ``split_k``, ``score`` and ``predicted_efficiency``
        (percent of the problem's best).
        """
        asked = f"{wanted.variant}_{wanted.dtype}"
        if asked != self.spec.operation:
            raise UserError(f"the problem is {asked}, but the model is for {self.spec.operation}")
        score = self.scores(problem.frame([wanted]))[0]
        order = np.argsort(-score, kind="stable")
        order = order[np.isfinite(score[order])][:top]
        ranked = self.pool.iloc[order][["candidate", "kernel", "split_k"]].reset_index(drop=True)
        ranked.insert(0, "rank", np.arange(1, len(ranked) + 1))
        ranked["score"] = score[order]
        # On top of a formula the level is unknown: the pick stands for the best. Without, it may score above the best.
        best = 0.0 if self.spec.formula is None else score.max()
        ranked["predicted_efficiency"] = np.minimum(100 * np.exp(score[order] - best), 100.0)
        return ranked


def read_trees(path: Path, feature_set: str, names: Sequence[str]) -> lightgbm.Booster:
    """Trees of a file; ``UserError`` if it is damaged or its features are not ``names`` of a feature set."""
    seal.check(path)
    try:
        booster = trees.load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file; is this the right directory?") from error
    except ValueError as error:
        raise UserError(f"{path}: is no LightGBM model ({error}); train it again") from error
    if booster.feature_name() != list(names):
        raise UserError(f"{path}: its features are not those of {model_files.SPEC} beside it; publish the model again")
    unknown = sorted(set(names) - set(features.feature_set(feature_set).names))
    if unknown:
        raise UserError(
            f"{path}: this release's feature set {feature_set!r} has no {unknown[0]!r}; train the model again"
        )
    return booster


def read_pool(path: Path, arch: str) -> pd.DataFrame:
    """The candidates that a model chooses from: kernels of the arch's family, as their names say."""
    family = of_arch(arch)
    kernels = family.part("kernel")
    pool = read_table(path, ("candidate", "kernel", "split_k", "aliases", *kernels.FIELDS))
    names = pool["kernel"].astype(str).tolist()
    foreign = next((name for name in names if not name.startswith(family.prefix)), None)
    if foreign is not None:
        raise UserError(f"{path}: {foreign} is no kernel of {arch}; publish the models again")
    named = kernels.frame([kernels.parse(name) for name in names])
    for field in kernels.FIELDS:
        wrong = pool[field].to_numpy() != named[field].to_numpy()
        if wrong.any():
            row = int(wrong.argmax())
            raise UserError(
                f"{path}: {field} of {names[row]} is {pool[field].iloc[row]!r}, its name says "
                f"{named[field].iloc[row]!r}; publish the models again"
            )
    return pool


def read_table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """A Parquet file of a model; ``UserError`` where one of ``columns`` is missing or has an empty cell."""
    table = parquet.read(path)
    missing = [name for name in columns if name not in table.schema.names]
    if missing:
        raise UserError(f"{path}: column {missing[0]} is missing; publish the models again")
    nested = [field.name for field in table.schema if pa.types.is_nested(field.type)]
    if nested:
        raise UserError(f"{path}: column {nested[0]} holds lists; publish the models again")
    parquet.refuse_empty(table, columns, path)
    return table.to_pandas()


OUT_OF_FOLD = parquet.schema(
    [
        ("problem_key", pa.string()),
        ("efficiency", pa.float64()),
        ("gap", pa.float64()),
        ("layer_family", pa.string()),
        ("ndim", pa.int64()),
    ]
)
"""One row a training problem: how good the pick of a model was that had not seen it (``cross_validation.picked``)."""


def read_out_of_fold(folder: Path) -> pd.DataFrame:
    """The picks of cross-validation of a training folder or a published model."""
    return parquet.read(folder / model_files.OUT_OF_FOLD, OUT_OF_FOLD).to_pandas()


def write_table(path: Path, frame: pd.DataFrame) -> None:
    """Write a table of a model without its index and the pandas metadata, which name library versions."""
    parquet.write(pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None), path)


def units(problem: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Distance of the candidate in place ``UNIT_PLACE`` below the first, float64, by problem.

    ``problem`` and ``score`` have one entry a pair. Of fewer candidates it is the last; 1 where all are equal. A model
    of more trees spreads its scores wider: in these units those of two models compare.
    """
    order = np.lexsort((-score, problem))
    first = np.flatnonzero(np.diff(problem[order], prepend=-1))
    count = np.diff(first, append=len(order))
    unit = score[order[first]] - score[order[first + np.minimum(UNIT_PLACE, count) - 1]]
    return np.where(unit > 0, unit, 1.0)
