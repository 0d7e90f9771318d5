"""Scores by trees: the sums of all of them, and where candidates leave the running before that.

At a *cut*, after a few trees, candidates leave that are too far below the best sum; the rest goes through all trees, so
the score of a pick is the model's own. Trees of a boosted model matter less and less, so a few of them tell which
candidates cannot win. What the others can still change is seen on the training problems: the spread of what is missing
from a sum, over the near-best candidates of a problem. The margin of a cut is ``MARGIN_IN_SPREADS`` of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
import pandas as pd
from pydantic import Field, RootModel

from tileseer.core import documents, exact
from tileseer.core.atomic import write_text
from tileseer.core.code_digest import version_of
from tileseer.core.documents import Document, Scalar
from tileseer.core.errors import UserError
from tileseer.core.reading import LARGEST_TABLE, read_utf8
from tileseer.learn import model_files
from tileseer.learn.features import Features, feature_set
from tileseer.learn.formula import Formula, FormulaPrior
from tileseer.learn.learner import CppPart, Scorer
from tileseer.learn.learners.trees import text as trees
from tileseer.learn.model_schema import Contribution, FeatureSpec, read_features
from tileseer.problems.operation import Operation
from tileseer.problems.problem import INT32_MAX

if TYPE_CHECKING:
    import lightgbm

MODEL = "model_tflops.lgbm"
"""The text of the trees."""
CUTS = "cuts.json"
IMPORTANCES = "feature_importances_tflops.json"
TREES_AT_CUTS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
LEAST_EFFICIENCY = 0.01
"""Efficiencies that are predicted to be less, or negative, are shown as this."""
NEAR_BEST_SCORE = 0.15
"""Distance below the best final score up to which candidates count for the spread."""
MARGIN_IN_SPREADS = 10
"""Margin of a cut in spreads. On the unseen layers of a simulated gfx950 6 lose 0.03 to 0.11 points of the mean, 10 at
most 0.02, for 1.3 to 1.5 times the walks; 16 change nothing."""
PAIRS_AT_A_TIME = 1 << 15
"""Pairs predicted at a time: what a large pool costs in memory. The matrix of the reference's set is then below the
32 MiB from which the allocator gives every block back to the system and gets fresh pages for the next."""
TREES_TOGETHER, ROWS_FOR_TREES_TOGETHER = 50, 4096
"""So many trees stay in a core's cache while they go over so many rows: a third less time than one tree after another
for each row."""
FEATURES_OF_A_PICK = 5
"""Features named for a pick."""
FORMULA = "formula_us"
"""Name of the formula's time among the features: what a score starts from."""


class Cut(Document):
    """A place in the trees where candidates leave."""

    trees: Annotated[int, Field(ge=1, le=INT32_MAX)]
    """After so many."""
    margin: Annotated[float, Field(ge=0)]
    """Those whose sum is further than this below the best one's."""


class Cuts(RootModel[list[Cut]]):
    """Where candidates leave the running, in rising order."""


class Importances(RootModel[dict[str, int]]):
    """Splits of each feature, most used first."""


