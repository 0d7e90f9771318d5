"""What a learner is, what it leaves behind, and how a configuration names one.

A learner is an entry point of the group ``tileseer.learners``, ours (``tileseer.learn.learners.trees``) as well as a
stranger's. Nothing else of the package knows how one works. ``tileseer.testing.learner`` has tests for an author.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

import numpy as np

from tileseer.core.documents import Scalar
from tileseer.core.entry_points import entry_points, load_entry_point
from tileseer.core.errors import UserError, is_it, mistakes_of, shown
from tileseer.learn.formula import FormulaPrior
from tileseer.learn.model_schema import Contribution
from tileseer.libraries.costs.coefficients import Coefficients

if TYPE_CHECKING:
    import pandas as pd

    from tileseer.data.dataset import Dataset
    from tileseer.facts.model import ModelSettings
    from tileseer.learn.features import Features
    from tileseer.learn.model import Model
    from tileseer.problems.operation import Operation

GROUP = "tileseer.learners"
"""Of the entry points, which name a ``Learner`` each."""
LANES = 8
"""Candidates that stand side by side in the tables of the C++ header: whole groups of them are a pool."""


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a learner is made with."""

    features: Features
    settings: ModelSettings
    prior: Model | Coefficients | None = None
    """What training starts from: a model, or the formula with these coefficients."""
    threads: int = 1

    @property
    def small(self) -> Recipe:
        """The recipe of the models of cross-validation."""
        return replace(self, settings=self.settings.small)

    def offers(self, pairs: Dataset) -> np.ndarray:
        """Return which candidates a model of ``pairs`` offers, bool [Q]: those that ran or that the prior knows."""
        if self.prior is None or isinstance(self.prior, Coefficients):
            return pairs.proven
        return pairs.proven | self.prior.knows(pairs.candidates)


@dataclass(frozen=True)
class CppPart:
    """A learner's part of the C++ header: a template that extends ``selector.hpp.j2`` and fills its blocks."""

    template: Path
    values: Mapping[str, object]


