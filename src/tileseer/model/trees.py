"""Trees of a LightGBM model text: LightGBM's own, or where it is not installed the same scores, bit for bit, in NumPy.

The text is LightGBM's documented save format. Leaf values of our models are whole multiples of ``UNIT``: sums of them
are exact, in whatever order and parts they are added.

LightGBM trusts a text: a wrong size or index ends the process, a cycle never ends. So every text is checked here first:
each field of a tree is known and has its length, each node and leaf has one parent before it, all numbers are finite.
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
OF_THREADS = {"num_threads": "0", "force_col_wise": "1", "force_row_wise": "0"}
"""Parameters that change no tree, as a model text has them."""
_OF_THREADS = re.compile(rf"^\[({'|'.join(OF_THREADS)}): \d+\]$", re.MULTILINE)
TOGETHER, MANY = 50, 4096
"""So many trees stay in a core's cache while they go over so many rows: a third less time than one tree after another
for each row."""
_ZERO = 1e-35
"""LightGBM's bound for what counts as zero."""
_CATEGORICAL, _DEFAULT_LEFT = 1, 2
_MISSING_ZERO, _MISSING_NAN = 1, 2
_DECISIONS = 12
"""Decision types are below that."""
_LARGEST = 1e9
"""Leaf values are smaller: no sum of them overflows."""
_HEADER = {
    "version": "v4", "num_class": "1", "num_tree_per_iteration": "1", "label_index": "0", "objective": "regression",
}  # fmt: skip
"""What all models of ours have at the head of the text."""
_OF_FEATURES = {"feature_names", "feature_infos"}
_TAIL = re.compile(
    r"\nfeature_importances:\n(\S+=\d+\n)*\nparameters:\n(\[\w+: .*\]\n)*\nend of parameters\n"
    r"\npandas_categorical:null\n"
)
_PER_SPLIT = (
    "split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child", "internal_value",
    "internal_weight", "internal_count",
)  # fmt: skip
_PER_LEAF = ("leaf_value", "leaf_weight", "leaf_count")
_SINGLE = ("num_leaves", "num_cat", "is_linear", "shrinkage")
_INTEGERS = {
    "split_feature", "decision_type", "left_child", "right_child", "internal_count", "leaf_count", "num_leaves",
    "num_cat", "is_linear", "cat_boundaries", "cat_threshold",
}  # fmt: skip


def load(text: str) -> lightgbm.Booster:
    """The trees of a model text; without LightGBM a ``Trees``. ``ValueError`` if it is no model text."""
    checked = Trees(text)
    try:
        import lightgbm
    except ModuleNotFoundError:
        return cast("lightgbm.Booster", checked)
    try:
        return lightgbm.Booster(model_str=text)
    except lightgbm.basic.LightGBMError as error:
        raise ValueError(str(error)) from error


def canonical(text: str) -> str:
    """The model text without the thread count, and what follows from it, which do not belong to the model."""
    return _OF_THREADS.sub(lambda found: f"[{found[1]}: {OF_THREADS[found[1]]}]", text)


def predict(booster: lightgbm.Booster, matrix: np.ndarray, threads: int) -> np.ndarray:
    """Scores of rows by all trees of a model, float64 [n]; of many rows ``TOGETHER`` trees at a time."""
    count = booster.num_trees()
    step = TOGETHER if len(matrix) >= MANY else max(count, 1)
    total = np.zeros(len(matrix))
    for first in range(0, count, step):
        total += booster.predict(matrix, start_iteration=first, num_iteration=step, num_threads=threads)
    return total


def rounded(value: float) -> float:
    """The nearest whole multiple of ``UNIT``."""
    return round(value / UNIT) * UNIT


def round_leaves(booster: lightgbm.Booster) -> lightgbm.Booster:
    """``booster``, whose leaf values become whole multiples of ``UNIT``."""
    for number, tree in enumerate(Trees(booster.model_to_string()).trees):
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
        before, _, tail = text.partition("\nend of trees\n")
        header, *blocks = before.split("\nTree=")
        if _TAIL.fullmatch(tail) is None or {"\0", "\r"} & set(text):
            raise ValueError("no whole LightGBM model text")
        lines = _lines(header.partition("\n")[2])
        self._names = lines.get("feature_names", "").split()
        sizes = " ".join(str(len(f"Tree={block}\n".encode())) for block in blocks)
        wanted = _HEADER | {"max_feature_idx": str(len(self._names) - 1), "tree_sizes": sizes}
        wrong = dict(wanted.items() - lines.items()) | dict.fromkeys(lines.keys() - wanted.keys() - _OF_FEATURES)
        _require(not wrong, " ".join(sorted(wrong)))
        _require(len(lines.get("feature_infos", "").split(" ")) == len(self._names), "feature_infos")
        self.trees = [_tree(number, block, len(self._names)) for number, block in enumerate(blocks)]

    def feature_name(self) -> list[str]:
        """Names of the columns, in their order."""
        return self._names

    def num_trees(self) -> int:
        """How many trees there are."""
        return len(self.trees)

    def predict(
        self, data: np.ndarray, start_iteration: int = 0, num_iteration: int | None = None, num_threads: int = 1,
        pred_contrib: bool = False,
    ) -> np.ndarray:  # fmt: skip
        """Sum of ``num_iteration`` trees (default: all) for each row of ``data`` [n, F], float64 [n]."""
        if pred_contrib:
            raise UserError("what the features contribute needs LightGBM: pip install 'tileseer[workflow]'")
        total = np.zeros(len(data))
        for tree in self.trees[start_iteration:][:num_iteration]:
            total += tree.values(data)
        return total


