"""Symbols: column arithmetic on them gives the formula instead of the value.

The features and the support rules are Python functions on columns. Called with a ``Symbol`` for what a problem
brings and with arrays for what the candidates bring, they leave the expression that a C++ selector has to compute:
everything that follows from the candidates alone has become an array, which is a table of the header.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike

from tileseer.core.errors import UserError

Dtype = np.dtype[Any]
BOOL: Dtype = np.dtype("bool")
INT64: Dtype = np.dtype("int64")
FLOAT32: Dtype = np.dtype("float32")
FLOAT64: Dtype = np.dtype("float64")
UFUNCS = frozenset(
    {
        "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "gcd", "minimum", "maximum", "ceil",
        "floor", "sqrt", "negative", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
        "bitwise_and", "bitwise_or", "invert",
    }
)  # fmt: skip
"""Functions that a selector has."""

CPP_TYPES = {BOOL: "bool", INT64: "std::int64_t", FLOAT32: "float", FLOAT64: "double"}
_BINARY = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "equal": "==", "not_equal": "!=", "less": "<",
    "less_equal": "<=", "greater": ">", "greater_equal": ">=", "bitwise_and": "&", "bitwise_or": "|",
}  # fmt: skip
_CALLS = {"minimum": "least", "maximum": "largest", "ceil": "round_up", "floor": "round_down"}
_CALLS |= {"sqrt": "std::sqrt", "gcd": "std::gcd"}

Operand = Any
"""A ``Symbol``, an array with one value a candidate, or a number."""


@dataclass(frozen=True, eq=False)
class Symbol(NDArrayOperatorsMixin):
    """One value a problem (``paired`` false) or one a pair; ``operation`` on ``operands`` gives it.

    ``operation`` is a ufunc's name, ``where``, ``cast`` or ``input``; an input has its name as its operand.
    """

    operation: str
    operands: tuple[Operand, ...]
    dtype: Dtype
    paired: bool

    @classmethod
    def input(cls, name: str, dtype: Dtype = INT64) -> Symbol:
        """Return an input of the problem."""
        return cls("input", (name,), dtype, False)

    def astype(self, dtype: DTypeLike) -> Symbol:
        """Return the value in another type."""
        target: Dtype = np.dtype(dtype)
        return self if target == self.dtype else Symbol("cast", (self,), target, self.paired)

    def take(self, index: object) -> Symbol:
        """Return the value itself: which pair it belongs to is the generated loop's business."""
        return self

    def __bool__(self) -> bool:
        raise UserError("serving: a feature or rule branches on a value of the problem; use np.where instead")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Operand, **options: object) -> Symbol:
        name = ufunc.__name__
        if inputs and options.get("out") == (inputs[0],):
            # ``x *= y`` gives ``x`` another value.
            del options["out"]
        if method != "__call__" or options or name not in UFUNCS:
            raise UserError(
                f"serving: a feature or rule uses numpy.{name}, which no selector has; "
                "write it with the operations of tileseer.libraries.symbols.UFUNCS"
            )
        *arguments, result = ufunc.resolve_dtypes((*map(_type, inputs), None))
        operands = tuple(_converted(value, dtype) for value, dtype in zip(inputs, arguments, strict=True))
        return Symbol(name, operands, result, any(map(_is_paired, operands)))

    def __array_function__(
        self, function: Callable[..., Any], types: object, arguments: tuple[Operand, ...], options: dict[str, object]
    ) -> Operand:
        if function is np.ones_like and not options:
            return self.dtype.type(1)
        if function is np.clip and len(arguments) == 3 and not options:
            value, low, high = arguments
            return np.minimum(np.maximum(value, low), high)
        if function is np.where and len(arguments) == 3 and not options:
            condition, yes, no = arguments
            dtype = np.result_type(*(value.dtype if isinstance(value, Symbol) else value for value in (yes, no)))
            operands = (_converted(condition, BOOL), _converted(yes, dtype), _converted(no, dtype))
            return Symbol("where", operands, dtype, any(map(_is_paired, operands)))
        raise UserError(f"serving: a feature or rule uses numpy.{function.__name__}, which no selector has")


def _type(value: Operand) -> Any:
    """Return what numpy promotes: a dtype, or int and float for numbers that adapt to the other operand."""
    if isinstance(value, bool):
        return BOOL
    return type(value) if type(value) in (int, float) else value.dtype


def _converted(value: Operand, dtype: Dtype) -> Operand:
    return value.astype(dtype) if isinstance(value, Symbol) else np.asarray(value, dtype)


def _is_paired(value: Operand) -> bool:
    return value.paired if isinstance(value, Symbol) else value.ndim > 0


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
        """Return the statements of one row and, for each result, the C++ expression that holds it afterwards."""
        body: list[str] = []
        written = dict(self._names)
        texts = {name: self._text(value, body, written) for name, value in results.items()}
        return body, texts

    def problem(self, value: Operand) -> str:
        """Return the C++ expression of a value that only the problem decides."""
        return self._text(value, self.once, self._names)

    def table(self, values: np.ndarray) -> str:
        """Return the name of a table with ``values``, one entry a row; equal tables are written once."""
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
    if name == "remainder":
        return f"std::fmod({', '.join(operands)})"
    if name == "floor_divide":
        # The quotient may round up to a whole number; what is left of it, numpy takes away before it divides.
        quotient = "std::round(({0} - std::fmod({0}, {1})) / {1})"
        return quotient.format(*operands)
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
    """Return a number as C++ that reads back to the same bits."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if not np.isfinite(value):
        raise UserError(f"serving: a table of the C++ selector would hold {value}; measure or leave out that candidate")
    text = float(value).hex()
    return f"{text}f" if isinstance(value, np.float32) else text
