"""What a learner is, and which one a configuration names: ours, or a class from outside of the checkout.

Cross-validation, validation and evaluation know nothing else of a learner.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tileseer.core.errors import UserError, mistakes_of
from tileseer.libraries.costs.coefficients import Coefficients

if TYPE_CHECKING:
    import pandas as pd

    from tileseer.data.dataset import Dataset
    from tileseer.facts.model import TrainingParameters
    from tileseer.learn.features import Features
    from tileseer.learn.model import Model

OURS = "tileseer.learn.boosting:Boosting"


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a learner is made with."""

    features: Features
    settings: TrainingParameters
    prior: Model | Coefficients | None = None
    """What training starts from: a model's trees, or the formula with these coefficients."""
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


class Scores(Protocol):
    """What a learner learnt."""

    def score(self, problems: pd.DataFrame, candidates: pd.DataFrame, offered: np.ndarray) -> np.ndarray:
        """Return the scores of Q candidates on P problems, float64 [P, Q]; higher is faster.

        ``offered`` (bool [P, Q]) says which pairs are asked for; others may be -inf. Scores compare within a problem.
        """
        ...


class Learner(Protocol):
    """What makes models of a dataset."""

    def prepare(self, dataset: Dataset) -> Any:
        """Return what every fit on rows of ``dataset`` shares; its pairs ran on training problems."""
        ...

    def fit(self, prepared: Any, rows: np.ndarray) -> Scores:
        """Return what can be learnt from some rows of the prepared dataset, bool [n]."""
        ...


def file_of(name: str) -> Path | None:
    """Return the file of a learner ``package.module:Class``, or None for a module without one.

    The folder of the run is searched too. ``UserError`` if there is no such module.
    """
    if "" not in sys.path:
        sys.path.append("")
    module = name.partition(":")[0]
    try:
        found = find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise UserError(
            f"model.learner: {name}: there is no module {module}; put its file into the folder of the run, or the "
            "folder of its package into PYTHONPATH"
        )
    return Path(found.origin) if found.origin and found.has_location else None


def class_of(name: str) -> Callable[[Recipe], Learner]:
    """Return the learner ``package.module:Class``; ``UserError`` if it does not exist or lacks a method."""
    file_of(name)
    module, _, attribute = name.partition(":")
    with mistakes_of(f"model.learner: {name}: importing {module}"):
        learner = getattr(importlib.import_module(module), attribute, None)
    if learner is None:
        raise UserError(f"model.learner: {name}: {module} has no {attribute}; give package.module:Class")
    for method in ("prepare", "fit"):
        if not callable(getattr(learner, method, None)):
            raise UserError(f"model.learner: {name}: the class has no method {method}; docs/research.md has an example")
    return learner


def learner_of(recipe: Recipe) -> Learner:
    """Return the learner that the settings of ``recipe`` name, made with it."""
    name = recipe.settings.learner
    return Outside(name, recipe) if name else class_of(OURS)(recipe)


class Outside:
    """A learner from outside, whose mistakes are told."""

    def __init__(self, name: str, recipe: Recipe) -> None:
        """Make the class ``package.module:Class``."""
        self._name = name
        with mistakes_of(f"model.learner: {name}: making it with a recipe"):
            self._learner = class_of(name)(recipe)

    def prepare(self, dataset: Dataset) -> Any:
        """Return what it returns."""
        with mistakes_of(f"model.learner: {self._name}: prepare"):
            return self._learner.prepare(dataset)

    def fit(self, prepared: Any, rows: np.ndarray) -> Scores:
        """Return what it learnt; ``UserError`` if that has no method ``score``."""
        with mistakes_of(f"model.learner: {self._name}: fit"):
            learnt = self._learner.fit(prepared, rows)
        if hasattr(learnt, "with_margins"):
            # A model of ours.
            return learnt
        if not callable(getattr(learnt, "score", None)):
            kind = type(learnt).__name__
            raise UserError(f"model.learner: {self._name}: fit returns {kind}, which has no method score")
        return Learnt(self._name, learnt)


@dataclass(frozen=True, eq=False)
class Learnt:
    """What a learner from outside learnt."""

    name: str
    scores: Scores

    def score(self, problems: pd.DataFrame, candidates: pd.DataFrame, offered: np.ndarray) -> np.ndarray:
        """Return its scores; ``UserError`` for another shape, or where a pair that is offered has no finite one."""
        with mistakes_of(f"model.learner: {self.name}: score"):
            scores = np.asarray(self.scores.score(problems, candidates, offered), float)
        fault = ""
        if scores.shape != offered.shape:
            fault = f"the shape {scores.shape}, not {offered.shape}, [P, Q]"
        elif (wrong := ~np.isfinite(scores) & offered).any():
            fault = f"{scores[wrong][0]} for a pair that is offered; give a finite number"
        if fault:
            raise UserError(f"model.learner: {self.name}: score returns {fault}")
        return scores
