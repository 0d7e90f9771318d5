"""Symbols: column arithmetic on them gives the formula instead of the value.

The features and the support rules are Python functions on columns. Called with a ``Symbol`` for what a problem
brings and with arrays for what the candidates bring, they leave the expression that a C++ selector has to compute:
everything that follows from the candidates alone has become an array, which is a table of the header.
"""

from __future__ import annotations

from collections.abc import Callable
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
        "bitwise_and", "bitwise_or", "invert", "log2", "trunc",
    }
)  # fmt: skip
"""Functions that a selector has."""

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
        """An input of the problem."""
        return cls("input", (name,), dtype, False)

    def astype(self, dtype: DTypeLike) -> Symbol:
        """The value in another type."""
        target: Dtype = np.dtype(dtype)
        return self if target == self.dtype else Symbol("cast", (self,), target, self.paired)

    def take(self, index: object) -> Symbol:
        """The value itself: which pair it belongs to is the generated loop's business."""
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
                "write it with the operations of tileseer.serve.symbols.UFUNCS"
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
    """What numpy promotes: a dtype, or int and float for numbers that adapt to the other operand."""
    if isinstance(value, bool):
        return BOOL
    return type(value) if type(value) in (int, float) else value.dtype


def _converted(value: Operand, dtype: Dtype) -> Operand:
    return value.astype(dtype) if isinstance(value, Symbol) else np.asarray(value, dtype)


def _is_paired(value: Operand) -> bool:
    return value.paired if isinstance(value, Symbol) else value.ndim > 0