class Scorer(ABC):
    """What a learner learnt. P problems and Q candidates are tables of a dataset; higher scores are faster."""

    FILES: ClassVar[tuple[str, ...]]
    """Names of the files that ``save`` writes; they are published."""
    threads: int = 1
    """That ``score`` may use."""
    formula: FormulaPrior | None = None
    """The formula that scores start from."""

    @abstractmethod
    def score(self, problems: pd.DataFrame, candidates: pd.DataFrame, offered: np.ndarray | None = None) -> np.ndarray:
        """Return scores, float64 [P, Q], finite for the pairs that are ``offered`` (bool [P, Q]; None: all), else -inf.

        They compare within a problem.
        """

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write ``FILES`` into a folder, each whole or not at all."""

    @classmethod
    @abstractmethod
    def read(cls, folder: Path) -> Self:
        """Read what ``save`` wrote; ``UserError`` where a file is missing or damaged.

        The folder has the spec and the hardware too: ``model_schema.read_features`` reads the features.
        """

    def log_efficiency(self, scores: np.ndarray) -> np.ndarray:
        """Return the logarithms of the predicted efficiencies; of a formula up to a constant of the problem."""
        return scores

    def calibrated(self, problems: pd.DataFrame, candidates: pd.DataFrame, offered: np.ndarray) -> Self:
        """Return what is served: it may use what it scores on training problems, where ``offered`` [P, Q] can run."""
        return self

    def leading(self, problems: pd.DataFrame, candidates: pd.DataFrame, offered: np.ndarray) -> np.ndarray:
        """Return ``score`` [P, Q] of the candidates that stay in the running to the end; -inf of others."""
        return self.score(problems, candidates, offered)

    def explain(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, pick: np.ndarray, other: np.ndarray
    ) -> list[list[Contribution]]:
        """Return what spoke most for the pick against another candidate, for each of P problems; nothing if unknown.

        ``pick`` and ``other`` (int [P]) are rows of ``candidates``.
        """
        return [[] for _ in range(len(problems))]

    def cpp(self, operation: Operation, candidates: pd.DataFrame, problem: Mapping[str, Any]) -> CppPart | str:
        """Return the part of the C++ header that scores, or a sentence that says why there is no header.

        ``candidates`` are in the places of the header, ``problem`` has symbols (``libraries.symbols``) of what features
        read. ``UserError`` where this model needs what C++ cannot compute.
        """
        return "the learner of this model writes no C++: pick with Python"

    @property
    def meaning(self) -> str:
        """What scores are, in words."""
        return "ln(TFLOPS / best TFLOPS of the same problem); exp(prediction) is an efficiency, not TFLOPS"

    @property
    def facts(self) -> dict[str, Scalar]:
        """What a report says of how it was made."""
        return {}


class Learner(ABC):
    """What makes models of a dataset."""

    scorer: ClassVar[type[Scorer]]
    """Of what it leaves behind."""

    def __init__(self, recipe: Recipe) -> None:
        """Take features, settings, prior and threads."""
        self.recipe = recipe

    @abstractmethod
    def prepare(self, dataset: Dataset) -> Any:
        """Return what every fit on rows of ``dataset`` shares; its n pairs ran on training problems."""

    @abstractmethod
    def fit(self, prepared: Any, rows: np.ndarray) -> Scorer:
        """Return what can be learnt from some rows of the prepared dataset, bool [n]."""


def learner_class(name: str) -> type[Learner]:
    """Return the learner with a name; a ``UserError`` lists those that are installed."""
    found = entry_points(GROUP)
    if name not in found:
        raise UserError(
            f"there is no learner {name!r}; installed are {', '.join(found)}"
            + (is_it(name, found) or f". Install the package that names it in its entry points {GROUP}")
        )
    learner = load_entry_point(found[name])
    if not (isinstance(learner, type) and issubclass(learner, Learner)):
        raise UserError(f"learner {name}: {shown(learner)} is no subclass of {__name__}.Learner")
    scorer = getattr(learner, "scorer", None)
    if not (isinstance(scorer, type) and issubclass(scorer, Scorer)):
        raise UserError(
            f"learner {name}: its attribute `scorer` is {shown(scorer)}; give a subclass of {__name__}.Scorer"
        )
    files = getattr(scorer, "FILES", None)
    if not isinstance(files, tuple | list) or not all(isinstance(file, str) for file in files):
        raise UserError(
            f"learner {name}: FILES of its scorer {scorer.__name__} is {shown(files)}; give the names of the files "
            "that save writes: FILES = ('mine.json',)"
        )
    return learner


def learner_of(recipe: Recipe) -> Learner:
    """Return the learner that the settings of ``recipe`` name, made with it."""
    kind = learner_class(recipe.settings.learner)
    with _mistakes(recipe.settings.learner, kind):
        return kind(recipe)


def result_of(name: object, method: Callable[..., Any], *given: object, kind: type | UnionType = object) -> Any:
    """Return what a method of a learner or scorer does; ``UserError`` names one that fails, or returns no ``kind``."""
    owner = getattr(method, "__self__", method)
    with _mistakes(name, owner if isinstance(owner, type) else type(owner)):
        found = method(*given)
    if not isinstance(found, kind):
        wanted = " or ".join(each.__name__ for each in get_args(kind) or (kind,))
        raise UserError(
            f"learner {name}: {method.__qualname__} returned {shown(found)}; return a {wanted} ({__name__})"
        )
    return found


def fitted(learner: Learner, prepared: Any, rows: np.ndarray) -> Scorer:
    """Return what ``learner.fit`` does; ``UserError`` names a learner that fails, or that leaves no scorer."""
    scorer: Scorer = result_of(learner.recipe.settings.learner, learner.fit, prepared, rows, kind=Scorer)
    return scorer


def save_scorer(scorer: Scorer, name: object, folder: Path) -> None:
    """Save a scorer; ``UserError`` names the learner of one that fails, or that writes other files than ``FILES``."""
    before = {path.name for path in folder.glob("*")}
    result_of(name, scorer.save, folder)
    written = {path.name for path in folder.glob("*")}
    for file in scorer.FILES:
        if file not in written:
            raise UserError(f"learner {name}: save wrote no {file}, which FILES of {type(scorer).__name__} names")
    if more := sorted(written - before - {*scorer.FILES}):
        raise UserError(f"learner {name}: save wrote {more[0]}, which FILES of {type(scorer).__name__} does not name")


def read_scorer(name: str, folder: Path) -> Scorer:
    """Return what a learner has saved in a folder; ``UserError`` names the learner if it fails, or is not installed."""
    try:
        kind = learner_class(name).scorer
    except UserError as error:
        raise UserError(f"{folder}: {error}") from error
    scorer: Scorer = result_of(name, kind.read, folder, kind=Scorer)
    return scorer


def scores_of(
    scorer: Scorer, name: object, problems: pd.DataFrame, candidates: pd.DataFrame, offered: np.ndarray
) -> np.ndarray:
    """Return what ``scorer.score`` does; ``UserError`` names the learner of scores that are no numbers [P, Q]."""
    scores = result_of(name, scorer.score, problems, candidates, offered)
    shape = getattr(scores, "shape", None)
    if not isinstance(scores, np.ndarray) or shape != offered.shape or not np.isfinite(scores[offered]).all():
        said = f"scores of shape {shape}" if shape != offered.shape else "scores that are no numbers"
        raise UserError(
            f"learner {name}: {said} for pairs of shape {offered.shape}; give a finite number for each pair that is "
            "offered"
        )
    if not _is_ours(type(scorer)):
        again = result_of(name, scorer.score, problems.iloc[:1], candidates, offered[:1])
        if not np.allclose(again, scores[:1], 1e-5, 1e-5):
            raise UserError(f"learner {name}: a pair gets other scores in another call; its score depends on it alone")
    return scores


def _mistakes(name: object, kind: type) -> AbstractContextManager[None]:
    """Return what names the learner of a stranger in its mistakes; a defect of ours keeps its traceback."""
    return nullcontext() if _is_ours(kind) else mistakes_of(f"learner {name}")


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith(f"{__package__}.")
