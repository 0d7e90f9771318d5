"""What the trees of a model ask of candidates, as those need it that walk them down without LightGBM."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from tileseer.core.errors import UserError
from tileseer.model import trees
from tileseer.model.trees import Tree

List = tuple[int, tuple[int, ...]]
"""A feature, and the categories of it that a split sends left, as bits."""


@lru_cache(maxsize=1)
def plain(text: str) -> Sequence[Tree]:
    """The trees of a model text, after making sure that they ask for comparisons and lists of categories only."""
    found = trees.Trees(text).trees
    for tree in found:
        if not np.isin(tree.decision[~tree.categorical], (0, 2)).all():
            raise UserError("serving: a tree has a missing-value split; train it on complete numbers")
        if (tree.leaf % trees.UNIT).any():
            raise UserError(f"serving: leaf values are no multiples of {trees.UNIT}; train the model again")
    return found


def listed(found: Sequence[Tree], names: Sequence[str], fixed: Mapping[str, np.ndarray]) -> dict[List, np.ndarray]:
    """For each categorical split what is compared with 0.5 instead: 0 for the candidates that it sends left, else 1."""
    columns: dict[List, np.ndarray] = {}
    for tree in found:
        for node in np.flatnonzero(tree.categorical):
            name = names[tree.feature[node]]
            if name not in fixed:
                raise UserError(f"serving: {name} is categorical and depends on the problem; make it a number")
            right = ~tree.lists(np.full(len(fixed[name]), node), fixed[name].astype(np.float64))
            columns[list_of(tree, int(node))] = right.astype(np.float32)
    return columns


def list_of(tree: Tree, node: int) -> List:
    """What a categorical split asks for."""
    split = int(tree.threshold[node])
    return int(tree.feature[node]), tuple(tree.words[tree.bounds[split] : tree.bounds[split + 1]].tolist())


def asked(
    tree: Tree, number: Mapping[int, int], of_lists: Mapping[List, int], as_read: Callable[[float], float]
) -> list[tuple[int, float]]:
    """What each node asks for: number of the feature, and threshold.

    A list of categories is a feature of its own, of zeros and ones.
    """
    return [
        (of_lists[list_of(tree, node)], 0.5)
        if tree.categorical[node]
        else (number[int(tree.feature[node])], as_read(float(tree.threshold[node])))
        for node in range(len(tree.feature))
    ]


def below(threshold: float) -> float:
    """The largest float32 that is not above ``threshold``: a float32 is below both or above both."""
    near = np.float32(threshold)
    return float(near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf)))
