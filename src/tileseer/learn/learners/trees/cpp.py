"""The C++ of trees: tables of features and splits for the blocks of ``trees.hpp.j2``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import pandas as pd

from tileseer.core.errors import UserError
from tileseer.learn.features import feature_set
from tileseer.learn.formula import UNIT, Formula
from tileseer.learn.learner import LANES, CppPart
from tileseer.learn.learners.trees.scorer import TreeScorer
from tileseer.learn.learners.trees.text import Tree, nodes
from tileseer.libraries.costs.timing import PROBLEM_TERMS
from tileseer.libraries.features.table import Columns
from tileseer.libraries.symbols import Operand, Symbol, Writer, literal
from tileseer.problems.operation import Operation
from tileseer.problems.problem import INT32_MAX, Problem, problem_frame

TEMPLATE = Path(__file__).with_name("trees.hpp.j2")
WALKERS = 12
"""Walks down trees side by side: what hides the latency of the loads."""
START_SYMBOL = "start"
LARGEST_OF_16_BITS = 2**16 - 1
"""Of what a node holds in 16 bits."""
WITHOUT_FORMULAS = ("reference",)
"""Feature sets that the header cannot compute to the last bit: they have logarithms and codes without an order."""

CategoryList = tuple[int, tuple[int, ...]]
"""A feature, and the categories of it that a split sends left, as bits."""
Split = tuple[int, float]
"""Row of the value that is compared, and the threshold."""


@dataclass(frozen=True)
class _Inputs:
    """What the header is made of: trees, candidates in their places, and symbols of what features read of a problem."""

    scorer: TreeScorer
    operation: Operation
    candidates: pd.DataFrame
    problem: Mapping[str, Any]

    @property
    def problem_columns(self) -> Columns:
        """What the features read of problems, as symbols."""
        features = self.scorer.features
        return features.set.problem_columns(self.problem, self.operation, features.gpu)


def part_of_header(
    scorer: TreeScorer, operation: Operation, candidates: pd.DataFrame, problem: Mapping[str, Any]
) -> CppPart | str:
    """Return what fills the blocks of ``trees.hpp.j2``; only features that a tree reads are computed."""
    name = next((name for name in WITHOUT_FORMULAS if scorer.features.set is feature_set(name)), None)
    if name is not None:
        return f"C++ cannot compute the features of the set {name}: train with the set of the kernels"
    inputs = _Inputs(scorer, operation, candidates, problem)
    table = _SplitTable.of(inputs)
    row = {name: place for place, name in enumerate(table.features)}
    writer = Writer("feature_table")
    of_pairs = {name: value for name, value in table.moving.items() if value.paired}
    prior, start = scorer.formula, _start_value(inputs)
    if start is not None:
        # The formula's time comes after the features that the trees read.
        row[START_SYMBOL], of_pairs[START_SYMBOL] = len(row), start
    body, paired = writer.loop(of_pairs)
    single = {name: writer.problem(value) for name, value in table.moving.items() if not value.paired}
    listed = sorted({number for number, _ in table.lists})
    firsts = np.cumsum([0, *(len(words) for _, words in table.lists)]).tolist()
    values = {
        "rows": len(row) + len(table.lists),
        "list_codes": [table.numbers.index(number) for number in listed],
        "lists": [
            (len(row) + place, listed.index(number), firsts[place], words)
            for place, (number, words) in enumerate(table.lists)
        ],
        "walkers": WALKERS,
        "cuts": [(cut.trees, round(cut.margin / UNIT)) for cut in scorer.cuts],
        "feature_tables": writer.tables,
        "feature_once": writer.once,
        "feature_body": body,
        "single": sorted((row[name], text) for name, text in single.items()),
        "paired": sorted((row[name], text) for name, text in paired.items()),
        "fixed": sorted((row[name], [literal(value) for value in values]) for name, values in table.fixed.items()),
        "start": None if prior is None else (row[START_SYMBOL], literal(prior.weight)),
        **_forest(table.trees, table.splits(len(row)), len(row) + len(table.lists)),
    }
    return CppPart(TEMPLATE, values)


def _forest(trees: Sequence[Tree], splits: Sequence[Sequence[Split]], rows: int) -> dict[str, object]:
    """Return all trees, breadth first: at each node the number of its split, or -1 for a leaf.

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
    most = max(*sizes, (rows + 2) * LANES)
    if most > LARGEST_OF_16_BITS or max(map(abs, leaves)) > INT32_MAX:
        raise UserError("serving: the trees are too large for the C++ selector; train smaller ones")
    return {
        "splits": [(row * LANES, literal(np.float32(threshold))) for row, threshold in distinct],
        "shape": shape,
        "leaves": leaves,
        "tree_sizes": sizes,
    }


