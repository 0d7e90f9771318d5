"""The C++17 header that picks a kernel: formulas, trees, candidates and rules of one model."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from tileseer.core.errors import UserError
from tileseer.core.templates import fill_cpp_template
from tileseer.facts.operations import ELEMENT_BYTES
from tileseer.learn import trees
from tileseer.learn.evidence import LEAST_COMPARED, NEAR_PROBLEMS, STEPS_OF_AN_OCTAVE, EvidenceBounds, sizes_of
from tileseer.learn.model import Model
from tileseer.learn.model_schema import Origin
from tileseer.learn.trees import UNIT, Tree
from tileseer.libraries.costs.timing import PROBLEM_TERMS
from tileseer.libraries.features.table import Columns
from tileseer.libraries.registry import library_of_arch
from tileseer.libraries.rules import signature
from tileseer.problems.kinds import CHANNELS_OF_FEW, evidence_kind
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DEEP_LAYOUTS, DIMS, INT32_MAX, LAYOUTS
from tileseer.serve.selector import Selector
from tileseer.serve.symbols import Operand, Symbol, Writer, literal

CANDIDATES_TOGETHER = 8
"""Candidates whose features are stored together."""
WALKERS = 12
"""Walks down trees side by side: what hides the latency of the loads."""
START_SYMBOL = "start"
CONTENT = "content_of_this_header"
"""Placeholder for the digest of everything else, which names the inline namespace."""
LARGEST_OF_16_BITS = 2**16 - 1
"""Of what a node holds in 16 bits."""
WITHOUT_FORMULAS = ("reference",)
"""Feature sets that the header cannot compute to the last bit: they have logarithms and codes without an order."""

CategoryList = tuple[int, tuple[int, ...]]
"""A feature, and the categories of it that a split sends left, as bits."""
Split = tuple[int, float]
"""Row of the value that is compared, and the threshold."""


def render_header(template: Path, selector: Selector) -> str:
    """Return the header that picks as ``selector`` does."""
    model, library = selector.model, library_of_arch(selector.spec.arch)
    if model.spec.feature_set in WITHOUT_FORMULAS:
        return (
            f'#error "C++ cannot compute the features of the set {model.spec.feature_set}: train with the set of the '
            'kernels"\n'
        )
    pool = model.pool
    ndims = pool["ndim"].to_numpy()
    order = np.argsort(ndims, kind="stable")
    position = np.argsort(order, kind="stable")
    pools: list[tuple[int, ...]] = []
    places: list[np.ndarray] = []
    for ndim in (2, 3):
        own = order[ndims[order] == ndim]
        begin, first = sum(map(len, places)), int((ndims < ndim).sum())
        pools.append((ndim, begin, first, len(own)))
        # Whole groups of lanes: the last candidate fills up.
        places.append(np.concatenate([own, own[-1:].repeat(-len(own) % CANDIDATES_TOGETHER)]))
    spread = model.with_pool(np.concatenate(places))
    dims = [(name, 0 if name.startswith("pad") else 1) for name in DIMS]
    layouts = model.spec.layouts or []
    if layouts:
        dims.append(("layout", 0))
    by_ndim = [
        [code for code, layout in enumerate(names) if layout in layouts] for names in (LAYOUTS, DEEP_LAYOUTS.values())
    ]
    compared = (selector.known["timed"].to_numpy() >= LEAST_COMPARED).astype(int).tolist()
    known_dims = zip(*(selector.known[name].to_pylist() for name in model.columns), strict=True)
    rows = pool["kernel"].iloc[order], pool["split_k"].iloc[order], order, map(literal, selector.pruned[order])
    content = {
        **Origin.of(model.spec).model_dump(),
        "suffix": library.emitter.header_suffix if library.emitter else "",
        "namespace": f"{model.spec.operation}_{model.spec.arch}",
        "content": CONTENT,
        "library": model.spec.library,
        "taken": str(model.spec.taken or ""),
        "own_margins": [literal(margin) for margin in model.spec.own_margins or ()],
        "few_channels": CHANNELS_OF_FEW,
        "dims": dims,
        "layouts": [" || ".join(f"p.layout == {code}" for code in codes) or "true" for codes in by_ndim]
        * bool(layouts),
        "largest_dim": INT32_MAX,
        "lanes": CANDIDATES_TOGETHER,
        "walkers": WALKERS,
        "unit": literal(UNIT),
        "candidates": list(zip(*rows, strict=True)),
        "pools": pools,
        "stages": [(cut.trees, round(cut.margin / UNIT)) for cut in selector.cuts],
        "known": list(zip(known_dims, position[selector.known["row"].to_numpy()].tolist(), compared, strict=True)),
        **_evidence(model, selector.evidence.bounds),
        **_features_and_trees(spread, max(map(len, places)) // CANDIDATES_TOGETHER),
        **_rules(spread),
    }
    text = fill_cpp_template(template, **content)
    return text.replace(CONTENT, f"model_{hashlib.sha256(text.encode()).hexdigest()[:16]}")


def _features_and_trees(model: Model, groups: int) -> dict[str, object]:
    """Return the template's values for features and trees; only features that a tree reads are computed."""
    table = _SplitTable.of(model)
    row = {name: place for place, name in enumerate(table.features)}
    writer = Writer("feature_table")
    of_pairs = {name: value for name, value in table.moving.items() if value.paired}
    prior, start = model.spec.formula, _start_value(model)
    if start is not None:
        # The formula's time comes after the features that the trees read.
        row[START_SYMBOL], of_pairs[START_SYMBOL] = len(row), start
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
        "start": None if prior is None else (row[START_SYMBOL], literal(prior.weight)),
        **_forest(table.trees, table.splits(len(row)), len(row) + len(table.lists)),
    }


