"""A trained model: what its learner learnt, feature spec, pool of candidates and hardware."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.core import documents, parquet
from tileseer.core.errors import UserError, shown
from tileseer.core.reading import ReadFromFolder, path_of
from tileseer.core.seal import file_digest
from tileseer.data.dataset import Dataset
from tileseer.facts.hardware import Hardware, target
from tileseer.facts.operations import DTYPES
from tileseer.learn import model_files, own_choice
from tileseer.learn.features import Features
from tileseer.learn.learner import Scorer, learner_class, read_scorer, result_of, save_scorer, scores_of
from tileseer.learn.model_schema import FeatureSpec, Manifest, Origin, same_origin
from tileseer.libraries.features.table import Columns
from tileseer.libraries.gemm_kernel import field_types
from tileseer.libraries.registry import library_of_arch
from tileseer.problems.problem import DEEP_LAYOUTS, DIMS

POOL = ("candidate", "kernel", "split_k", "aliases")
"""Columns of a pool that are never empty."""
SCORES_AT_A_TIME = 1 << 20
"""Of pairs that are scored by whole rows of problems: what a large table costs in memory."""
PROBLEMS_TO_CALIBRATE_ON = 250
"""Training problems on which a scorer is calibrated: margins of cuts are within a tenth of those of 1200."""


@dataclass(frozen=True, eq=False)
class Model(ReadFromFolder):
    """A model of one operation on one device."""

    spec: FeatureSpec
    scorer: Scorer
    pool: pd.DataFrame
    """The Q candidates to choose from: name, kernel, split-K, fields of the kernel, resources."""
    hardware: Hardware

    @classmethod
    def read(cls, folder: Path | str, threads: int = 1) -> Self:
        """Read a training folder or the folder of a published operation, to score with ``threads``.

        ``UserError`` for a file that is missing, damaged or does not fit the others, for features that this release
        does not have, or for a learner that is not installed. The files of a published folder are checked by the index
        above it.
        """
        folder = path_of("folder", folder)
        models = folder.resolve().parent
        if not (models / model_files.INDEX).is_file():
            _refuse_other_files(folder)
        model = model_files.of_one_version(models, lambda: cls.read_checked(folder, models))
        model.scorer.threads = threads
        return model

    @classmethod
    def read_checked(cls, folder: Path, models: Path | None = None) -> Self:
        """Read what ``read`` reads, once; ``models``: the folder whose index has hashes to check, if it has one."""
        if models is not None and (models / model_files.INDEX).is_file():
            model_files.read_index(models)
        spec = documents.read_document(folder / model_files.SPEC, FeatureSpec)
        hardware = documents.read_document(folder / model_files.HARDWARE, Hardware)
        if hardware.arch != target(spec.arch):
            raise UserError(
                f"{folder / model_files.HARDWARE}: arch is {hardware.arch}, but {model_files.SPEC} says {spec.arch}; "
                "train or publish the model again"
            )
        pool = read_pool(folder / model_files.CANDIDATES, spec.arch)
        model = cls(spec, read_scorer(str(spec.params.get("learner")), folder), pool, hardware)
        try:
            columns = model.features.candidate_columns(pool)
            for feature in model.features.set.candidate:
                feature.values(columns)
        except KeyError as error:
            raise UserError(
                f"{folder / model_files.CANDIDATES}: column {error} is missing; train or publish the model again"
            ) from error
        return model

    @classmethod
    def read_for(cls, folder: Path, dataset: Dataset, path: Path, threads: int = 1) -> Self:
        """Read a training folder that belongs to ``dataset``, which was read from ``path``."""
        model = cls.read(folder, threads)
        fix = "give the dataset that the model belongs to"
        same_origin(folder / model_files.SPEC, model.spec, dataset, path, fix, Origin.model_fields)
        return model

    def save(self, folder: Path) -> None:
        """Write the files that ``read`` reads, each whole or not at all."""
        save_scorer(self.scorer, self.spec.params.get("learner"), folder)
        documents.write_document(folder / model_files.SPEC, self.spec)
        documents.write_document(folder / model_files.HARDWARE, self.hardware)
        write_table(folder / model_files.CANDIDATES, self.pool)

    @cached_property
    def features(self) -> Features:
        """What the scorer reads of pairs."""
        return Features.of(self.spec.feature_set, self.hardware, self.spec.feature_names)

    @property
    def layouts(self) -> list[str]:
        """Of the problems that the model is for, the default first."""
        own = library_of_arch(self.spec.arch).layout
        return self.spec.layouts or [own, DEEP_LAYOUTS[own]]

    @property
    def columns(self) -> tuple[str, ...]:
        """What a selector gets of a problem: the dimensions, and the layout if the model was trained with it."""
        return DIMS if self.spec.layouts is None else (*DIMS, "layout")

    def with_pool(self, kept: np.ndarray) -> Self:
        """Return the same model of some candidates of the pool (bool or int [Q])."""
        return replace(self, pool=self.pool.iloc[kept].reset_index(drop=True))

    def calibrated_on(self, dataset: Dataset) -> Self:
        """Return the model with its scorer calibrated on training problems; ``UserError`` where nothing runs any."""
        trains = np.flatnonzero(dataset.trains)
        rows = trains[:: max(1, len(trains) // PROBLEMS_TO_CALIBRATE_ON)]
        lists = self.listed(dataset)
        offered = self.supported(dataset.problems.iloc[rows]) if lists is None else lists[rows]
        if not (has := offered.any(axis=1)).any():
            raise UserError(f"{dataset.operation}: no candidate can run a training problem; there is nothing to serve")
        given = dataset.problems.iloc[rows[has]], self.pool, offered[has]
        scorer = result_of(self.spec.params.get("learner"), self.scorer.calibrated, *given, kind=Scorer)
        return replace(self, scorer=scorer)

    def knows(self, candidates: pd.DataFrame) -> np.ndarray:
        """Return which candidates are in the pool, in any data type, bool [Q]."""
        names = {_typeless(name) for name in self.pool["candidate"]}
        return np.array([_typeless(name) in names for name in candidates["candidate"]], bool)

    def supported(self, problems: pd.DataFrame) -> np.ndarray:
        """Return which candidates of the pool can run which of P problems, bool [P, Q]."""
        rules, (kernels, classes) = library_of_arch(self.spec.arch).rules, self._kernel_classes
        verdicts = rules.verdicts(rules.problem_columns(problems, self.spec.variant), kernels)
        return np.take(verdicts, classes, axis=1) == 0

    @cached_property
    def _kernel_classes(self) -> tuple[Columns, np.ndarray]:
        """The kernels that support rules tell apart, and the class of each candidate [Q]."""
        return library_of_arch(self.spec.arch).rules.kernel_classes(self.pool, self.hardware)

    def positions(self, dataset: Dataset) -> np.ndarray:
        """Return the row in ``dataset.candidates`` of each candidate of the pool, int [Q]; each must have one."""
        position = pd.Index(dataset.candidates["candidate"]).get_indexer(self.pool["candidate"])
        if (position < 0).any():
            foreign = self.pool["candidate"][position < 0].iloc[0]
            raise UserError(
                f"{dataset.operation} of {dataset.arch}: has not {foreign} of the model's pool; give a dataset of "
                f"{self.spec.operation} of {self.spec.arch}, such as the model was trained on"
            )
        return position

    def listed(self, dataset: Dataset) -> np.ndarray | None:
        """Return what a library lists for P problems and can run them, bool [P, Q]; None where no library lists any."""
        if own_choice.library_choices(dataset) is None:
            return None
        return own_choice.offered(dataset)[:, self.positions(dataset)] & self.supported(dataset.problems)

    def predict(self, problems: pd.DataFrame, offered: np.ndarray | None = None) -> np.ndarray:
        """Return the score of each candidate of the pool on P problems, float64 [P, Q]; higher is faster.

        -inf where a candidate cannot run the problem. Scores compare within a problem: they are
        ln(efficiency), or the same up to a constant of the problem where the model starts from a formula. ``offered``
        (bool [P, Q]) is scored instead of what can run. ``UserError`` for scores of another shape or that are no
        numbers.
        """
        offered = self.supported(problems) if offered is None else offered
        strange = set(problems["layout"]) - {"", *self.layouts} if "layout" in problems else set()
        if strange:
            raise UserError(
                f"the model of {self.spec.operation} on {self.spec.arch} knows {', '.join(self.layouts)} "
                f"only, but problems have the layout {strange.pop()}; give problems of these layouts"
            )
        return scores_of(self.scorer, self.spec.params.get("learner"), problems, self.pool, offered)

    def score_pairs(self, problems: pd.DataFrame, problem: np.ndarray, candidate: np.ndarray) -> np.ndarray:
        """Return the scores of n pairs, float64 [n]; both int [n], rows of ``problems`` and pool."""
        scores, step = np.empty(len(problem)), max(1, SCORES_AT_A_TIME // max(1, len(self.pool)))
        for first in range(0, len(problems), step):
            own = np.flatnonzero((problem >= first) & (problem < first + step))
            block = problems.iloc[first : first + step]
            offered = np.zeros((len(block), len(self.pool)), bool)
            offered[problem[own] - first, candidate[own]] = True
            found = scores_of(self.scorer, self.spec.params.get("learner"), block, self.pool, offered)
            scores[own] = found[problem[own] - first, candidate[own]]
        return scores


def training_files(folder: Path) -> tuple[str, ...]:
    """Return the names of the files of a training folder: what is published of it."""
    spec = documents.read_document(folder / model_files.SPEC, FeatureSpec)
    return *model_files.TRAINING_FILES, *learner_class(str(spec.params.get("learner"))).scorer.FILES


def _refuse_other_files(folder: Path) -> None:
    """Raise a ``UserError`` unless each file of a training folder is that of its manifest."""
    listed = documents.read_document(folder / model_files.MANIFEST, Manifest).files
    for name in set(training_files(folder)) - {model_files.MANIFEST}:
        path = folder / name
        if path.is_file() and file_digest(path) != listed.get(name):
            raise UserError(f"{path}: its SHA-256 is not that in {model_files.MANIFEST}; run with --forcerun model")


def _typeless(candidate: str) -> str:
    """Return a candidate's name without its data type: the same kernel for fp16 and bf16."""
    for dtype in DTYPES:
        candidate = candidate.replace(f"_{dtype}_", "_", 1)
    return candidate


