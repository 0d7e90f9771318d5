"""The splits of a model's trees, for walking the trees down without LightGBM.

A split compares a value with a threshold. The values have rows: first the features that the trees read, later the lists
of categories, each a feature of its own, of zeros and ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np

from tileseer.core.errors import UserError
from tileseer.costmodel.scores import UNIT
from tileseer.learn import trees
from tileseer.learn.trees import Tree
from tileseer.serve.cascade import Cascade
from tileseer.serve.formulas import feature_values
from tileseer.serve.symbols import Operand

CategoryList = tuple[int, tuple[int, ...]]
"""A feature, and the categories of it that a split sends left, as bits."""
Split = tuple[int, float]
"""Row of the value that is compared, and the threshold."""


@dataclass(frozen=True)
class SplitTable:
    """The trees of a cascade, and the values that their splits compare."""

    trees: Sequence[Tree]
    numbers: list[int]
    """The features that the trees read, by their numbers in the model, rising."""
    features: list[str]
    """Their names."""
    moving: dict[str, Operand]
    """Those that depend on the problem, as symbols."""
    fixed: dict[str, np.ndarray]
    """Those of the candidates alone, [Q] each."""
    lists: dict[CategoryList, np.ndarray]
    """For each list of categories what is compared with 0.5: 0 for the candidates that it sends left, else 1."""

    @classmethod
    def of(cls, cascade: Cascade) -> Self:
        """Read the trees of a cascade; ``UserError`` where they need what no selector has."""
        names, grown = cascade.model.booster.feature_name(), _read_trees(cascade.model.text)
        numbers = sorted({int(feature) for tree in grown for feature in tree.feature})
        features = [names[number] for number in numbers]
        moving, fixed = feature_values(cascade, features)
        lists: dict[CategoryList, np.ndarray] = {}
        for tree in grown:
            for node in np.flatnonzero(tree.categorical):
                name = names[tree.feature[node]]
                if name not in fixed:
                    raise UserError(f"serving: {name} is categorical and depends on the problem; make it a number")
                right = ~tree.lists(np.full(len(fixed[name]), node), fixed[name].astype(np.float64))
                lists[_list_of(tree, int(node))] = right.astype(np.float32)
        return cls(grown, numbers, features, moving, fixed, lists)

    def splits(self, first_list: int, as_read: Callable[[float], float]) -> list[list[Split]]:
        """The split of each node of each tree; lists of categories have the rows from ``first_list``."""
        row_of = {number: row for row, number in enumerate(self.numbers)}
        row_of_list = {key: first_list + place for place, key in enumerate(self.lists)}
        return [
            [
                (row_of_list[_list_of(tree, node)], 0.5)
                if tree.categorical[node]
                else (row_of[int(tree.feature[node])], as_read(float(tree.threshold[node])))
                for node in range(len(tree.feature))
            ]
            for tree in self.trees
        ]


@lru_cache(maxsize=1)
def _read_trees(text: str) -> Sequence[Tree]:
    """The trees of a model text, after making sure that they compare numbers and lists of categories only."""
    grown = trees.nodes(text)
    for tree in grown:
        if not np.isin(tree.decision[~tree.categorical], (0, 2)).all():
            raise UserError("serving: a tree has a missing-value split; train it on complete numbers")
        if (tree.leaf % UNIT).any():
            raise UserError(f"serving: leaf values are no multiples of {UNIT}; train the model again")
    return grown


def _list_of(tree: Tree, node: int) -> CategoryList:
    split = int(tree.threshold[node])
    return int(tree.feature[node]), tuple(tree.words[tree.bounds[split] : tree.bounds[split + 1]].tolist())


def below(threshold: float) -> float:
    """The largest float32 that is not above ``threshold``: a float32 is below both or above both."""
    near = np.float32(threshold)
    return float(near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf)))