def _lines(text: str) -> dict[str, str]:
    """Fields of some lines, each of which stands there once; at a line without one LightGBM would stop."""
    pairs = [line.partition("=") for line in text.rstrip("\n").split("\n")]
    fields = {name: value for name, _, value in pairs}
    _require(
        len(fields) == len(pairs) and all(sign for _, sign, _ in pairs), "a line that is no field, or is there twice"
    )
    return fields


def _tree(number: int, block: str, features: int) -> Tree:
    first, _, rest = block.partition("\n")
    _require(first == str(number), f"tree {number}: its number")
    lines = _lines(rest)
    values = {name: _numbers(name, text) for name, text in lines.items()}
    found = {name: len(array) for name, array in values.items()}
    _require(found.get("num_leaves") == found.get("num_cat") == 1, f"tree {number}: num_leaves or num_cat")
    leaves, categories = int(values["num_leaves"][0]), int(values["num_cat"][0])
    _require(leaves > 0, f"tree {number}: num_leaves")
    lengths = dict.fromkeys(_PER_SPLIT, leaves - 1) | dict.fromkeys(_PER_LEAF, leaves) | dict.fromkeys(_SINGLE, 1)
    if leaves == 1:
        lengths["leaf_weight"] = 0
    if categories:
        words = values.get("cat_threshold", np.empty(0))
        lengths |= {"cat_boundaries": categories + 1, "cat_threshold": len(words)}
    _require(found == lengths, f"tree {number}: {' '.join(sorted(dict(found.items() ^ lengths.items())))}")
    tree = Tree(
        values["split_feature"], values["threshold"], values["decision_type"], values["left_child"],
        values["right_child"], values["leaf_value"], values.get("cat_boundaries", np.zeros(1, np.int64)),
        values.get("cat_threshold", np.empty(0, np.int64)),
    )  # fmt: skip
    _require(not values["is_linear"][0], f"tree {number}: is_linear")
    for name, sound in _rules(tree, features).items():
        _require(bool(np.all(sound)), f"tree {number}: {name}")
    return tree


def _rules(tree: Tree, features: int) -> dict[str, np.ndarray | bool]:
    """What has to hold of a tree, by the field that is wrong otherwise."""
    split, children = np.arange(len(tree.feature)), np.stack([tree.left, tree.right])
    family = np.r_[-len(tree.leaf) : 0, 1 : len(split)] if len(split) else split
    place = tree.threshold[tree.categorical]
    return {
        "split_feature": (tree.feature >= 0) & (tree.feature < features),
        "decision_type": (tree.decision >= 0) & (tree.decision < _DECISIONS),
        # Every node but the first and every leaf is the child of one node before it: so there is no cycle.
        "left_child or right_child": np.array_equal(np.sort(children, axis=None), family)
        & (children[children >= 0] > np.broadcast_to(split, children.shape)[children >= 0]),
        "leaf_value": np.abs(tree.leaf) < _LARGEST,
        "threshold": (place >= 0) & (place < len(tree.bounds) - 1) & (place == np.trunc(place)),
        "cat_boundaries": (np.diff(tree.bounds) >= 0).all() & (tree.bounds[[0, -1]] == [0, len(tree.words)]),
        "cat_threshold": (tree.words >= 0) & (tree.words < 2**32),
    }


def _numbers(name: str, text: str) -> np.ndarray:
    """Numbers of a line, int64 or float64."""
    whole = name in _INTEGERS
    # A threshold may be infinite; nothing may be NaN.
    _require(re.fullmatch("[-0-9 ]*" if whole else "[-+.einf0-9 ]*", text) is not None, name)
    values = np.array(text.split(), np.float64)
    if not whole:
        return values
    _require(bool((np.abs(values) < 2**32).all()), name)
    return values.astype(np.int64)


def _require(sound: bool, told: str) -> None:
    if not sound:
        raise ValueError(f"wrong or missing: {told}")