def _rules(model: Model) -> dict[str, object]:
    rules, always, classes = _rule_values(model)
    writer = Writer("rule_table")
    body, results = writer.loop({str(number): rule for number, rule in enumerate(rules)})
    return {
        "rule_tables": writer.tables,
        "rule_once": writer.once,
        "rule_body": body,
        "rule_results": list(results.values()),
        "always": [literal(value) for value in always],
        "class_of": classes.tolist(),
    }


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
    most = max(*sizes, (rows + 2) * CANDIDATES_TOGETHER)
    if most > LARGEST_OF_16_BITS or max(map(abs, leaves)) > INT32_MAX:
        raise UserError("serving: the trees are too large for the C++ selector; train smaller ones")
    return {
        "splits": [(row * CANDIDATES_TOGETHER, literal(np.float32(threshold))) for row, threshold in distinct],
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
    def of(cls, model: Model) -> Self:
        """Read the trees of a model; ``UserError`` where they need what the header has not."""
        names, grown = model.booster.feature_name(), _read_trees(model.text)
        numbers = sorted({int(feature) for tree in grown for feature in tree.feature})
        features = [names[number] for number in numbers]
        moving, fixed = _feature_values(model, features)
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
    """Return the largest float32 that is not above ``threshold``: a float32 is below both or above both."""
    near = np.float32(threshold)
    return float(near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf)))


def _feature_values(model: Model, names: Sequence[str]) -> tuple[dict[str, Operand], dict[str, np.ndarray]]:
    """Return the features ``names`` that need the problem, as symbols, and those of candidates alone, [Q] each."""
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


def _start_value(model: Model) -> Symbol | None:
    """Return the microseconds of the formula that scores start from; None where they start from 0."""
    if model.formula is None:
        return None
    problem = _as(_problem_columns(model), np.float32)
    terms = {name: problem[name] for name in PROBLEM_TERMS}
    return cast(Symbol, model.formula.microseconds(terms, model.formula.kernel))


def _inputs(model: Model) -> dict[str, Any]:
    """Return what features and rules read of a problem, as symbols; a model of one layout gets no other."""
    # Any: functions of columns are run on symbols.
    inputs: dict[str, Any] = {name: Symbol.input(name) for name in ("ndim", *model.columns)}
    return {"layout": np.zeros((), np.int64)} | inputs


def _rule_values(model: Model) -> tuple[list[Operand], np.ndarray, np.ndarray]:
    """Return the support rules on classes of kernels that they tell apart.

    Those that need the problem, as symbols; which classes pass the others, bool; the class of each candidate, int [Q].
    """
    spec = model.spec
    support = library_of_arch(spec.arch).rules
    columns, classes = support.kernel_classes(model.pool, model.hardware)
    kernel = {name: values[0] for name, values in columns.items()}
    inputs = _inputs(model)
    problem = support.read_of_problems(inputs, spec.variant, ELEMENT_BYTES[spec.dtype])
    problem |= {"signature": signature(spec.variant, spec.dtype, inputs["ndim"])}
    held = [value for _, value in support.of_problems(problem, kernel)]
    always = kernel["refused"] == 0
    for value in held:
        if not isinstance(value, Symbol):
            always &= value
    return [value for value in held if isinstance(value, Symbol)], always, classes


def _evidence(model: Model, bounds: EvidenceBounds) -> dict[str, object]:
    """Return the template's values for how a problem stands to what was measured."""
    writer, inputs = Writer("evidence_table"), _inputs(model)
    sizes = [writer.problem(size) for size in sizes_of(inputs)]
    inside, edge = bounds.squares
    return {
        "evidence_kind": writer.problem(evidence_kind(inputs)),
        "evidence_sizes": sizes,
        "evidence_once": writer.once,
        "evidence_steps": STEPS_OF_AN_OCTAVE,
        "evidence_near": NEAR_PROBLEMS,
        "evidence_inside": inside,
        "evidence_edge": edge,
    }


def _problem_columns(model: Model) -> Columns:
    """Return what the features read of problems, as symbols."""
    operation = Operation.parse(model.spec.operation)
    return model.features.set.problem_columns(_inputs(model), operation, model.hardware)


def _as(columns: Mapping[str, np.ndarray], dtype: type[np.floating]) -> dict[str, np.ndarray]:
    return {name: values.astype(dtype) for name, values in columns.items()}
