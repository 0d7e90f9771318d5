"""The C++17 header that picks a kernel: formulas, trees, candidates and rules of one model."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from tileseer.core.errors import UserError
from tileseer.core.templates import fill_template
from tileseer.costmodel.scores import UNIT
from tileseer.learn.model_schema import Origin
from tileseer.learn.trees import Tree
from tileseer.problems.problem import DIMS, INT32_MAX
from tileseer.serve.cascade import Cascade
from tileseer.serve.formulas import Writer, literal, rule_values, start_value
from tileseer.serve.splits import Split, SplitTable, below

TEMPLATE = "selector.hpp.j2"
LANES = 8
"""Candidates whose features are stored together."""
WALKERS = 12
"""Walks down trees side by side: what hides the latency of the loads."""
START = "start"
CONTENT = "content_of_this_header"
"""Placeholder for the digest of everything else, which names the inline namespace."""
LARGEST = 2**16 - 1
"""Of what a node holds in 16 bits."""
WITHOUT_FORMULAS = ("reference",)
"""Feature sets that the header cannot compute to the last bit: they have logarithms and codes without an order."""


def render_header(template: Path, cascade: Cascade, pruned: np.ndarray, known: pa.Table, origin: Origin) -> str:
    """The header of a served model.

    ``pruned`` (bool [Q]): candidates of the pruned kernel set. ``known``: rows of ``serving_files.KNOWN_PROBLEMS``.
    """
    chosen = cascade.model.spec.feature_set
    if chosen in WITHOUT_FORMULAS:
        return f'#error "C++ cannot compute the features of the set {chosen}: train with the set of the kernels"\n'
    pool = cascade.model.pool
    ndims = pool["ndim"].to_numpy()
    # By dimensionality, the finalists of each first.
    order = np.lexsort((~cascade.finalists, ndims))
    position = np.argsort(order, kind="stable")
    pools: list[tuple[int, ...]] = []
    places: list[np.ndarray] = []
    for ndim in (2, 3):
        own = order[ndims[order] == ndim]
        begin, first = sum(map(len, places)), int((ndims < ndim).sum())
        pools.append((ndim, begin, first, int(cascade.finalists[own].sum()), len(own)))
        # Whole groups of lanes: the last candidate fills up.
        places.append(np.concatenate([own, own[-1:].repeat(-len(own) % LANES)]))
    padded = np.concatenate(places)
    spread = cascade.of_rows(padded)
    known_dims = zip(*(known[name].to_pylist() for name in DIMS), strict=True)
    content = {
        **origin.model_dump(),
        "suffix": cascade.family.header_suffix,
        "namespace": f"{origin.operation}_{origin.arch}",
        "content": CONTENT,
        "library": cascade.model.spec.library,
        "own_margins": [literal(margin) for margin in cascade.model.spec.own_margins or ()],
        "dims": [(name, 0 if name.startswith("pad") else 1) for name in DIMS],
        "largest_dim": INT32_MAX,
        "lanes": LANES,
        "walkers": WALKERS,
        "unit": literal(UNIT),
        "candidates": list(
            zip(
                pool["kernel"].iloc[order], pool["split_k"].iloc[order], order, map(literal, pruned[order]), strict=True
            )
        ),
        "pools": pools,
        "stages": [(cut.trees, round(cut.margin / UNIT)) for cut in cascade.cuts],
        "known": list(zip(known_dims, position[known["row"].to_numpy()].tolist(), strict=True)),
        **_features_and_trees(spread, max(map(len, places)) // LANES),
        **_rules(spread),
    }
    text = fill_template(template, **content)
    return text.replace(CONTENT, f"model_{hashlib.sha256(text.encode()).hexdigest()[:16]}")


def _features_and_trees(cascade: Cascade, groups: int) -> dict[str, object]:
    """The template's values for features and trees; only features that a tree reads are computed."""
    table = SplitTable.of(cascade)
    row = {name: place for place, name in enumerate(table.features)}
    writer = Writer("feature_table")
    of_pairs = {name: value for name, value in table.moving.items() if value.paired}
    start = start_value(cascade)
    if start is not None:
        # The formula's time comes after the features that the trees read.
        row[START], of_pairs[START] = len(row), start
    body, paired = writer.loop(of_pairs)
    single = {name: writer.problem(value) for name, value in table.moving.items() if not value.paired}
    listed = sorted({number for number, _ in table.lists})
    firsts = np.cumsum([0, *(len(words) for _, words in table.lists)]).tolist()
    return {
        "rows": len(row) + len(table.lists),
        "list_codes": [table.numbers.index(number) for number in listed],
        "lists": [
            (len(row) + place, listed.index(number), firsts[place], words)
            for place, (number, words) in enumerate(table.lists)
        ],
        "groups": groups,
        "feature_tables": writer.tables,
        "feature_once": writer.once,
        "feature_body": body,
        "single": sorted((row[name], text) for name, text in single.items()),
        "paired": sorted((row[name], text) for name, text in paired.items()),
        "fixed": sorted((row[name], [literal(value) for value in values]) for name, values in table.fixed.items()),
        "start": None if cascade.formula is None else (row[START], literal(cascade.formula.weight)),
        **_forest(table.trees, table.splits(len(row), below), len(row) + len(table.lists)),
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


def _forest(trees: Sequence[Tree], splits: Sequence[Sequence[Split]], rows: int) -> dict[str, object]:
    """All trees, breadth first: at each node the number of its split, or -1 for a leaf.

    Children are in the order of their parents, so nothing else says where they are.
    """
    distinct = sorted({split for of_tree in splits for split in of_tree})
    number = {split: place for place, split in enumerate(distinct)}
    shape: list[int] = []
    leaves: list[int] = []
    sizes: list[int] = []
    for tree, of_tree in zip(trees, splits, strict=True):
        queue = [0 if of_tree else -1]
        for child in queue:
            if child < 0:
                shape.append(-1)
                leaves.append(round(float(tree.leaf[-1 - child]) / UNIT))
            else:
                shape.append(number[of_tree[child]])
                queue += [int(tree.left[child]), int(tree.right[child])]
        sizes.append(len(queue))
    if max(sizes) > LARGEST or max(map(abs, leaves)) > INT32_MAX or (rows + 2) * LANES > LARGEST:
        raise UserError("serving: the trees are too large for the C++ selector; train smaller ones")
    return {
        "splits": [(row * LANES, literal(np.float32(threshold))) for row, threshold in distinct],
        "shape": shape,
        "leaves": leaves,
        "tree_sizes": sizes,
    }
