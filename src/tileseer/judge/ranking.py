"""The picks of a ranking on problems that nothing has learnt from.

The figure is the efficiency of the pick: its measured TFLOPS over the best measured TFLOPS of the problem. A pick
that was not measured, failed or cannot run counts 0; nothing is left out because it is inconvenient. Where no problems
were set aside, layers are left out in turn, while the others train.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from tileseer.core.errors import UserError, mistakes_of, require, shown
from tileseer.data.dataset import READ_ONE, Dataset
from tileseer.facts.model import ModelSettings
from tileseer.learn import own_choice
from tileseer.learn.evidence import NOTHING_LEARNT, Expected, LearntEvidence, held_out
from tileseer.learn.learner import Recipe
from tileseer.learn.left_out import judged_folds, layers_at_any_size, reached_by_lists
from tileseer.learn.model import Model
from tileseer.learn.rows import LAYER_FOLDS, NO_FOLD, training_pairs
from tileseer.learn.training import Prepared, out_of_fold, prior_of
from tileseer.problems.problem import columns_of_frame

SET_ASIDE = "layers of networks that no model was trained on"
SERVED, SCORED_WHOLE = "; picks of the served model", "; picks among all that the library offers"
LEFT_OUT = "layers left out of the training in turn; picks of the models without them"
STARTED = "; the model that training starts from may have learnt from these layers on its own device"
MODEL = "one: Model.read('results/models/ARCH/OPERATION_FOLDER')"
ENOUGH_JUDGED_PROBLEMS = 2500
"""No further fold of layers is left out once so many picks are judged."""
Picker = Callable[[pd.DataFrame, pd.DataFrame], np.ndarray]
"""Scores of each of Q candidates on each of R problems, float64 [R, Q]: larger is faster, NaN is never picked."""
Served = Callable[[np.ndarray], np.ndarray]
"""What ships: the place in the model's pool of the pick for problems int [n, dims], -1 where none is; int [n]."""


def validation_rows(dataset: Dataset) -> np.ndarray:
    """Return the rows of ``problems`` held out for validation, int [R].

    ``UserError`` when a validation problem, or its layer at another batch size, is also a training problem.
    """
    require("dataset", dataset, Dataset, READ_ONE)
    problems = dataset.problems
    held_out, training = dataset.held_out, problems[dataset.trains]
    for column in ("problem_key", "layer_family"):
        shared = sorted(set(problems[column][held_out]) & set(training[column]))
        if shared:
            raise UserError(
                f"{dataset.operation}: {len(shared)} validation problems share their {column} with training "
                f"problems (first: {shared[0]}); an efficiency on them says nothing about unseen problems. "
                "Remove them from one of the two splits"
            )
    if not held_out.any():
        raise UserError(
            f"{dataset.operation}: the dataset has no problem with split validation, on which picks are judged; take "
            "one with this split: results/datasets of a simulated arch, config/recorded/sm_90 of the repository. "
            "Without it, benchmarks/pickbench judges pickers, and rank_left_out(dataset, recipe_of(model, 1)) models"
        )
    return np.flatnonzero(held_out)


def has_pick(dataset: Dataset) -> np.ndarray:
    """Return on which problems something ran, bool [P]; without those that a selector leaves to a library."""
    own = own_choice.library_choices(dataset)
    return dataset.best_tflops > 0 if own is None else own != own_choice.NONE


