"""What the C++ header computes of a model: what splits compare, what scores start from, and support rules.

Values that need the problem are symbols (``serve.symbols``). Those that splits compare have rows: first the features
that the trees read, later the lists of categories, each a feature of its own, of zeros and ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np

from tileseer.config.operations import ELEMENT_BYTES
from tileseer.core.errors import UserError
from tileseer.kernels.costs.timing import PROBLEM_TERMS
from tileseer.kernels.features.table import Columns
from tileseer.kernels.libraries import library_of_arch
from tileseer.kernels.rules import signature
from tileseer.learn import trees
from tileseer.learn.model import Model
from tileseer.learn.trees import UNIT, Tree
from tileseer.problems.operation import Operation
from tileseer.serve.symbols import Operand, Symbol

CategoryList = tuple[int, tuple[int, ...]]
"""A feature, and the categories of it that a split sends left, as bits."""
Split = tuple[int, float]
"""Row of the value that is compared, and the threshold."""


@dataclass(frozen=True)
class SplitTable:
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
    lists: dict[CategoryList, np.ndarray]
    """For each list of categories what is compared with 0.5: 0 for the candidates that it sends left, else 1."""

    @classmethod
    def of(cls, model: Model) -> Self:
        """Read the trees of a model; ``UserError`` where they need what the header has not."""
        names, grown = model.booster.feature_name(), _read_trees(model.text)
        numbers = sorted({int(feature) for tree in grown for feature in tree.feature})
        features = [names[number] for number in numbers]
        moving, fixed = _feature_values(model, features)
        lists: dict[CategoryList, np.ndarray] = {}
        for tree in grown:
            for node in np.flatnonzero(tree.categorical):
                name = names[tree.feature[node]]
                if name not in fixed:
                    raise UserError(f"serving: {name} is categorical and depends on the problem; make it a number")
                right = ~tree.lists(np.full(len(fixed[name]), node), fixed[name].astype(np.float64))
                lists[_list_of(tree, int(node))] = right.astype(np.float32)
        return cls(grown, numbers, features, moving, fixed, lists)

    def splits(self, first_list: int) -> list[list[Split]]:
        """The split of each node of each tree; lists of categories have the rows from ``first_list``."""
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


def _float32_below(threshold: float) -> float:
    """The largest float32 that is not above ``threshold``: a float32 is below both or above both."""
    near = np.float32(threshold)
    return float(near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf)))


def _feature_values(model: Model, names: Sequence[str]) -> tuple[dict[str, Operand], dict[str, np.ndarray]]:
    """The features ``names`` that need the problem, as symbols, and those of the candidates alone, [Q] each."""
    chosen, dtype = model.features.set, model.features.set.dtype
    problem, candidates = _problem_columns(model), model.features.candidate_columns(model.pool)
    every = np.arange(len(model.pool))
    # One problem, at place 0, with every candidate.
    rows = (_as(problem, dtype), np.asarray(0)), (_as(candidates, dtype), every)
    pairs = chosen.pairs(*rows, model.hardware.compute_units)
    kinds = ((chosen.problem, problem), (chosen.pair, pairs))
    moving = {f.name: f.values(columns).astype(dtype) for kind, columns in kinds for f in kind if f.name in names}
    fixed = {f.name: np.asarray(f.values(candidates), dtype) for f in chosen.candidate if f.name in names}
    fixed |= {
        name: np.broadcast_to(value, every.shape) for name, value in moving.items() if not isinstance(value, Symbol)
    }
    return {name: value for name, value in moving.items() if isinstance(value, Symbol)}, fixed


def start_value(model: Model) -> Symbol | None:
    """The microseconds of the formula that scores start from; None where they start from 0."""
    if model.formula is None:
        return None
    problem = _as(_problem_columns(model), np.float32)
    terms = {name: problem[name] for name in PROBLEM_TERMS}
    return cast(Symbol, model.formula.microseconds(terms, model.formula.kernel))


def _inputs(model: Model) -> dict[str, Any]:
    """What features and rules read of a problem, as symbols; a model of one layout gets no other."""
    # Any: functions of columns are run on symbols.
    inputs: dict[str, Any] = {name: Symbol.input(name) for name in ("ndim", *model.columns)}
    return {"layout": np.zeros((), np.int64)} | inputs


def rule_values(model: Model) -> tuple[list[Operand], np.ndarray, np.ndarray]:
    """The support rules on classes of kernels that they tell apart.

    Those that need the problem, as symbols; which classes pass the others, bool; the class of each candidate, int [Q].
    """
    spec = model.spec
    support = library_of_arch(spec.arch).rules
    columns, classes = support.kernel_classes(model.pool, model.hardware)
    kernel = {name: values[0] for name, values in columns.items()}
    inputs = _inputs(model)
    problem = support.read_of_problems(inputs, spec.variant, ELEMENT_BYTES[spec.dtype])
    problem |= {"signature": signature(spec.variant, spec.dtype, inputs["ndim"])}
    held = [rule.holds(problem, kernel) for rule in support.rules]
    always = np.ones(len(kernel["signature"]), bool)
    for value in held:
        if not isinstance(value, Symbol):
            always &= value
    return [value for value in held if isinstance(value, Symbol)], always, classes


def _problem_columns(model: Model) -> Columns:
    """What the features read of problems, as symbols."""
    operation = Operation.parse(model.spec.operation)
    return model.features.set.problem_columns(_inputs(model), operation, model.hardware)


def _as(columns: Mapping[str, np.ndarray], dtype: type[np.floating]) -> dict[str, np.ndarray]:
    return {name: values.astype(dtype) for name, values in columns.items()}
