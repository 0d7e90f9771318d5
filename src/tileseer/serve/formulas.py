"""The formulas of features and support rules as C++ statements, from running the Python ones on symbols."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from tileseer.core.errors import UserError
from tileseer.costmodel.timing import PROBLEM_TERMS
from tileseer.kernels.support import SUPPORT
from tileseer.learn.features import features
from tileseer.learn.features.table import Columns
from tileseer.problems.problem import DIMS
from tileseer.serve.cascade import Cascade
from tileseer.serve.symbols import BOOL, FLOAT32, FLOAT64, INT64, Operand, Symbol

TYPES = {BOOL: "bool", INT64: "std::int64_t", FLOAT32: "float", FLOAT64: "double"}
_BINARY = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "equal": "==", "not_equal": "!=", "less": "<",
    "less_equal": "<=", "greater": ">", "greater_equal": ">=", "bitwise_and": "&", "bitwise_or": "|",
}  # fmt: skip


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
            kind = "std::int32_t" if values.dtype == INT64 else TYPES[values.dtype]
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
            body.append(f"const {TYPES[value.dtype]} {written[key]} = {_expression(value, operands)};")
        return written[key]


def _expression(value: Symbol, operands: Sequence[str]) -> str:
    name, dtype = value.operation, TYPES[value.dtype]
    if name in _BINARY:
        return f"{operands[0]} {_BINARY[name]} {operands[1]}"
    if name in ("floor_divide", "remainder") and value.dtype == INT64:
        # Sizes are not negative, so rounding towards zero is rounding down.
        return f"{operands[0]} {'/' if name == 'floor_divide' else '%'} {operands[1]}"
    if name == "where":
        return "{} ? {} : {}".format(*operands)
    calls = {
        "minimum": "least", "maximum": "largest", "ceil": "round_up", "floor": "round_down", "sqrt": "std::sqrt",
        "gcd": "std::gcd", "cast": f"static_cast<{dtype}>",
    }  # fmt: skip
    if name in calls:
        return f"{calls[name]}({', '.join(operands)})"
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


def feature_values(cascade: Cascade, names: Sequence[str]) -> tuple[dict[str, Operand], dict[str, np.ndarray]]:
    """The features ``names`` that need the problem, as symbols, and those of the candidates alone, [Q] each."""
    chosen = features.feature_set(cascade.model.spec.feature_set)
    problem = cascade.problem_columns(_inputs())
    every = np.arange(len(cascade.classes))
    # One problem, at place 0, with every candidate.
    problems, candidates = _as(problem, chosen.dtype), _as(cascade.candidates, chosen.dtype)
    pairs = chosen.pairs((problems, np.asarray(0)), (candidates, every), cascade.model.hardware.compute_units)
    moving: dict[str, Operand] = {
        f.name: f.values(problem).astype(chosen.dtype) for f in chosen.problem if f.name in names
    }
    moving |= {f.name: f.values(pairs).astype(chosen.dtype) for f in chosen.pair if f.name in names}
    fixed = {
        f.name: np.asarray(f.values(cascade.candidates), chosen.dtype) for f in chosen.candidate if f.name in names
    }
    fixed |= {
        name: np.broadcast_to(value, every.shape) for name, value in moving.items() if not isinstance(value, Symbol)
    }
    return {name: value for name, value in moving.items() if isinstance(value, Symbol)}, fixed


def start_value(cascade: Cascade) -> Symbol | None:
    """The microseconds of the formula that scores start from."""
    if cascade.formula is None:
        return None
    problem = _as(cascade.problem_columns(_inputs()), np.float32)
    time = cascade.formula.microseconds({name: problem[name] for name in PROBLEM_TERMS}, cascade.formula.kernel)
    return cast(Symbol, time)


def rule_values(cascade: Cascade) -> tuple[list[Operand], np.ndarray]:
    """The rules that need the problem, as symbols over classes of kernels, and which classes pass the others."""
    problem = cascade.rule_columns(_inputs())
    kernel = {name: values[0] for name, values in cascade.kernel_classes.items()}
    held = [rule.holds(problem, kernel) for rule in SUPPORT[cascade.family.name].rules]
    always = np.ones(len(kernel["signature"]), bool)
    for value in held:
        if not isinstance(value, Symbol):
            always &= value
    return [value for value in held if isinstance(value, Symbol)], always


def _inputs() -> dict[str, Any]:
    # Any: functions of columns are run on symbols.
    return {name: Symbol.input(name) for name in ("ndim", *DIMS)}


def _as(columns: Columns, dtype: type[np.floating]) -> dict[str, np.ndarray]:
    return {name: values.astype(dtype) for name, values in columns.items()}