@dataclass(frozen=True)
class _SplitTable:
    """The trees of a model, and the values that their splits compare."""

    trees: Sequence[Tree]
    numbers: list[int]
    """The features that the trees read, by their numbers in the model, rising."""
    features: list[str]
    """Their names."""
    moving: dict[str, Operand]
    """Those that depend on the problem, as symbols."""
    fixed: dict[str, np.ndarray]
    """Those of the candidates alone, [Q] each."""
    lists: list[CategoryList]
    """A row each, of 0 for the candidates that the list sends left, else 1, is compared with 0.5."""

    @classmethod
    def of(cls, inputs: _Inputs) -> Self:
        """Read the trees; ``UserError`` where they need what the header has not."""
        names, grown = inputs.scorer.features.names, _read_trees(inputs.scorer.text)
        numbers = sorted({int(feature) for tree in grown for feature in tree.feature})
        features = [names[number] for number in numbers]
        moving, fixed = feature_values(inputs, features)
        lists = [_list_of(tree, int(node)) for tree in grown for node in np.flatnonzero(tree.categorical)]
        for number, _ in lists:
            if names[number] not in fixed:
                raise UserError(f"serving: {names[number]} is categorical and depends on the problem; make it a number")
        return cls(grown, numbers, features, moving, fixed, list(dict.fromkeys(lists)))

    def splits(self, first_list: int) -> list[list[Split]]:
        """Return the split of each node of each tree; lists of categories have the rows from ``first_list``."""
        row_of = {number: row for row, number in enumerate(self.numbers)}
        row_of_list = {key: first_list + place for place, key in enumerate(self.lists)}
        return [
            [
                (row_of_list[_list_of(tree, node)], 0.5) if categorical else (row_of[number], _float32_below(threshold))
                for node, (categorical, number, threshold) in enumerate(
                    zip(tree.categorical, tree.feature.tolist(), tree.threshold.tolist(), strict=True)
                )
            ]
            for tree in self.trees
        ]


def _read_trees(text: str) -> Sequence[Tree]:
    """Return the trees of a model text after making sure that they compare numbers and category lists only."""
    grown = nodes(text)
    for tree in grown:
        if not np.isin(tree.decision[~tree.categorical], (0, 2)).all():
            raise UserError("serving: a tree has a missing-value split; train it on complete numbers")
        if (tree.leaf % UNIT).any():
            raise UserError(f"serving: leaf values are no multiples of {UNIT}; train the model again")
    return grown


def _list_of(tree: Tree, node: int) -> CategoryList:
    split = int(tree.threshold[node])
    return int(tree.feature[node]), tuple(tree.words[tree.bounds[split] : tree.bounds[split + 1]].tolist())


def _float32_below(threshold: float) -> float:
    """Return the largest float32 that is not above ``threshold``: a float32 is below both or above both."""
    near = np.float32(threshold)
    return float(near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf)))


def feature_values(inputs: _Inputs, names: Sequence[str]) -> tuple[dict[str, Operand], dict[str, np.ndarray]]:
    """Return the features ``names`` that need the problem, as symbols, and those of candidates alone, [Q] each."""
    features = inputs.scorer.features
    chosen, dtype = features.set, features.set.dtype
    problem, candidates = inputs.problem_columns, features.candidate_columns(inputs.candidates)
    every = np.arange(len(inputs.candidates))
    # One problem, at place 0, with every candidate.
    rows = (_as(problem, dtype), np.asarray(0)), (_as(candidates, dtype), every)
    pairs = chosen.pairs(*rows, features.gpu.compute_units)
    kinds = ((chosen.problem, problem), (chosen.pair, pairs))
    moving = {f.name: f.values(columns).astype(dtype) for kind, columns in kinds for f in kind if f.name in names}
    fixed = {f.name: np.asarray(f.values(candidates), dtype) for f in chosen.candidate if f.name in names}
    fixed |= {
        name: np.broadcast_to(value, every.shape) for name, value in moving.items() if not isinstance(value, Symbol)
    }
    return {name: value for name, value in moving.items() if isinstance(value, Symbol)}, fixed


def _start_value(inputs: _Inputs) -> Symbol | None:
    """Return the microseconds of the formula that scores start from; None where they start from 0."""
    scorer = inputs.scorer
    if scorer.formula is None:
        return None
    any_problem = problem_frame([Problem.from_dims(inputs.operation.variant, inputs.operation.dtype)])
    formula = Formula(any_problem, inputs.candidates, scorer.features.gpu, scorer.formula)
    problem = _as(inputs.problem_columns, np.float32)
    terms = {name: problem[name] for name in PROBLEM_TERMS}
    return cast(Symbol, formula.microseconds(terms, formula.kernel))


def _as(columns: Mapping[str, np.ndarray], dtype: type[np.floating]) -> dict[str, np.ndarray]:
    return {name: values.astype(dtype) for name, values in columns.items()}
