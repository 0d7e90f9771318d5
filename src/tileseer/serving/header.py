"""The C++17 header that picks a kernel: formulas, trees, candidates and rules of one served model."""

from collections.abc import Sequence
from pathlib import Path

import jinja2
import lightgbm
import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.conv.operation import Operation
from tileseer.conv.problem import DIMS, INT32_MAX
from tileseer.core.templates import mistakes_named
from tileseer.gpu.hardware import Hardware
from tileseer.model.schema import Origin
from tileseer.model.trees import Tree
from tileseer.serving.cascade import Cascade, trees_of
from tileseer.serving.formulas import Writer, feature_values, literal, rule_values

TEMPLATE = "selector.hpp.j2"
LANES = 8
"""Candidates that walk down a tree side by side: what hides the latency of the loads."""


def render(
    template: Path,
    operation: Operation,
    hardware: Hardware,
    booster: lightgbm.Booster,
    short_lists: Sequence[Sequence[int]],
    pool: pd.DataFrame,
    pruned: np.ndarray,
    known: pa.Table,
    origin: Origin,
) -> str:
    """The header of a served model; ``Cascade.of`` takes the same parts.

    ``pruned`` (bool [Q]): candidates of the pruned kernel set. ``known``: ``known_problems.table``, in its order.
    """
    # Candidates of one dimensionality stand together: the loops run over those of the problem.
    order = np.argsort(pool["ndim"].to_numpy(), kind="stable")
    ordered = pool.iloc[order].reset_index(drop=True)
    cascade = Cascade.of(operation, hardware, booster, short_lists, ordered)
    position = np.argsort(order, kind="stable")
    known_dims = zip(*(known[name].to_pylist() for name in DIMS), strict=True)
    content = {
        **origin.model_dump(),
        "operation": str(operation),
        "suffix": cascade.family.header_suffix,
        "namespace": f"{operation}_{origin.arch}",
        "dims": [(name, 0 if name.startswith("pad") else 1) for name in DIMS],
        "largest_dim": INT32_MAX,
        "lanes": LANES,
        "candidates": list(zip(ordered["kernel"], ordered["split_k"], order, map(literal, pruned[order]), strict=True)),
        "short_lists": cascade.short_lists,
        "known": list(zip(known_dims, position[known["row"].to_numpy()].tolist(), strict=True)),
        **_features_and_trees(cascade, ordered["ndim"].to_numpy()),
        **_rules(cascade),
    }
    with mistakes_named(template):
        environment = jinja2.Environment(
            undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
            autoescape=False,
        )  # fmt: skip
        return environment.from_string(template.read_text(encoding="utf-8")).render(content)


def _features_and_trees(cascade: Cascade, ndims: np.ndarray) -> dict[str, object]:
    """The template's values for features and trees; only features that a tree asks for are computed."""
    names = cascade.booster.feature_name()
    trees = trees_of(cascade.booster.model_to_string())
    used = sorted({int(feature) for tree in trees for feature in tree.feature})
    row = {names[feature]: position for position, feature in enumerate(used)}
    moving, fixed = feature_values(cascade, list(row))
    writer = Writer("feature_table")
    body, paired = writer.loop({name: value for name, value in moving.items() if value.paired})
    single = {name: writer.problem(value) for name, value in moving.items() if not value.paired}
    pools = [(int(n), int((ndims < n).sum()), int((ndims == n).sum())) for n in (2, 3)]
    stride = max(1, -(-max(count for _, _, count in pools) // LANES)) * LANES
    return {
        "rows": len(row),
        "stride": stride,
        "pools": pools,
        "feature_tables": writer.tables,
        "feature_once": writer.once,
        "feature_body": body,
        "single": sorted((row[name], text) for name, text in single.items()),
        "paired": sorted((row[name], text) for name, text in paired.items()),
        "fixed": sorted((row[name], [literal(value) for value in values]) for name, values in fixed.items()),
        **_forest(trees, {feature: position * stride for position, feature in enumerate(used)}),
    }


def _rules(cascade: Cascade) -> dict[str, object]:
    rules, always = rule_values(cascade)
    writer = Writer("rule_table")
    body, results = writer.loop({str(number): rule for number, rule in enumerate(rules)})
    return {
        "rule_tables": writer.tables,
        "rule_once": writer.once,
        "rule_body": body,
        "rule_results": list(results.values()),
        "always": [literal(value) for value in always],
        "class_of": cascade.classes.tolist(),
    }


def _forest(trees: Sequence[Tree], start_of: dict[int, int]) -> dict[str, object]:
    """The nodes of all trees, breadth first: the right child stands behind the left one, a leaf leads to itself.

    So a walk is the same number of steps for every candidate, without a branch.
    """
    nodes: list[tuple[str, int, int]] = []
    leaves: list[str] = []
    begins: list[int] = []
    depths: list[int] = []
    for tree in trees:
        begin, depth = len(nodes), 0
        queue = [(0 if len(tree.feature) else -1, 0)]
        for child, steps in queue:
            depth = max(depth, steps)
            if child < 0:
                nodes.append(("std::numeric_limits<float>::infinity()", 0, len(nodes) - begin))
                leaves.append(literal(float(tree.leaf[-1 - child])))
                continue
            nodes.append((literal(_below(tree.threshold[child])), start_of[int(tree.feature[child])], len(queue)))
            leaves.append("0")
            queue += [(int(tree.left[child]), steps + 1), (int(tree.right[child]), steps + 1)]
        begins.append(begin)
        depths.append(depth)
    return {"nodes": nodes, "leaves": leaves, "trees": list(zip(begins, depths, strict=True))}


def _below(threshold: float) -> np.float32:
    """The largest float32 that is not above ``threshold``: a float32 is below both or above both."""
    near = np.float32(threshold)
    return near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf))