@dataclass(eq=False)
class TreeScorer(Scorer):
    """Trees, and the features that they read."""

    FILES: ClassVar[tuple[str, ...]] = (MODEL, CUTS, IMPORTANCES)
    text: str
    """As LightGBM writes them, without the thread count."""
    features: Features
    formula: FormulaPrior | None = None
    cuts: Sequence[Cut] = ()
    threads: int = 1

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read trees and cuts; ``UserError`` also for features that are not those of the spec, or of this release."""
        spec = documents.read_document(folder / model_files.SPEC, FeatureSpec)
        cuts = documents.read_document(folder / CUTS, Cuts).root
        text = read_trees(folder / MODEL, spec)
        return cls(text, read_features(folder), spec.formula, cuts)

    def save(self, folder: Path) -> None:
        """Write the trees, their cuts and how many splits read each feature."""
        splits = zip(self.features.names, self.booster.feature_importance("split").tolist(), strict=True)
        write_text(folder / MODEL, self.text)
        documents.write_document(folder / CUTS, Cuts(self.cuts))
        importances = dict(sorted(splits, key=lambda pair: (-pair[1], pair[0])))
        documents.write_document(folder / IMPORTANCES, Importances(importances))

    @cached_property
    def booster(self) -> lightgbm.Booster:
        """The trees; ``UserError`` where LightGBM is not installed or does not read them."""
        return trees.load_trees(self.text)

    @cached_property
    def count(self) -> int:
        """How many trees there are."""
        return self.text.count("\nTree=")

    @property
    def meaning(self) -> str:
        """What scores are, in words."""
        return super().meaning if self.formula else "TFLOPS / best TFLOPS of the same problem, less 1: 0 is the best"

    @property
    def facts(self) -> dict[str, Scalar]:
        """How many trees there are, and what grew them."""
        return {"trees": self.count, "lightgbm": version_of("lightgbm")}

    def score(self, problems: pd.DataFrame, candidates: pd.DataFrame, offered: np.ndarray | None = None) -> np.ndarray:
        """Return the scores of the pairs that are offered by all trees, float64 [P, Q]."""
        if offered is None:
            offered = np.ones((len(problems), len(candidates)), bool)
        scores, (problem, candidate) = np.full(offered.shape, -np.inf), np.nonzero(offered)
        if not len(problem):
            return scores
        pairs = self.pairs(problems, candidates)
        for first in range(0, len(problem), PAIRS_AT_A_TIME):
            part = slice(first, first + PAIRS_AT_A_TIME)
            matrix, start = pairs(problem[part], candidate[part])
            scores[problem[part], candidate[part]] = start + self._predict(matrix)
        return scores

    def leading(self, problems: pd.DataFrame, candidates: pd.DataFrame, offered: np.ndarray) -> np.ndarray:
        """Return the scores [P, Q] of those that are left behind the last cut: the best of each problem."""
        scores, (problem, candidate) = np.full(offered.shape, -np.inf), np.nonzero(offered)
        if not len(problem):
            return scores
        matrix, score = self.pairs(problems, candidates)(problem, candidate)
        done = 0
        for count, margin in [*((cut.trees, cut.margin) for cut in self.cuts), (self.count, 0.0)]:
            score = score + self.sum_trees(matrix, done, count)
            first = first_of(problem)
            top = np.maximum.reduceat(score, np.flatnonzero(first)).take(np.cumsum(first) - 1)
            keep, done = np.flatnonzero(score >= top - margin), count
            problem, candidate, score, matrix = problem[keep], candidate[keep], score[keep], matrix[keep]
        scores[problem, candidate] = score
        return scores

    def log_efficiency(self, scores: np.ndarray) -> np.ndarray:
        """Return ln(1 + score), of an efficiency of at least ``LEAST_EFFICIENCY``; on a formula, the score itself."""
        return scores if self.formula else exact.log(np.maximum(1 + scores, LEAST_EFFICIENCY))

    def calibrated(self, problems: pd.DataFrame, candidates: pd.DataFrame, offered: np.ndarray) -> Self:
        """Return the same trees with cuts, by training problems (P) on which the candidates ``offered`` [P, Q] run."""
        scores = self.score(problems, candidates, offered)
        problem, candidate = np.nonzero(scores >= scores.max(axis=1, keepdims=True) - NEAR_BEST_SCORE)
        final = scores[problem, candidate]
        ends = [count for count in TREES_AT_CUTS if count < self.count]
        missing = np.empty((len(ends), len(problem)))
        pairs = self.pairs(problems, candidates)
        for start in range(0, len(problem), PAIRS_AT_A_TIME):
            part = slice(start, start + PAIRS_AT_A_TIME)
            (matrix, total), done = pairs(problem[part], candidate[part]), 0
            for number, end in enumerate(ends):
                total = total + self.sum_trees(matrix, done, end)
                missing[number, part], done = final[part] - total, end
        margins = [trees.rounded(MARGIN_IN_SPREADS * _spread(problem, values)) for values in missing]
        return replace(self, cuts=[Cut(trees=end, margin=margin) for end, margin in zip(ends, margins, strict=True)])

    def explain(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, pick: np.ndarray, other: np.ndarray
    ) -> list[list[Contribution]]:
        """Return the features that spoke most for the pick against the other candidate, for each of P problems.

        A contribution is the difference of the two SHAP values (LightGBM's exact TreeSHAP) in the space of the score:
        positive ones made the pick look better.
        """
        count = len(problems)
        rows, columns = np.tile(np.arange(count), 2), np.concatenate([pick, other])
        matrix, _ = self.pairs(problems, candidates)(rows, columns)
        shap = np.asarray(self.booster.predict(matrix, pred_contrib=True, num_threads=1))[:, :-1]
        names = list(self.features.names)
        if self.formula is not None:
            whole = self.formula.model_copy(update={"weight": 1.0})
            says = Formula(problems, candidates, self.features.gpu, whole).score(rows, columns)
            names.append(FORMULA)
            matrix = np.column_stack([matrix, exact.exp(-says)])
            shap = np.column_stack([shap, self.formula.weight * says])
        difference = shap[:count] - shap[count:]
        order = np.argsort(-np.abs(difference), axis=1, kind="stable")[:, :FEATURES_OF_A_PICK]
        return [
            [
                Contribution(
                    feature=names[i],
                    contribution=round(float(difference[row, i]), 6),
                    of_pick=float(f"{matrix[row, i]:.6g}"),
                    of_best=float(f"{matrix[count + row, i]:.6g}"),
                )
                for i in order[row]
                if difference[row, i] != 0
            ]
            for row in range(count)
        ]

    def cpp(self, operation: Operation, candidates: pd.DataFrame, problem: Mapping[str, Any]) -> CppPart | str:
        """Return formulas and trees in C++, or why it cannot compute the features."""
        from tileseer.learn.learners.trees.cpp import part_of_header

        return part_of_header(self, operation, candidates, problem)

    def sum_trees(self, matrix: np.ndarray, first: int, last: int) -> np.ndarray | float:
        """Return what the trees ``first`` to ``last`` - 1 add to the scores of n rows of features, float64 [n]."""
        if first == last:
            return 0.0
        count = last - first
        return np.asarray(
            self.booster.predict(matrix, start_iteration=first, num_iteration=count, num_threads=self.threads)
        )

    def _predict(self, matrix: np.ndarray) -> np.ndarray:
        """Return the sums of all trees, float64 [n]; of many rows ``TREES_TOGETHER`` trees at a time."""
        step = TREES_TOGETHER if len(matrix) >= ROWS_FOR_TREES_TOGETHER else max(self.count, 1)
        total = np.zeros(len(matrix))
        for first in range(0, self.count, step):
            total += self.sum_trees(matrix, first, min(first + step, self.count))
        return total

    def pairs(
        self, problems: pd.DataFrame, candidates: pd.DataFrame
    ) -> Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Return a function of n pairs of rows (int [n]): features [n, F], and what their scores start from [n]."""
        kept = vars(self).get("_kept")
        # What candidates say is kept until others are asked for.
        if kept is None or kept[0] is not candidates:
            start, one = self.formula, problems.iloc[:1]
            formula = None if start is None else Formula(one, candidates, self.features.gpu, start)
            kept = self._kept = candidates, self.features.candidate_columns(candidates), formula
        columns = self.features.problem_columns(problems), kept[1]
        formula = kept[2] and kept[2].of_problems(problems)

        def of(problem: np.ndarray, candidate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            start = formula.score(problem, candidate) if formula else np.zeros(len(problem))
            return self.features.gather(*columns, problem, candidate), start

        return of


def first_of(problem: np.ndarray) -> np.ndarray:
    """Say of each pair whether it is the first of its problem, bool; ``problem`` is sorted."""
    first = np.ones(len(problem), bool)
    np.not_equal(problem[1:], problem[:-1], out=first[1:])
    return first


def _spread(problem: np.ndarray, missing: np.ndarray) -> float:
    """Return the root mean square of what is missing from sums less its problem's mean; ``problem`` is sorted."""
    number = np.cumsum(first_of(problem)) - 1
    mean = np.bincount(number, missing) / np.bincount(number)
    return float(np.sqrt(np.mean((missing - mean[number]) ** 2)))


def read_trees(path: Path, spec: FeatureSpec) -> str:
    """Read the text of a model file; ``UserError`` if it is damaged or its features are not those of ``spec``."""
    try:
        text = read_utf8(path, LARGEST_TABLE)
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
