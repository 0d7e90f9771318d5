"""Trees of a LightGBM model text: LightGBM's own, or where it is not installed the same scores, bit for bit, in NumPy.

The text is LightGBM's documented save format. Leaf values of our models are whole multiples of ``UNIT``: sums of them
are exact, in whatever order and parts they are added.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from tileseer.core.errors import UserError

if TYPE_CHECKING:
    import lightgbm

UNIT = 2.0**-20
"""What leaf values of a model are whole multiples of."""
_ZERO = 1e-35
"""LightGBM's bound for what counts as zero."""
_CATEGORICAL, _DEFAULT_LEFT = 1, 2
_MISSING_ZERO, _MISSING_NAN = 1, 2


def load(text: str) -> lightgbm.Booster:
    """The trees of a model text; without LightGBM a ``Trees``. ``ValueError`` if it is no model text."""
    try:
        import lightgbm
    except ModuleNotFoundError:
        return cast("lightgbm.Booster", Trees(text))
    try:
        return lightgbm.Booster(model_str=text)
    except lightgbm.basic.LightGBMError as error:
        raise ValueError(str(error)) from error


def canonical(text: str) -> str:
    """The model text without the thread count, which does not belong to the model."""
    return re.sub(r"^\[num_threads: \d+\]$", "[num_threads: 0]", text, flags=re.MULTILINE)


def rounded(value: float) -> float:
    """The nearest whole multiple of ``UNIT``."""
    return round(value / UNIT) * UNIT


def round_leaves(booster: lightgbm.Booster) -> lightgbm.Booster:
    """``booster``, whose leaf values become whole multiples of ``UNIT``."""
    for number, tree in enumerate(parse(booster.model_to_string())):
        for leaf, value in enumerate(tree.leaf):
            booster.set_leaf_output(number, leaf, rounded(float(value)))
    return booster


@dataclass(frozen=True)
class Tree:
    """A negative child -1 - i is leaf i. The threshold of a categorical split is its place in ``bounds``."""

    feature: np.ndarray
    threshold: np.ndarray
    decision: np.ndarray
    """Bit 0: categorical; bit 1: missing values go left; bits 2 and 3: what is missing (0 nothing, 1 zero, 2 NaN)."""
    left: np.ndarray
    right: np.ndarray
    leaf: np.ndarray
    bounds: np.ndarray
    words: np.ndarray
    """Categories that go left, as bits: those of split i are the words from bounds[i] to bounds[i + 1]."""

    @property
    def categorical(self) -> np.ndarray:
        """Which splits ask for a category, bool."""
        return np.asarray((self.decision & _CATEGORICAL) != 0)

    def values(self, data: np.ndarray) -> np.ndarray:
        """Leaf value of each row, float64 [n]."""
        if not len(self.feature):
            return np.full(len(data), self.leaf[0])
        node = np.zeros(len(data), np.int64)
        rows = np.arange(len(data))
        while len(rows):
            at = node[rows]
            value = data[rows, self.feature[at]].astype(np.float64)
            left = self._goes_left(at, value)
            category = (self.decision[at] & _CATEGORICAL) != 0
            left[category] = self.lists(at[category], value[category])
            node[rows] = np.where(left, self.left[at], self.right[at])
            rows = rows[node[rows] >= 0]
        return self.leaf[-1 - node]

    def _goes_left(self, at: np.ndarray, value: np.ndarray) -> np.ndarray:
        missing, nan = (self.decision[at] >> 2) & 3, np.isnan(value)
        value = np.where(nan & (missing != _MISSING_NAN), 0.0, value)
        absent = np.where(missing == _MISSING_ZERO, np.abs(value) <= _ZERO, nan & (missing == _MISSING_NAN))
        return np.where(absent, (self.decision[at] & _DEFAULT_LEFT) != 0, value <= self.threshold[at])

    def lists(self, at: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Whether the categorical splits ``at`` send values left, bool; both [n]."""
        split = self.threshold[at].astype(np.int64)
        # Whole numbers as in C: towards zero. What is no category goes right, NaN as well.
        category = np.trunc(np.where(np.isfinite(value), value, -1)).clip(-1, 2**31 - 1).astype(np.int64)
        word = self.bounds[split] + (category >> 5)
        known = (category >= 0) & (word < self.bounds[split + 1])
        return known & ((self.words[np.where(known, word, 0)] >> (category & 31)) & 1 != 0)


class Trees:
    """What a selection needs of ``lightgbm.Booster``."""

    def __init__(self, text: str) -> None:
        """Read a model text; ``ValueError`` for another format."""
        header = text.partition("\nTree=")[0]
        names = re.search(r"^feature_names=(.*)$", header, re.MULTILINE)
        if names is None or "\nend of trees" not in text:
            raise ValueError("no LightGBM model text")
        self._names = names[1].split()
        self._trees = parse(text)

    def feature_name(self) -> list[str]:
        """Names of the columns, in their order."""
        return self._names

    def num_trees(self) -> int:
        """How many trees there are."""
        return len(self._trees)

    def predict(
        self, data: np.ndarray, start_iteration: int = 0, num_iteration: int | None = None, num_threads: int = 1,
        pred_contrib: bool = False,
    ) -> np.ndarray:  # fmt: skip
        """Sum of ``num_iteration`` trees (default: all) for each row of ``data`` [n, F], float64 [n]."""
        if pred_contrib:
            raise UserError("what the features contribute needs LightGBM: pip install 'tileseer[workflow]'")
        total = np.zeros(len(data))
        for tree in self._trees[start_iteration:][:num_iteration]:
            total += tree.values(data)
        return total


def parse(text: str) -> list[Tree]:
    """The trees of a model text, in their order."""
    return [_tree(block) for block in text.split("\nTree=")[1:]]


def _tree(block: str) -> Tree:
    lines = dict(line.split("=", 1) for line in block.split("\n\n")[0].splitlines() if "=" in line)

    def numbers(name: str, dtype: type) -> np.ndarray:
        return np.array(lines.get(name, "").split(), dtype)

    return Tree(
        numbers("split_feature", np.int64), numbers("threshold", np.float64), numbers("decision_type", np.int64),
        numbers("left_child", np.int64), numbers("right_child", np.int64), numbers("leaf_value", np.float64),
        numbers("cat_boundaries", np.int64), numbers("cat_threshold", np.int64),
    )  # fmt: skip