def read_pool(path: Path, arch: str) -> pd.DataFrame:
    """Read the candidates that a model chooses from, with the fields that the names of the arch's kernels say."""
    library, again = library_of_arch(arch), "publish the models again"
    table = parquet.read_table(path)
    missing = [name for name in POOL if name not in table.schema.names]
    if missing:
        raise UserError(f"{path}: column {missing[0]} is missing; {again}")
    nested = [field.name for field in table.schema if pa.types.is_nested(field.type)]
    if nested:
        raise UserError(f"{path}: column {nested[0]} holds lists; {again}")
    parquet.refuse_empty(table, POOL, path)
    pool = table.to_pandas()
    if pool.empty:
        raise UserError(f"{path}: there is no candidate; {again}")
    wrong = [part for part in pool["split_k"].tolist() if not isinstance(part, int) or part < 1]
    if wrong:
        raise UserError(f"{path}: split_k is {shown(wrong[0])}, not a whole number from 1; {again}")
    names = pool["kernel"].astype(str).tolist()
    foreign = next((name for name in names if not name.startswith(library.prefix)), None)
    if foreign is not None:
        raise UserError(f"{path}: {shown(foreign)} is no kernel of {arch}; {again}")
    fields = library.kernel.frame([library.kernel.parse(name) for name in names])
    return pool.assign(**{name: fields[name].to_numpy() for name in field_types(library.kernel)})


def write_table(path: Path, frame: pd.DataFrame) -> None:
    """Write a table of a model without its index and the pandas metadata, which name library versions."""
    parquet.write_table(pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None), path)
