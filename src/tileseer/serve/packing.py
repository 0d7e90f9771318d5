"""The arrays of ``selector.npz``: what ``serve.selector`` runs, in a form that is read in a blink."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tileseer.core.errors import UserError
from tileseer.learn.model_schema import Origin
from tileseer.learn.trees import UNIT, Tree
from tileseer.serve.cascade import Cascade
from tileseer.serve.model_values import Split, SplitTable, float32_below, rule_values, start_value
from tileseer.serve.program import Program
from tileseer.serve.selector import ABOUT, BITS, DIMENSIONALITIES, About, Forest


def selector_arrays(cascade: Cascade, pruned: np.ndarray, known: pa.Table, origin: Origin) -> dict[str, np.ndarray]:
    """The arrays by name.

    ``pruned`` (bool [Q]): candidates of the pruned kernel set. ``known``: rows of ``serving_files.KNOWN_PROBLEMS``.
    """
    pool = cascade.model.pool
    ndims = pool["ndim"].to_numpy()
    order = np.argsort(ndims, kind="stable")
    ordered = cascade.of_rows(order)
    table = SplitTable.of(ordered)
    if max(len(tree.leaf) for tree in table.trees) > BITS:
        raise UserError(f"serving: a tree has more than {BITS} leaves; train with fewer (model.overrides.num_leaves)")
    dtype = ordered.model.features.set.dtype
    number = {name: place for place, name in enumerate(table.features)}
    splits = table.splits(len(number), float32_below if dtype == np.float32 else float)
    columns = [*(table.fixed.get(name) for name in table.features), *table.lists.values()]
    thresholds = _thresholds(splits, len(columns), dtype)
    forest = Forest(thresholds)
    moving = table.moving
    single, paired = ([name for name in moving if moving[name].paired is kind] for kind in (False, True))
    start = start_value(ordered)
    rules, always, classes = rule_values(ordered)
    programs = {
        "rules": Program.of(rules),
        "features": Program.of([*(moving[name] for name in (*single, *paired)), *([] if start is None else [start])]),
    }
    own = [place for place, values in enumerate(columns) if values is not None]
    begins = np.searchsorted(ndims[order], [*DIMENSIONALITIES, DIMENSIONALITIES[-1] + 1]).tolist()
    about = {
        **origin.model_dump(),
        "source": ordered.model.spec.source,
        "weight": None if ordered.formula is None else ordered.formula.weight,
        "stages": [(cut.trees, cut.margin) for cut in ordered.cuts],
        "begins": begins,
        "single": [number[name] for name in single],
        "paired": [number[name] for name in paired],
        "programs": {name: (program.inputs, program.steps, program.results) for name, program in programs.items()},
        "candidates": pool["candidate"].iloc[order].tolist(),
        "kernels": pool["kernel"].iloc[order].tolist(),
    }
    if tuple(cascade.model.layouts) != About.model_fields["layouts"].default:
        about["layouts"] = cascade.model.layouts
    place, fields = np.argsort(order, kind="stable"), cascade.model.columns
    return {
        ABOUT: np.frombuffer(json.dumps(about, allow_nan=False).encode(), np.uint8),
        "row": order.astype(np.int32),
        "split_k": pool["split_k"].to_numpy()[order].astype(np.int32),
        "pruned": pruned[order],
        "class": classes.astype(np.int32),
        "always": always,
        "threshold": np.concatenate([np.empty(0, dtype), *thresholds]),
        "thresholds": np.array([len(values) for values in thresholds], np.int32),
        "fixed": forest.rows(own, [np.asarray(columns[place], dtype) for place in own], len(order)).astype(np.uint16),
        **_trees(table.trees, splits, forest),
        "known_dims": np.array([known[name].to_numpy() for name in fields], np.int32).reshape(len(fields), -1).T.copy(),
        "known_place": place[known["row"].to_numpy()].astype(np.int32),
        **{
            f"{name}_{number}": value
            for name, program in programs.items()
            for number, value in program.constants.items()
        },
    }


def _thresholds(splits: Sequence[Sequence[Split]], count: int, dtype: type[np.floating]) -> list[np.ndarray]:
    """The thresholds of each of ``count`` rows, rising."""
    of_row: list[set[float]] = [set() for _ in range(count)]
    for row, threshold in (split for of_tree in splits for split in of_tree):
        of_row[row].add(threshold)
    return [np.array(sorted(values), dtype) for values in of_row]


def _trees(grown: Sequence[Tree], splits: Sequence[Sequence[Split]], forest: Forest) -> dict[str, np.ndarray]:
    """Nodes and leaves as ``Forest.trees`` takes them."""
    # A value that is equal to the threshold still goes left.
    right = {
        split: int(forest.rows([split[0]], [np.asarray(split[1])], 1)[0, 0]) + 1
        for split in {split for of_tree in splits for split in of_tree}
    }
    nodes: list[tuple[int, int, int, int]] = []
    leaves = np.zeros((len(grown), BITS), np.int32)
    for number, (tree, of_tree) in enumerate(zip(grown, splits, strict=True)):
        order = _leaves(tree, 0 if of_tree else -1)
        leaves[number, : len(order)] = np.rint(tree.leaf[order] / UNIT)
        place = {leaf: bit for bit, leaf in enumerate(order)}
        for node, split in enumerate(of_tree):
            on_the_left = [place[leaf] for leaf in _leaves(tree, int(tree.left[node]))]
            nodes.append((number, right[split], on_the_left[0], on_the_left[-1] + 1))
    columns = np.array(nodes, np.int64).reshape(-1, 4).T
    kinds: dict[str, type[np.unsignedinteger[Any]]] = {
        "node_tree": np.uint16,
        "node_row": np.uint16,
        "node_begin": np.uint8,
        "node_end": np.uint8,
    }
    return {"leaf": leaves} | {
        name: _fits(column, kind) for (name, kind), column in zip(kinds.items(), columns, strict=True)
    }


def _leaves(tree: Tree, node: int) -> list[int]:
    """The leaves below a node, from left to right."""
    if node < 0:
        return [-1 - node]
    return _leaves(tree, int(tree.left[node])) + _leaves(tree, int(tree.right[node]))


def _fits(values: np.ndarray, kind: type[np.unsignedinteger[Any]]) -> np.ndarray:
    if len(values) and values.max() > np.iinfo(kind).max:
        raise UserError("serving: the trees are too large for a selector; train smaller ones")
    return values.astype(kind)
