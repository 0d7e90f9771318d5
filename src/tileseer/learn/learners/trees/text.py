"""The text of a LightGBM model, and the nodes of its trees for those who walk them without LightGBM.

Leaf values of our models are whole multiples of ``UNIT``: sums of them are exact, in whatever order and parts they are
added.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tileseer.core.errors import UserError
from tileseer.learn.formula import UNIT

if TYPE_CHECKING:
    import lightgbm

OF_THREADS = {"num_threads": "0", "force_col_wise": "1", "force_row_wise": "0"}
"""Parameters that change no tree, as a model text has them."""
_LINE_OF_THREADS = re.compile(rf"^\[({'|'.join(OF_THREADS)}): \d+\]$", re.MULTILINE)
_UNREAD = re.compile(r"^(?:tree_sizes|leaf_weight|internal_value|internal_weight)=.*\n", re.MULTILINE)
"""Lines that no reader of ours needs; the first counts the bytes of the others."""
LARGEST_LEAF = 1000
"""A score is an efficiency or, on a formula, its logarithm: e to the 1000th is no number."""
_CATEGORICAL = 1


def load_lightgbm() -> Any:
    """Import LightGBM; ``UserError`` without the OpenMP runtime (libgomp). It takes half a second: most do without."""
    try:
        import lightgbm
    except OSError as error:
        raise UserError(f"LightGBM does not load ({error}); install the OpenMP runtime (libgomp1)") from error
    return lightgbm


def load_trees(text: str) -> lightgbm.Booster:
    """Load the trees of a model text; ``UserError`` if it is none."""
    lightgbm = load_lightgbm()
    try:
        return lightgbm.Booster(model_str=text)
    # Of JSON behind the trees it says ValueError.
    except (lightgbm.basic.LightGBMError, ValueError, RecursionError) as error:
        raise UserError(f"the trees are no LightGBM model ({error}); train the model again") from error


def feature_names(text: str) -> list[str]:
    """Return the names of the columns that the trees of a model text read."""
    line = re.search(r"^feature_names=(.*)$", text, re.MULTILINE)
    return line[1].split() if line else []


_BLOCK = re.compile(r"[0-9]+\n(?:[a-z_]+=[^\n\r\0]*\n){1,22}\n*")
"""A tree behind its word, with as many lines as LightGBM reads."""


def fault_of(text: str, features: int) -> str:
    """Return what would lead a reader of a canonical model text astray, or an empty string.

    LightGBM trusts its files: it reads wherever the nodes of a tree point to, and follows them without end.
    """
    head, *blocks = text.partition("\nend of trees\n")[0].split("\nTree=")
    fixed = {"num_class": 1, "num_tree_per_iteration": 1, "max_feature_idx": features - 1}
    for line in (f"{name}={value}" for name, value in fixed.items()):
        if head.split("\n").count(line) != 1:
            return f"there is no line {line} before the trees, or several"
    if "\nend of trees\n" not in text or "\ntree_sizes" in head:
        return "the trees have no end, or they have sizes in bytes (tree_sizes), which we never write"
    for number, block in enumerate(blocks):
        lines = block.strip("\n").split("\n")[1:]
        fields = dict(line.partition("=")[::2] for line in lines)
        if not _BLOCK.fullmatch(f"{block}\n") or len(fields) != len(lines) or fields.get("is_linear", "0") != "0":
            return f"tree {number}: its lines are not NAME=VALUES, each name once, of a tree without linear leaves"
        try:
            tree = _tree(fields)
            if not math.isfinite(float(fields.get("shrinkage", "1"))):
                raise ValueError("shrinkage")
            counts = int(fields["num_leaves"]), int(fields["num_cat"])
            fits = counts == (len(tree.leaf), len(tree.bounds) - 1)
            fault = _fault_of_tree(tree, features) if fits else "num_leaves or num_cat does not fit its lines"
        except (KeyError, ValueError, OverflowError) as error:
            fault = f"a field is missing or no number ({error})"
        if fault:
            return f"tree {number}: {fault}"
    return ""


def _fault_of_tree(tree: Tree, features: int) -> str:
    count = len(tree.feature)
    if not (np.isfinite(tree.threshold).all() and (np.abs(tree.leaf) <= LARGEST_LEAF).all()):
        return f"a threshold is no number, or a leaf is not within {LARGEST_LEAF}"
    if {len(part) for part in (tree.threshold, tree.decision, tree.left, tree.right, tree.leaf[1:])} != {count}:
        return "the numbers of nodes and leaves do not fit each other"
    if count and not 0 <= tree.feature.min() <= tree.feature.max() < features:
        return f"split_feature is none of the {features} features"
    for name, child in (("left_child", tree.left), ("right_child", tree.right)):
        # LightGBM numbers a node behind its parent, so a walk ends.
        if ((child >= count) | (child < -count - 1) | ((child >= 0) & (child <= np.arange(count)))).any():
            return f"{name} is no leaf and no node behind its parent"
    place, steps = tree.threshold[tree.categorical], np.diff(tree.bounds)
    if not ((place >= 0) & (place < len(steps))).all() or (steps < 0).any() or tree.bounds[0] != 0:
        return "cat_boundaries are no places in cat_threshold"
    return "" if tree.bounds[-1] == len(tree.words) else "cat_boundaries are no places in cat_threshold"


def canonical(text: str) -> str:
    """Return the model text without the thread count, what follows from it, and what no reader of ours needs.

    That is two fifths of the text; scores, contributions of features and counts of splits stay to the last bit.
    """
    return _LINE_OF_THREADS.sub(lambda line: f"[{line[1]}: {OF_THREADS[line[1]]}]", _UNREAD.sub("", text))


def rounded(value: float) -> float:
    """Return the nearest whole multiple of ``UNIT``."""
    return round(value / UNIT) * UNIT


def with_rounded_leaves(text: str) -> str:
    """Return the model text with leaf values that are whole multiples of ``UNIT``; its ``tree_sizes`` count others."""

    def line(found: re.Match[str]) -> str:
        return f"leaf_value={' '.join(repr(rounded(float(value))) for value in found[1].split())}"

    return re.sub(r"^leaf_value=(.*)$", line, text, flags=re.MULTILINE)


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
        """Which splits compare categories, bool."""
        return np.asarray((self.decision & _CATEGORICAL) != 0)


def nodes(text: str) -> list[Tree]:
    """Return the trees of a model text, in LightGBM's documented save format."""
    blocks = text.partition("\nend of trees\n")[0].split("\nTree=")[1:]
    return [_tree(dict(line.split("=", 1) for line in block.split("\n")[1:] if line)) for block in blocks]


def _tree(fields: dict[str, str]) -> Tree:
    def integers(name: str, default: str = "") -> np.ndarray:
        return np.array(fields.get(name, default).split(), np.int64)

    return Tree(
        feature=integers("split_feature"),
        threshold=np.array(fields.get("threshold", "").split(), np.float64),
        decision=integers("decision_type"),
        left=integers("left_child"),
        right=integers("right_child"),
        leaf=np.array(fields["leaf_value"].split(), np.float64),
        bounds=integers("cat_boundaries", "0"),
        words=integers("cat_threshold"),
    )
