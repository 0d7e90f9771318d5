"""A trained model: trees, feature spec, pool of candidates and hardware, and what it says of problems."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.core import documents, parquet
from tileseer.core.atomic import write_bytes, write_text
from tileseer.core.errors import UserError, shown
from tileseer.data.dataset import Dataset
from tileseer.facts.hardware import Hardware, target
from tileseer.facts.operations import DTYPES
from tileseer.learn import model_files, trees
from tileseer.learn.features import Features, feature_set
from tileseer.learn.formula import Formula
from tileseer.learn.learner import class_of
from tileseer.learn.model_schema import FeatureSpec, Origin, same_origin
from tileseer.libraries.features.table import Columns
from tileseer.libraries.gemm_kernel import field_types
from tileseer.libraries.reference_features import hardware_arguments
from tileseer.libraries.registry import library_of_arch
from tileseer.problems.problem import DEEP_LAYOUTS, DIMS, LAYOUTS, Problem, problem_frame

if TYPE_CHECKING:
    import lightgbm

    from tileseer.facts.model import TrainingParameters

PAIRS_AT_A_TIME = 1 << 15
"""Pairs predicted at a time: what a large pool costs in memory. The matrix of the reference's set is then below the
32 MiB from which the allocator gives every block back to the system and gets fresh pages for the next."""


@dataclass(frozen=True, eq=False)
class Model:
    """A model of one operation on one device."""

    spec: FeatureSpec
    text: str
    """The trees as LightGBM writes them, without the thread count."""
    pool: pd.DataFrame
    """The Q candidates to choose from: name, kernel, split-K, fields of the kernel, resources."""
    hardware: Hardware
    threads: int = 1
    """Of ``score``."""

    @classmethod
    def read(cls, folder: Path, own: bool = False) -> Self:
        """Read a training folder or the folder of a published operation; ``own`` as for ``read_checked``.

        ``UserError`` for a file that is missing, damaged or does not fit the others, or for features that this
        release does not have. The files of a published folder are checked by the index above it.
        """
        models = folder.resolve().parent
        return model_files.of_one_version(models, lambda: cls.read_checked(folder, models, own))

    @classmethod
    def read_checked(cls, folder: Path, models: Path | None = None, own: bool = False) -> Self:
        """Read what ``read`` reads, once; ``models``: the folder whose index has hashes to check, if it has one.

        ``own``: this run has trained it, so a learner from outside may run its code.
        """
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
        if learner := spec.params.get("learner"):
            if not own:
                raise UserError(
                    f"{folder / model_files.SPEC}: params.learner is {shown(learner)}, whose file could run any code: "
                    "only the run that trains it reads it"
                )
            return OutsideModel.unpickled(folder / model_files.OUTSIDE_MODEL, spec, pool, hardware)  # type: ignore[return-value]
        model = cls(spec, read_trees(folder / model_files.MODEL, spec), pool, hardware)
        try:
            for feature in model.features.set.candidate:
                feature.values(model._candidate_columns)
        except KeyError as error:
            raise UserError(
                f"{folder / model_files.CANDIDATES}: column {error} is missing; train or publish the model again"
            ) from error
        return model

    @classmethod
    def read_for(cls, folder: Path, dataset: Dataset, path: Path) -> Self:
        """Read a training folder that belongs to ``dataset``, which was read from ``path``."""
        model = cls.read(folder, own=True)
        fix = "give the dataset that the model belongs to"
        same_origin(folder / model_files.SPEC, model.spec, dataset, path, fix, Origin.model_fields)
        return model

    def save(self, folder: Path) -> None:
        """Write the files that ``read`` reads, each whole or not at all."""
        self.save_learnt(folder)
        documents.write_document(folder / model_files.SPEC, self.spec)
        documents.write_document(folder / model_files.HARDWARE, self.hardware)
        write_table(folder / model_files.CANDIDATES, self.pool)

    def save_learnt(self, folder: Path) -> None:
        """Write the trees."""
        write_text(folder / model_files.MODEL, self.text)

    @property
    def splits(self) -> dict[str, int]:
        """How many splits of the trees read each feature."""
        return dict(zip(self.spec.feature_names, self.booster.feature_importance("split").tolist(), strict=True))

    @cached_property
    def booster(self) -> lightgbm.Booster:
        """The trees; ``UserError`` where LightGBM is not installed or does not read them."""
        return trees.load_trees(self.text)

    @property
    def tree_count(self) -> int:
        """How many trees there are."""
        return self.text.count("\nTree=")

    @cached_property
    def features(self) -> Features:
        """What the trees read."""
        return Features.of(self.spec.feature_set, self.hardware, self.spec.feature_names)

    @cached_property
    def _candidate_columns(self) -> Columns:
        """What the features read of the pool."""
        return self.features.candidate_columns(self.pool)

    @cached_property
    def formula(self) -> Formula | None:
        """What scores of the pool start from, of a problem of this operation; None where they start from 0."""
        if self.spec.formula is None:
            return None
        any_problem = problem_frame([Problem.from_dims(self.spec.variant, self.spec.dtype)])
        return Formula(any_problem, self.pool, self.hardware, self.spec.formula)

    @property
    def layouts(self) -> list[str]:
        """Of the problems that the model is for, the default first."""
        own = library_of_arch(self.spec.arch).layout
        return self.spec.layouts or [own, DEEP_LAYOUTS[own]]

    @property
    def columns(self) -> tuple[str, ...]:
        """What a selector gets of a problem: the dimensions, and the layout if the model was trained with it."""
        return DIMS if self.spec.layouts is None else (*DIMS, "layout")

    def with_margins(self, margins: list[float] | None) -> Self:
        """Return the same model with the margins of the choice of the library that offers its candidates."""
        return replace(self, spec=self.spec.model_copy(update={"own_margins": margins}))

    def with_pool(self, kept: np.ndarray) -> Self:
        """Return the same trees for some candidates of the pool (bool or int [Q])."""
        return replace(self, pool=self.pool.iloc[kept].reset_index(drop=True))

    def knows(self, candidates: pd.DataFrame) -> np.ndarray:
        """Return which candidates are in the pool, in any data type, bool [Q]."""
        names = {_typeless(name) for name in self.pool["candidate"]}
        return np.array([_typeless(name) in names for name in candidates["candidate"]], bool)

    def supported(self, problems: pd.DataFrame) -> np.ndarray:
        """Return which candidates can run which of P problems, bool [P, Q]."""
        rules, (kernels, classes) = library_of_arch(self.spec.arch).rules, self._kernel_classes
        verdicts = rules.verdicts(rules.problem_columns(problems, self.spec.variant), kernels)
        return np.take(verdicts, classes, axis=1) == 0

    @cached_property
    def _kernel_classes(self) -> tuple[Columns, np.ndarray]:
        """The kernels that support rules tell apart, and the class of each candidate [Q]."""
        return library_of_arch(self.spec.arch).rules.kernel_classes(self.pool, self.hardware)

    def predict(
        self,
        problems: pd.DataFrame,
        candidates: pd.DataFrame | None = None,
        threads: int = 1,
        offered: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the score of each candidate (default: of the pool) on P problems, float64 [P, Q]; higher is faster.

        -inf where a candidate cannot run the problem or is not in the pool. Scores compare within a problem: they are
        ln(efficiency), or the same up to a constant of the problem where the model starts from a formula. ``offered``
        (bool [P, pool]) is scored instead of what can run.
        """
        strange = set(problems["layout"]) - {"", *self.layouts} if "layout" in problems else set()
        if strange:
            raise UserError(
                f"the model of {self.spec.operation} on {self.spec.arch} knows {', '.join(self.layouts)} "
                f"only, but problems have the layout {strange.pop()}; give problems of these layouts"
            )
        scores = np.full((len(problems), len(self.pool)), -np.inf)
        if len(problems):
            row, candidate = np.nonzero(self.supported(problems) if offered is None else offered)
            scores[row, candidate] = self.score_pairs(problems, row, candidate, threads)
        if candidates is None:
            return scores
        column = pd.Index(self.pool["candidate"]).get_indexer(candidates["candidate"])
        return np.where(column >= 0, scores[:, column], -np.inf)

    def score(self, problems: pd.DataFrame, candidates: pd.DataFrame, offered: np.ndarray) -> np.ndarray:
        """Return the scores of pairs of any candidates by all trees, float64 [P, Q]; ``offered`` [P, Q] are scored."""
        problem, candidate = np.nonzero(offered)
        scores = np.full(offered.shape, -np.inf)
        model = self if candidates is self.pool else replace(self, pool=candidates)
        scores[problem, candidate] = model.score_pairs(problems, problem, candidate, self.threads)
        return scores

    def score_pairs(
        self, problems: pd.DataFrame, problem: np.ndarray, candidate: np.ndarray, threads: int = 1
    ) -> np.ndarray:
        """Return the scores of n pairs, float64 [n]; both int [n], rows of ``problems`` and pool."""
        if not len(problem):
            return np.empty(0)
        pairs, scores = self.pairs(problems), np.empty(len(problem))
        for first in range(0, len(problem), PAIRS_AT_A_TIME):
            part = slice(first, first + PAIRS_AT_A_TIME)
            matrix, start = pairs(problem[part], candidate[part])
            scores[part] = start + trees.predict(self.booster, matrix, threads)
        return scores

    def pairs(self, problems: pd.DataFrame) -> Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Return a function of n pairs of ``problems`` and pool: features [n, F], and what scores start from [n]."""
        columns = self.features.problem_columns(problems), self._candidate_columns
        formula = None if self.formula is None else self.formula.of_problems(problems)

        def of(problem: np.ndarray, candidate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            start = np.zeros(len(problem)) if formula is None else formula.score(problem, candidate)
            return self.features.gather(*columns, problem, candidate), start

        return of

    def sum_trees(self, matrix: np.ndarray, first: int, last: int, threads: int = 1) -> np.ndarray | float:
        """Return what the trees ``first`` to ``last`` - 1 add to the scores of n rows of features, float64 [n]."""
        if first == last:
            return 0.0
        count = last - first
        return np.asarray(self.booster.predict(matrix, start_iteration=first, num_iteration=count, num_threads=threads))


@dataclass(frozen=True, eq=False)
class OutsideModel(Model):
    """A model of a learner from outside of the checkout: it has no trees."""

    learnt: Any = None
    """Has the method ``score`` (``learner.Scores``)."""

    @classmethod
    def unpickled(cls, path: Path, spec: FeatureSpec, pool: pd.DataFrame, hardware: Hardware) -> Self:
        """Read what was learnt; ``UserError`` where the file is missing or its class cannot be imported."""
        class_of(str(spec.params["learner"]))
        try:
            learnt = pickle.loads(path.read_bytes())
        except (OSError, ImportError, AttributeError, pickle.UnpicklingError) as error:
            raise UserError(f"{path}: cannot be read ({error}); train the model again") from error
        return cls(spec, "", pool, hardware, learnt=learnt)

    def save_learnt(self, folder: Path) -> None:
        """Pickle what was learnt; ``UserError`` where that cannot be done."""
        try:
            content = pickle.dumps(self.learnt, protocol=5)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            name = self.spec.params["learner"]
            raise UserError(f"model.learner: {name}: what `fit` returns cannot be pickled ({error})") from error
        write_bytes(folder / model_files.OUTSIDE_MODEL, content)

    @property
    def splits(self) -> dict[str, int]:
        """No splits: there are no trees."""
        return {}

    @property
    def tree_count(self) -> int:
        """No trees."""
        return 0

    def score_pairs(
        self, problems: pd.DataFrame, problem: np.ndarray, candidate: np.ndarray, threads: int = 1
    ) -> np.ndarray:
        """Return the scores of n pairs of ``problems`` and pool, float64 [n]."""
        offered = np.zeros((len(problems), len(self.pool)), bool)
        offered[problem, candidate] = True
        return np.asarray(self.learnt.score(problems, self.pool, offered), float)[problem, candidate]


def spec_of(dataset: Dataset, features: Features, settings: TrainingParameters) -> FeatureSpec:
    """Return the spec of a model of a dataset."""
    variant, _, dtype = dataset.operation.rpartition("_")
    return FeatureSpec(
        op_type="grouped_conv",
        feature_encoding_version=0,
        variant=variant,
        dtype=dtype,
        **dict(Origin.of(dataset)),
        feature_set=settings.features,
        feature_names=list(features.names),
        categorical_features=features.categorical,
        hardware=hardware_arguments(features.gpu),
        targets=["tflops"],
        log_targets=["tflops"],
        target="relative",
        target_meaning="ln(TFLOPS / best TFLOPS of the same problem); exp(prediction) is an efficiency, not TFLOPS",
        source=dataset.source,
        taken=dataset.taken,
        library=dataset.library,
        layouts=_layouts(dataset),
        params=settings.model_dump(mode="json"),
    )


def _layouts(dataset: Dataset) -> list[str] | None:
    """Return the layouts of a dataset that has a column of them."""
    if "layout" not in dataset.problems:
        return None
    rows = dataset.problems[["ndim", "layout"]].replace("", library_of_arch(dataset.arch).layout)
    names = [[layout, DEEP_LAYOUTS[layout]] for layout in LAYOUTS]
    return [
        name
        for both in names
        for ndim, name in enumerate(both, start=2)
        if ((rows["ndim"] == ndim) & (rows["layout"] == both[0])).any()
    ]


def _typeless(candidate: str) -> str:
    """Return a candidate's name without its data type: the same kernel for fp16 and bf16."""
    for dtype in DTYPES:
        candidate = candidate.replace(f"_{dtype}_", "_", 1)
    return candidate


