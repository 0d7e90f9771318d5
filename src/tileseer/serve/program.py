"""Formulas of features and support rules as a list of NumPy calls.

All features and rules of one problem are some hundred calls on short arrays: looking their columns up would take longer
than computing them. The list is made of the same symbols as the C++ header (``serve.symbols``): what follows from
the candidates alone is a constant, and what two features share is computed once.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Self

import numpy as np

from tileseer.serve.symbols import UFUNCS, Operand, Symbol

Value = Any
"""A number, or an array that broadcasts to problems by candidates."""
Inputs = Mapping[str, Value]
Step = tuple[int, str, str, Sequence[int]]
"""Place of the value, operation (a NumPy function, or ``cast``), type, and places of the operands."""
OPERATIONS = UFUNCS | {"where", "cast"}
_OPERATORS: dict[str, Callable[[Value, Value], Value]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "equal": operator.eq, "not_equal": operator.ne,
    "less": operator.lt, "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_,
}  # fmt: skip
"""Of NumPy's numbers an operator is several times as fast as the function that it stands for."""


class Program:
    """Computes some operands for problems; what they share is computed once."""

    def __init__(
        self,
        inputs: Mapping[str, int],
        constants: Mapping[int, np.ndarray],
        steps: Sequence[Step],
        results: Sequence[int],
    ) -> None:
        """Every value has a place: the inputs, the constants and what the steps leave."""
        self.inputs, self.constants = dict(inputs), dict(constants)
        self.steps, self.results = list(steps), list(results)
        self._values: list[Value] = [None] * (len(inputs) + len(constants) + len(steps))
        for place, value in constants.items():
            self._values[place] = value if value.ndim else value[()]
        tables = {place for place, value in constants.items() if value.ndim}
        self._calls = []
        for place, operation, dtype, of in steps:
            if tables.intersection(of):
                tables.add(place)
            # ``itemgetter`` of one place gives no tuple.
            operands = itemgetter(*of) if len(of) > 1 else itemgetter(slice(of[0], of[0] + 1))
            self._calls.append((place, _function(operation, np.dtype(dtype), place in tables), operands))

    @classmethod
    def of(cls, results: Sequence[Operand]) -> Self:
        """The program of symbols of a problem's dimensions; arrays and numbers are results, too."""
        inputs: dict[str, int] = {}
        constants: dict[int, np.ndarray] = {}
        steps: list[Step] = []
        places: dict[object, int] = {}
        followed: dict[int, int] = {}

        def place_of(value: Operand) -> int:
            if not isinstance(value, Symbol):
                return of_constant(np.asarray(value))
            # Symbols share operands: each is followed once.
            if id(value) not in followed:
                followed[id(value)] = of_symbol(value)
            return followed[id(value)]

        def of_constant(value: np.ndarray) -> int:
            # A number is a number, however often a table holds it.
            value = value.flat[0:1].reshape(()) if (value == value.flat[0]).all() else value
            place = places.setdefault((value.dtype, value.shape, value.tobytes()), len(places))
            constants[place] = value
            return place

        def of_symbol(symbol: Symbol) -> int:
            if symbol.operation == "input":
                name = symbol.operands[0]
                inputs[name] = places.setdefault(name, len(places))
                return inputs[name]
            operands = tuple(map(place_of, symbol.operands))
            key = (symbol.operation, symbol.dtype, operands)
            if key not in places:
                places[key] = len(places)
                steps.append((places[key], symbol.operation, str(symbol.dtype), operands))
            return places[key]

        of_results = [place_of(result) for result in results]
        return cls(inputs, constants, steps, of_results)

    def of_rows(self, rows: slice) -> Self:
        """The same for some of the candidates."""
        fewer = {place: value[rows] if value.ndim else value for place, value in self.constants.items()}
        return type(self)(self.inputs, fewer, self.steps, self.results)

    def run(self, inputs: Inputs) -> list[Value]:
        """The results; ``inputs`` are ``ndim`` and the dimensions: numbers of one problem, or int64 [P, 1]."""
        values = self._values.copy()
        for name, place in self.inputs.items():
            values[place] = inputs[name]
        for place, function, operands in self._calls:
            values[place] = function(*operands(values))
        return [values[place] for place in self.results]


def _function(operation: str, dtype: np.dtype[Any], is_table: bool) -> Callable[..., Value]:
    if operation not in OPERATIONS:
        raise ValueError(f"unknown operation {operation!r}")
    if dtype.kind not in "biuf":
        raise ValueError(f"{dtype} is no type of numbers")
    if operation != "cast":
        return _OPERATORS.get(operation) or getattr(np, operation)
    # Of a number the type itself makes another one several times as fast.
    return (lambda value: value.astype(dtype)) if is_table else dtype.type
