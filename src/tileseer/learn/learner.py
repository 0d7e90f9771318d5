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

from tileseer.core.errors import UserError
from tileseer.kernels.costs.coefficients import Coefficients

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from tileseer.config.model import TrainingParameters
    from tileseer.dataset.dataset import Dataset
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
    learner = getattr(importlib.import_module(module), attribute, None)
    if learner is None:
        raise UserError(f"model.learner: {name}: {module} has no {attribute}; give package.module:Class")
    for method in ("prepare", "fit"):
        if not callable(getattr(learner, method, None)):
            raise UserError(f"model.learner: {name}: the class has no method {method}; docs/research.md has an example")
    return learner


def learner_of(recipe: Recipe) -> Learner:
    """Return the learner that the settings of ``recipe`` name, made with it."""
    return class_of(recipe.settings.learner or OURS)(recipe)