@dataclass(frozen=True, eq=False)
class Scored:
    """The R judged problems on which something ran, and the picks of a ranking on them."""

    dataset: Dataset
    rows: np.ndarray
    """Row of ``dataset.problems`` of each."""
    fold: np.ndarray
    """int [P], in which fold each problem of the dataset is held out, or ``NO_FOLD``. A model that picks for a problem
    has learnt from those of the other folds."""
    offered: np.ndarray
    """bool [P, Q], what a selector may choose on each problem of the dataset."""
    scores: np.ndarray
    """float64 [R, Q], higher is better."""
    picks: np.ndarray
    """int [R], the candidate that is chosen, -1 where none is."""
    untimed: np.ndarray
    """int [R], the candidate that runs where nothing is timed, and so is in every short list, -1 where none is."""
    own: np.ndarray | None
    """int [R], what the library that offers the candidates would run itself; None where none offers them."""
    without: np.ndarray
    """Row of ``dataset.problems`` of each judged problem that has no pick: nothing ran on it."""
    expected: Expected
    """What is known of each by the problems that trained for the pick."""
    basis: str
    """What the layers are, and whose picks these are, in words."""

    @cached_property
    def problems(self) -> pd.DataFrame:
        """The scored problems, R rows."""
        return self.dataset.problems.iloc[self.rows]

    @cached_property
    def pool(self) -> np.ndarray:
        """What a selector may choose on the scored problems, bool [R, Q]."""
        return self.offered[self.rows]

    @cached_property
    def achieved(self) -> np.ndarray:
        """Measured efficiency of every candidate, float64 [R, Q], 0 where it did not run."""
        return self.dataset.grid(self.rows)

    @cached_property
    def picked(self) -> np.ndarray:
        """Efficiency of the picks, float64 [R]."""
        return self._reached(self.picks)

    def fastest_of(self, count: int) -> np.ndarray:
        """Return the efficiency of the fastest of the first ``count`` candidates and what runs untimed, [R].

        What a library would choose itself is none of the ``count``.
        """
        known = np.where(self.pool, self.scores, -np.inf)
        if self.own is not None:
            own = np.flatnonzero(self.untimed != own_choice.NONE)
            known[own, self.untimed[own]] = -np.inf
        return np.maximum(reached_by_lists(known, self.achieved, [count])[:, 0], self._reached(self.untimed))

    def _reached(self, candidate: np.ndarray) -> np.ndarray:
        rows = np.arange(len(self.rows))
        return np.where((candidate >= 0) & self.pool[rows, candidate], self.achieved[rows, candidate], 0.0)

    @cached_property
    def best(self) -> np.ndarray:
        """The fastest measured candidate, int [R]."""
        return self.achieved.argmax(axis=1)


def score_ranking(
    dataset: Dataset,
    scores: np.ndarray,
    offered: np.ndarray,
    fold: np.ndarray | None = None,
    picks: np.ndarray | None = None,
    learnt: LearntEvidence = NOTHING_LEARNT,
    basis: str = SET_ASIDE,
) -> Scored:
    """Score a ranking on the problems on which anything ran, of those with split ``validation`` or with a ``fold``.

    ``scores`` (float64 [P, Q], higher is better) and ``offered`` (bool [P, Q]: the CPU support rules pass and the
    candidate is published) cover every problem and candidate of the dataset. ``picks`` (int [P]) are by default the
    candidates with the highest score; without evidence that is ``learnt`` every problem is outside.
    """
    if fold is None:
        fold = np.full(len(dataset.problems), NO_FOLD)
        fold[validation_rows(dataset)] = 0
    has, own = has_pick(dataset), own_choice.library_choices(dataset)
    rows = np.flatnonzero((fold != NO_FOLD) & has)
    if not len(rows):
        raise UserError(f"{dataset.operation}: no validation problem has a measured time")
    if picks is None:
        picks = np.where(offered, scores, -np.inf).argmax(axis=1)
    return Scored(
        dataset=dataset,
        rows=rows,
        fold=fold,
        offered=offered,
        scores=scores[rows],
        picks=picks[rows],
        untimed=picks[rows],
        own=None if own is None else own[rows],
        without=np.flatnonzero(~has & (dataset.held_out | (not dataset.held_out.any()))),
        expected=held_out(dataset, rows, fold, learnt),
        basis=basis,
    )


def rank_held_out(model: Model, dataset: Dataset, served: Served | None = None) -> Scored:
    """Return the picks of a model on the problems held out for validation.

    Measured candidates outside the model's pool are not offered; ``UserError`` when the pool has one that was not
    measured. Where a library offers the candidates, its own choice is one of them, and comes first unless the model is
    sure, and layers like it were measured. Elsewhere the picks are those of ``served``, by default the best scores.
    """
    require("model", model, Model, MODEL)
    rows = validation_rows(dataset)
    problems, positions = dataset.problems, model.positions(dataset)
    rows = rows[has_pick(dataset)[rows]]
    lists = model.listed(dataset)
    offered = np.zeros((len(problems), len(dataset.candidates)), bool)
    offered[:, positions] = model.supported(problems) if lists is None else lists
    scores = np.full(offered.shape, -np.inf)
    scores[np.ix_(rows, positions)] = model.predict(problems.iloc[rows], None if lists is None else lists[rows])
    picks, basis = None, SET_ASIDE + (SERVED if lists is None else SCORED_WHOLE)
    if served and lists is None:
        columns = columns_of_frame(problems)
        place = served(np.stack([columns[name] for name in model.columns], axis=1)[rows])
        picks = np.full(len(problems), own_choice.NONE)
        picks[rows] = np.where(place >= 0, positions[place], own_choice.NONE)
    scored = score_ranking(dataset, scores, offered, picks=picks, learnt=model.spec.evidence, basis=basis)
    if scored.own is None or model.spec.own_margins is None:
        return scored
    known = np.where(scored.pool, scored.scores, -np.inf)
    picks = own_choice.chosen(scored.problems, known, scored.own, scored.expected.gains, model.spec.own_margins)
    # A model that does not know the own choice cannot rank the others beside it.
    knows = np.isfinite(scored.scores[np.arange(len(picks)), scored.own])
    offered[scored.rows, scored.own] = True
    ranked = np.where(knows[:, None], scored.scores, -np.inf)
    return replace(scored, offered=offered, scores=ranked, picks=picks, untimed=scored.own)


