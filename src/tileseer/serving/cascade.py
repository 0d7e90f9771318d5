"""The served model: a few trees for every candidate, all trees for the candidates of the short lists.

The same steps run here with LightGBM and in the published C++ header, with the same bits: sums of trees in their
order in float64; of equal scores the earlier candidate goes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tileseer.conv.operation import ELEMENT_BYTES, Operation
from tileseer.conv.problem import DIMS
from tileseer.families.family import Family
from tileseer.families.feature_table import Columns
from tileseer.families.registry import of_kernels
from tileseer.families.support_rules import classes_verdicts, signature
from tileseer.gpu.hardware import Hardware
from tileseer.model import features, trees
from tileseer.model.trees import Tree

if TYPE_CHECKING:
    import lightgbm

BLOCK = 1 << 16
"""Pairs ranked at a time: what a large batch costs in memory."""
UNKNOWN = -1.0


@dataclass(frozen=True)
class Cascade:
    """A served model of one operation with its pool; Q candidates."""

    family: Family
    """Whose feature set is served, whatever the full model uses: its formulas go into the header."""
    operation: Operation
    hardware: Hardware
    booster: lightgbm.Booster
    short_lists: tuple[tuple[int, int], ...]
    candidates: Columns
    """What the features read of the pool: ``features.candidate_columns``."""
    kernel_classes: Columns
    classes: np.ndarray
    """The classes that the support rules tell apart, and the class of each candidate."""

    @classmethod
    def of(
        cls, operation: Operation, hardware: Hardware, booster: lightgbm.Booster,
        short_lists: Sequence[Sequence[int]], pool: pd.DataFrame,
    ) -> Cascade:  # fmt: skip
        """Prepare a served model for its ``pool``, a table with the fields of its family's kernels."""
        family = of_kernels(pool["kernel"].tolist())
        kernel, classes = family.part("support").kernel_classes(pool, hardware.wave_size)
        chosen = features.feature_set(family.features)
        # Resources that a build does not know are a value of their own: trees of plain comparisons need numbers.
        columns = {
            name: np.nan_to_num(values, nan=UNKNOWN)
            for name, values in chosen.candidate_columns(pool, hardware).items()
        }
        return cls(
            family, operation, hardware, booster, tuple((int(trees), int(kept)) for trees, kept in short_lists),
            columns, kernel, classes,
        )  # fmt: skip

    def supported(self, dims: np.ndarray) -> np.ndarray:
        """Which candidates can run which problem, bool [n, Q]; ``dims``: int64 [n, 19], columns ``DIMS``."""
        problem = self.rule_columns(by_name(dims))
        return (classes_verdicts(problem, self.kernel_classes, self.family.part("support").RULES) == 0)[:, self.classes]

    def rule_columns(self, columns: Columns) -> dict[str, np.ndarray]:
        """Columns that the support rules read of problems, from their dimensions and ``ndim`` by name."""
        variant, dtype = self.operation.variant, self.operation.dtype
        problem = self.family.part("support").problem_columns(columns, variant, ELEMENT_BYTES[dtype])
        return problem | {"signature": signature(variant, dtype, columns["ndim"])}

    def problem_columns(self, columns: Columns) -> dict[str, np.ndarray]:
        """Columns that the features read of problems, from their dimensions and ``ndim`` by name."""
        chosen = features.feature_set(self.family.features)
        return chosen.problem_columns(columns, self.operation, self.hardware)

    def features(self, dims: np.ndarray, problem: np.ndarray, candidate: np.ndarray) -> np.ndarray:
        """The features of pairs (rows of ``dims`` and of the pool), float32 [pairs, F]."""
        columns = self.problem_columns(by_name(dims))
        return features.matrix(columns, self.candidates, problem, candidate, self.hardware, self.family.features)

    def pick(self, dims: np.ndarray, allowed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The pick of each of n problems and its score, int64 and float64 [n]; -1 and -inf where there is none.

        ``allowed`` (bool [Q]) restricts the pool.
        """
        candidate = np.full(len(dims), -1)
        score = np.full(len(dims), -np.inf)
        step = max(1, BLOCK // max(1, len(self.classes)))
        for start in range(0, len(dims), step):
            block = dims[start : start + step]
            problem, best, value = self._ranked(block, allowed)
            candidate[start + problem], score[start + problem] = best, value
        return candidate, score

    def _ranked(self, dims: np.ndarray, allowed: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Problem, candidate and score of the best pair of each problem that has one."""
        runs = self.supported(dims)
        if allowed is not None:
            runs &= allowed
        problem, candidate = np.nonzero(runs)
        if not len(problem):
            return problem, candidate, np.empty(0)
        matrix = self.features(dims, problem, candidate)
        for count, kept in (*self.short_lists, (self.booster.num_trees(), 1)):
            score = np.asarray(self.booster.predict(matrix, num_iteration=count, num_threads=1))
            keep = _first(problem, score, kept)
            problem, candidate, score, matrix = problem[keep], candidate[keep], score[keep], matrix[keep]
        return problem, candidate, score


def by_name(dims: np.ndarray) -> dict[str, np.ndarray]:
    """Int64 columns of ``dims`` [n, 19], and ``ndim``: 3 where one of the depth fields says so."""
    columns = {name: dims[:, position] for position, name in enumerate(DIMS)}
    flat = (columns["pad_d"] == 0) & np.logical_and.reduce(
        [columns[name] == 1 for name in ("Di", "Z", "stride_d", "dilation_d")]
    )
    return columns | {"ndim": np.where(flat, 2, 3)}


def _first(problem: np.ndarray, score: np.ndarray, count: int) -> np.ndarray:
    """The rows of the ``count`` highest scores of each problem, in row order; ``problem`` is sorted."""
    order = np.lexsort((np.arange(len(score)), -score, problem))
    starts = np.flatnonzero(np.diff(problem, prepend=-1))
    within = np.arange(len(problem)) - np.repeat(starts, np.diff(starts, append=len(problem)))
    return np.sort(order[within < count])


def trees_of(model: str) -> list[Tree]:
    """The trees of a served model's text, which has plain comparisons only."""
    found = trees.parse(model)
    if not all(np.isin(tree.decision, (0, 2)).all() for tree in found):
        raise ValueError("a served tree has a categorical or missing-value split; train it on complete numbers")
    return found