def read_trees(path: Path, spec: FeatureSpec) -> str:
    """Read the text of a model file; ``UserError`` if it is damaged or its features are not those of ``spec``."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file; is this the right directory?") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is no LightGBM model ({error}); train it again") from error
    names = trees.feature_names(text)
    if not names:
        raise UserError(f"{path}: is no LightGBM model; train it again")
    if names != spec.feature_names:
        raise UserError(f"{path}: its features are not those of {model_files.SPEC} beside it; publish the model again")
    if fault := trees.fault_of(text, len(names)):
        raise UserError(f"{path}: {fault}; this is no model of ours, publish it again")
    unknown = sorted(set(spec.feature_names) - set(feature_set(spec.feature_set).names))
    if unknown:
        raise UserError(
            f"{path}: this release's feature set {spec.feature_set!r} has no {unknown[0]!r}; train the model again"
        )
    return text


def read_pool(path: Path, arch: str) -> pd.DataFrame:
    """Read the candidates that a model chooses from, with the fields that the names of the arch's kernels say."""
    library = library_of_arch(arch)
    pool = read_table(path, ("candidate", "kernel", "split_k", "aliases"))
    if pool.empty:
        raise UserError(f"{path}: there is no candidate; publish the models again")
    wrong = [part for part in pool["split_k"].tolist() if not isinstance(part, int) or part < 1]
    if wrong:
        raise UserError(f"{path}: split_k is {shown(wrong[0])}, not a whole number from 1; publish the models again")
    names = pool["kernel"].astype(str).tolist()
    foreign = next((name for name in names if not name.startswith(library.prefix)), None)
    if foreign is not None:
        raise UserError(f"{path}: {shown(foreign)} is no kernel of {arch}; publish the models again")
    fields = library.kernel.frame([library.kernel.parse(name) for name in names])
    return pool.assign(**{name: fields[name].to_numpy() for name in field_types(library.kernel)})