def rank_by(pick: Picker, dataset: Dataset) -> Scored:
    """Return the picks of any function, ours or not, on the problems held out for validation.

    ``UserError`` where it raises, or returns something else than scores of which each problem has one.
    """
    if not callable(pick):
        raise UserError(f"pick is {shown(pick)}; give a function of a table of problems and one of candidates")
    rows = validation_rows(dataset)
    scores = np.full((len(dataset.problems), len(dataset.candidates)), -np.inf)
    problems, candidates = dataset.problems.iloc[rows].copy(), dataset.candidates.copy()
    with mistakes_of("pick", columns_of(problems, candidates)):
        found = pick(problems, candidates)
    form = "a row for each problem, and in it a score for each candidate, larger is faster"
    found = finite_or_least("pick", found, scores[rows].shape, form)
    scores[rows] = found
    return score_ranking(dataset, scores, np.isfinite(scores))


def columns_of(problems: pd.DataFrame, candidates: pd.DataFrame) -> str:
    """Return the columns of both tables in words."""
    return f"problems have {', '.join(problems.columns)}; candidates have {', '.join(candidates.columns)}"


def finite_or_least(name: str, found: object, shape: tuple[int, ...], form: str) -> np.ndarray:
    """Return scores that the function ``name`` of a user gave, -inf where they are not finite, float64 of ``shape``.

    ``UserError`` for another type or shape, which should have the ``form``, and where none is finite.
    """
    scores = np.asarray(found)
    if scores.shape != shape or scores.dtype.kind not in "fiub":
        raise UserError(
            f"{name}: returned {scores.dtype} of shape {scores.shape}; return numbers of shape {shape}: {form}"
        )
    scores = np.nan_to_num(scores.astype(float), nan=-np.inf, posinf=-np.inf, neginf=-np.inf)
    if not np.isfinite(scores).any():
        raise UserError(f"{name}: no score is finite; NaN and infinite ones are never picked")
    return scores


def recipe_of(model: Model, threads: int) -> Recipe:
    """Return the recipe by which a model was trained."""
    require("model", model, Model, MODEL)
    settings, formula = ModelSettings.model_validate(model.spec.params), model.spec.formula
    prior = prior_of(settings, model.spec.operation, formula.coefficients if formula else None)
    return Recipe(model.features, settings, prior, threads)


def rank_left_out(dataset: Dataset, recipe: Recipe, learnt: LearntEvidence = NOTHING_LEARNT) -> Scored:
    """Return the picks of models that have not seen a problem's layer (``left_out.layers_at_any_size``).

    Of so many problems that the first folds have ``ENOUGH_JUDGED_PROBLEMS``, the layers of the others only train.
    """
    require("dataset", dataset, Dataset, READ_ONE)
    require("recipe", recipe, Recipe, "a tileseer.learn.learner.Recipe, such as recipe_of(model, 1)")
    pairs = training_pairs(dataset)
    enough = math.ceil(ENOUGH_JUDGED_PROBLEMS * LAYER_FOLDS / len(np.unique(pairs.problem)))
    fold = judged_folds(pairs, layers_at_any_size(pairs), LAYER_FOLDS, enough, recipe.settings.seed)
    scores = out_of_fold(Prepared.by(recipe, pairs), fold, recipe)
    offered, basis = own_choice.offered(pairs) & recipe.offers(pairs), LEFT_OUT
    if recipe.settings.prior_folder:
        basis += STARTED
    return score_ranking(dataset, scores, offered, fold, learnt=learnt, basis=basis)
