"""The C++17 header that picks a kernel: formulas, trees, candidates and rules of one model."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tileseer.core.errors import UserError
from tileseer.core.templates import fill_cpp_template
from tileseer.kernels.libraries import library_of_arch
from tileseer.learn.model import Model
from tileseer.learn.model_schema import Origin
from tileseer.learn.trees import UNIT, Tree
from tileseer.problems.problem import DEEP_LAYOUTS, DIMS, INT32_MAX, LAYOUTS
from tileseer.serve.model_values import Split, SplitTable, rule_values, start_value
from tileseer.serve.selector import Selector
from tileseer.serve.symbols import BOOL, FLOAT32, FLOAT64, INT64, Operand, Symbol

TEMPLATE = "selector.hpp.j2"
CANDIDATES_TOGETHER = 8
"""Candidates whose features are stored together."""
WALKERS = 12
"""Walks down trees side by side: what hides the latency of the loads."""
START_SYMBOL = "start"
CONTENT = "content_of_this_header"
"""Placeholder for the digest of everything else, which names the inline namespace."""
LARGEST = 2**16 - 1
"""Of what a node holds in 16 bits."""
WITHOUT_FORMULAS = ("reference",)
"""Feature sets that the header cannot compute to the last bit: they have logarithms and codes without an order."""

CPP_TYPES = {BOOL: "bool", INT64: "std::int64_t", FLOAT32: "float", FLOAT64: "double"}
_BINARY = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "equal": "==", "not_equal": "!=", "less": "<",
    "less_equal": "<=", "greater": ">", "greater_equal": ">=", "bitwise_and": "&", "bitwise_or": "|",
}  # fmt: skip
_CALLS = {"minimum": "least", "maximum": "largest", "ceil": "round_up", "floor": "round_down"}
_CALLS |= {"sqrt": "std::sqrt", "gcd": "std::gcd"}


def render_header(template: Path, selector: Selector) -> str:
    """The header that picks as ``selector`` does."""
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
    known_dims = zip(*(selector.known[name].to_pylist() for name in model.columns), strict=True)
    rows = pool["kernel"].iloc[order], pool["split_k"].iloc[order], order, map(literal, selector.pruned[order])
    content = {
        **Origin.of(model.spec).model_dump(),
        "suffix": library.emitter.header_suffix if library.emitter else "",
        "namespace": f"{model.spec.operation}_{model.spec.arch}",
        "content": CONTENT,
        "library": model.spec.library,
        "own_margins": [literal(margin) for margin in model.spec.own_margins or ()],
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
        "known": list(zip(known_dims, position[selector.known["row"].to_numpy()].tolist(), strict=True)),
        **_features_and_trees(spread, max(map(len, places)) // CANDIDATES_TOGETHER),
        **_rules(spread),
    }
    text = fill_cpp_template(template, **content)
    return text.replace(CONTENT, f"model_{hashlib.sha256(text.encode()).hexdigest()[:16]}")


def _features_and_trees(model: Model, groups: int) -> dict[str, object]:
    """The template's values for features and trees; only features that a tree reads are computed."""
    table = SplitTable.of(model)
    row = {name: place for place, name in enumerate(table.features)}
    writer = Writer("feature_table")
    of_pairs = {name: value for name, value in table.moving.items() if value.paired}
    prior, start = model.spec.formula, start_value(model)
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
    rules, always, classes = rule_values(model)
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
    if max(sizes) > LARGEST or max(map(abs, leaves)) > INT32_MAX or (rows + 2) * CANDIDATES_TOGETHER > LARGEST:
        raise UserError("serving: the trees are too large for the C++ selector; train smaller ones")
    return {
        "splits": [(row * CANDIDATES_TOGETHER, literal(np.float32(threshold))) for row, threshold in distinct],
        "shape": shape,
        "leaves": leaves,
        "tree_sizes": sizes,
    }


class Writer:
    """Collects statements: what a problem brings once, what depends on the row of a table in a loop over its rows."""

    def __init__(self, prefix: str) -> None:
        """``prefix`` begins the names of the tables."""
        self._prefix = prefix
        self.once: list[str] = []
        self.tables: list[tuple[str, str, list[str]]] = []
        """C++ type, name and values of each table."""
        self._names: dict[object, str] = {}

    def loop(self, results: Mapping[str, Operand]) -> tuple[list[str], dict[str, str]]:
        """The statements of one row and, for each result, the C++ expression that holds it afterwards."""
        body: list[str] = []
        written = dict(self._names)
        texts = {name: self._text(value, body, written) for name, value in results.items()}
        return body, texts

    def problem(self, value: Operand) -> str:
        """The C++ expression of a value that only the problem decides."""
        return self._text(value, self.once, self._names)

    def table(self, values: np.ndarray) -> str:
        """The name of a table with ``values``, one entry a row; equal tables are written once."""
        key = (values.dtype, values.tobytes())
        if key not in self._names:
            self._names[key] = f"{self._prefix}_{len(self.tables)}"
            kind = "std::int32_t" if values.dtype == INT64 else CPP_TYPES[values.dtype]
            self.tables.append((kind, self._names[key], [literal(value) for value in values]))
        return self._names[key]

    def _text(self, value: Operand, body: list[str], written: dict[object, str]) -> str:
        if not isinstance(value, Symbol):
            value = np.asarray(value)
            if value.ndim == 0 or (value == value.flat[0]).all():
                return literal(value.flat[0])
            name = self.table(value)
            written[value.dtype, value.tobytes()] = name
            return f"{name}[row]"
        if value.operation == "input":
            name = value.operands[0]
            return name if name == "ndim" else f"std::int64_t{{problem.{name}}}"
        # What only the problem decides is computed before the loop.
        if not value.paired and body is not self.once:
            text = self._text(value, self.once, self._names)
            written.update(self._names)
            return text
        operands = [self._text(operand, body, written) for operand in value.operands]
        key = (value.operation, value.dtype, *operands)
        if key not in written:
            written[key] = f"{'pair' if value.paired else 'value'}_{len(written)}"
            body.append(f"const {CPP_TYPES[value.dtype]} {written[key]} = {_expression(value, operands)};")
        return written[key]


def _expression(value: Symbol, operands: Sequence[str]) -> str:
    name = value.operation
    if name in _BINARY:
        return f"{operands[0]} {_BINARY[name]} {operands[1]}"
    if name in ("floor_divide", "remainder") and value.dtype == INT64:
        # Sizes are not negative, so rounding towards zero is rounding down.
        return f"{operands[0]} {'/' if name == 'floor_divide' else '%'} {operands[1]}"
    if name == "where":
        return "{} ? {} : {}".format(*operands)
    if name == "cast":
        return f"static_cast<{CPP_TYPES[value.dtype]}>({operands[0]})"
    if name in _CALLS:
        return f"{_CALLS[name]}({', '.join(operands)})"
    if name in ("negative", "invert") and (name == "negative" or value.dtype == BOOL):
        return f"{'-' if name == 'negative' else '!'}{operands[0]}"
    raise UserError(f"serving: the C++ selector has no {name} of {value.dtype}")


def literal(value: Any) -> str:
    """A number as C++ that reads back to the same bits."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if not np.isfinite(value):
        raise UserError(f"serving: a table of the C++ selector would hold {value}; measure or leave out that candidate")
    text = float(value).hex()
    return f"{text}f" if isinstance(value, np.float32) else text
