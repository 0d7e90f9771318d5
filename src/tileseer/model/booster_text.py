"""LightGBM models as text: a weighted sum of models is one model, whose trees are all of theirs.

So an ensemble, or a model that corrects a prior, is published, loaded and served as any other model. The text is
LightGBM's documented save format, version 4; a text of another form is refused.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tileseer.core.errors import UserError

_END = "end of trees\n"
_SCALED = re.compile(r"^(leaf_value|internal_value)=(.*)$", re.MULTILINE)
_SIZES = re.compile(r"^tree_sizes=.*$", re.MULTILINE)
_SHARED = ("num_class", "num_tree_per_iteration", "max_feature_idx", "feature_names")
"""Header lines that models have to agree in."""


@dataclass(frozen=True)
class _Parts:
    header: str
    trees: list[str]
    rest: str


def canonical(text: str) -> str:
    """The model text without the thread count, which does not belong to the model."""
    return re.sub(r"^\[num_threads: \d+\]$", "[num_threads: 0]", text, flags=re.MULTILINE)


def weighted_sum(models: Sequence[tuple[str, float]]) -> str:
    """The model whose prediction is the sum of weight * prediction of each (text, weight), in this order.

    Header, feature importances and parameters are those of the first; predictions do not depend on them.
    ``UserError`` when the models differ in their features or a text is none of LightGBM's.
    """
    parts = [_split(text) for text, _ in models]
    for part in parts[1:]:
        for field in _SHARED:
            if _field(part.header, field) != _field(parts[0].header, field):
                raise UserError(f"models to add up differ in {field}; train them with the same features")
    weighted = [_scaled(tree, weight) for part, (_, weight) in zip(parts, models, strict=True) for tree in part.trees]
    trees = [re.sub(r"^Tree=\d+", f"Tree={i}", tree, count=1) for i, tree in enumerate(weighted)]
    sizes = " ".join(str(len(tree.encode())) for tree in trees)
    # Not re.sub: the sizes are no pattern, and a sum without trees keeps its empty line.
    header = _SIZES.sub(lambda _: f"tree_sizes={sizes}", parts[0].header)
    return header + "".join(trees) + parts[0].rest


def _split(text: str) -> _Parts:
    head, found, rest = text.partition(_END)
    start = head.find("Tree=0\n")
    if not found or start < 0 or not text.startswith("tree\nversion=v4\n"):
        raise UserError("this is no LightGBM model text of version v4 with trees; train the model again")
    trees = re.split(r"(?=^Tree=\d+$)", head[start:], flags=re.MULTILINE)
    return _Parts(head[:start], [tree for tree in trees if tree], _END + rest)


def _field(header: str, name: str) -> str:
    match = re.search(rf"^{name}=(.*)$", header, re.MULTILINE)
    return match[1] if match else ""


def _scaled(tree: str, weight: float) -> str:
    if weight == 1:
        return tree

    def scale(match: re.Match[str]) -> str:
        return f"{match[1]}=" + " ".join(repr(float(value) * weight) for value in match[2].split())

    return _SCALED.sub(scale, tree)