def read_table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read a Parquet file of a model; ``UserError`` where one of ``columns`` is missing or has an empty cell."""
    table = parquet.read_table(path)
    missing = [name for name in columns if name not in table.schema.names]
    if missing:
        raise UserError(f"{path}: column {missing[0]} is missing; publish the models again")
    nested = [field.name for field in table.schema if pa.types.is_nested(field.type)]
    if nested:
        raise UserError(f"{path}: column {nested[0]} holds lists; publish the models again")
    parquet.refuse_empty(table, columns, path)
    return table.to_pandas()


OUT_OF_FOLD_SCHEMA = parquet.schema(
    [
        ("problem_key", pa.string()),
        ("efficiency", pa.float64()),
        ("layer_family", pa.string()),
        ("ndim", pa.int64()),
    ]
)
"""One row a training problem: how good the pick of a model was that had not seen it ."""


def read_out_of_fold(folder: Path) -> pd.DataFrame:
    """Read the picks of cross-validation of a training folder or a published model."""
    return parquet.read_table(folder / model_files.OUT_OF_FOLD, OUT_OF_FOLD_SCHEMA).to_pandas()


def write_table(path: Path, frame: pd.DataFrame) -> None:
    """Write a table of a model without its index and the pandas metadata, which name library versions."""
    parquet.write_table(pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None), path)
