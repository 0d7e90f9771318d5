"""Filter expressions, which say what rows of a table are kept: ``tile_m >= 64 and pipeline in (mem, compv3)``.

The text is read by Python's own parser into a syntax tree, of which a small part is accepted and rebuilt here; nothing
of it is ever evaluated as Python. Fields are known with their types, so a misspelt one is an error and no empty result.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from tileseer.core.errors import UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_LENGTH = 2000
MAX_DEPTH = 50
"""Bounds on a text, so that none exhausts the parser."""
LONGEST_SHOWN = 100
_ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[int, int], int]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
}
_COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_OPERATION: dict[str, Callable[[Any, Any], Any]] = {
    text: function for text, function in (*_ARITHMETIC.values(), *_COMPARISONS.values())
}

Kind = type[int] | type[bool] | tuple[str, ...]
"""What a field holds: a whole number, yes or no, or one of some words."""
Row = Mapping[str, Any]


def kinds(row: type[DataclassInstance], words: Mapping[str, Collection[object]]) -> dict[str, Kind]:
    """Return what the fields of a dataclass hold; ``words`` has the choices of those that are text."""
    known: dict[str, Kind] = {"int": int, "bool": bool}
    return {
        field.name: known[str(field.type)] if str(field.type) in known else tuple(map(str, words[field.name]))
        for field in fields(row)
    }


@dataclass(frozen=True)
class Number:
    """A whole number."""

    value: int

    def __str__(self) -> str:
        return str(self.value)

    def of(self, row: Row) -> int:
        """Return the number."""
        return self.value


@dataclass(frozen=True)
class Word:
    """A word that a field may hold."""

    value: str

    def __str__(self) -> str:
        return self.value

    def of(self, row: Row) -> str:
        """Return the word."""
        return self.value


@dataclass(frozen=True)
class Field:
    """A field of the row; one that holds yes or no is a condition by itself."""

    name: str

    def __str__(self) -> str:
        return self.name

    def of(self, row: Row) -> Any:
        """Return what the row holds."""
        return row[self.name]


@dataclass(frozen=True)
class Binary:
    """Arithmetic or a comparison of two values."""

    operation: str
    left: Node
    right: Node

    def __str__(self) -> str:
        return f"({self.left} {self.operation} {self.right})"

    def of(self, row: Row) -> Any:
        """Return the result."""
        return _OPERATION[self.operation](self.left.of(row), self.right.of(row))


@dataclass(frozen=True)
class Among:
    """A value is, or is not, one of some."""

    value: Node
    choices: tuple[Number | Word, ...]
    negated: bool

    def __str__(self) -> str:
        choices = "".join(f"{choice}, " for choice in self.choices).rstrip()
        return f"({self.value} {'not in' if self.negated else 'in'} ({choices}))"

    def of(self, row: Row) -> bool:
        """Return whether it holds."""
        return (self.value.of(row) in [choice.value for choice in self.choices]) != self.negated


@dataclass(frozen=True)
class Not:
    """The opposite of a condition."""

    condition: Node

    def __str__(self) -> str:
        return f"(not {self.condition})"

    def of(self, row: Row) -> bool:
        """Return whether it holds."""
        return not self.condition.of(row)


@dataclass(frozen=True)
class Joined:
    """Conditions that must all hold (``and``), or any of them (``or``)."""

    word: str
    conditions: tuple[Node, ...]

    def __str__(self) -> str:
        return "(" + f" {self.word} ".join(map(str, self.conditions)) + ")"

    def of(self, row: Row) -> bool:
        """Return whether it holds; what is decided is not read further."""
        holds = (condition.of(row) for condition in self.conditions)
        return all(holds) if self.word == "and" else any(holds)


Node = Number | Word | Field | Binary | Among | Not | Joined


@dataclass(frozen=True)
class Filter:
    """An expression that was understood."""

    condition: Node
    reads: frozenset[str]
    """Fields that it reads."""

    def __str__(self) -> str:
        return str(self.condition)

    def keeps(self, row: Row) -> bool:
        """Tell whether the row is kept; one without a field that is read is not."""
        try:
            return self.reads <= row.keys() and bool(self.condition.of(row))
        except ZeroDivisionError as error:
            raise UserError(f"filter {self}: it divides by zero for {dict(row)}") from error


def parse(text: str, known: Mapping[str, Kind], where: str) -> Filter:
    """Read an expression over the fields ``known``.

    A ``UserError`` says ``where`` it stands, at which character the fault is, and what is allowed there.
    """
    reader = _Reader(text, known, where)
    if len(text) > MAX_LENGTH:
        raise reader.fault(MAX_LENGTH, f"the expression has {len(text)} characters; {MAX_LENGTH} are the most")
    if not text.strip():
        raise reader.fault(0, "the expression is empty; leave it out to keep everything")
    odd = re.search(r"[^\w ()<>=!+\-*/%,]", text, re.ASCII)
    if odd:
        raise reader.fault(odd.start(), f"{odd[0]!r} has no meaning here; words need no quotes")
    try:
        with warnings.catch_warnings():
            # What Python only warns of, such as ``1or 2``, is no expression.
            warnings.simplefilter("error")
            # Leading blanks would be an indentation.
            tree = ast.parse(text.strip(), mode="eval").body
    # What the parser raises on a text of bounded length: faults of syntax, numbers with too many digits, and depth.
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # Place 0 stands for the end of the text, as something is missing there.
        place = (getattr(error, "offset", None) or len(text.strip()) + 1) - 1
        raise reader.fault(place + reader.indent, f"this is no expression: {getattr(error, 'msg', error)}") from error
    reader.refuse_depth(tree)
    return Filter(reader.condition(tree), frozenset(reader.reads))


class _Reader:
    """Turns the syntax tree into ours; what is not ours is refused."""

    def __init__(self, text: str, known: Mapping[str, Kind], where: str) -> None:
        self.text = text
        self.known = known
        self.where = where
        self.indent = len(text) - len(text.lstrip())
        self.reads: set[str] = set()

    def fault(self, place: int, told: str) -> UserError:
        shown = self.text if len(self.text) <= LONGEST_SHOWN else f"{self.text[:LONGEST_SHOWN]}..."
        return UserError(f"{self.where}: {shown!r}, character {place + 1}: {told}")

    def at(self, tree: ast.expr, told: str) -> UserError:
        return self.fault(tree.col_offset + self.indent, told)

    def refuse_depth(self, tree: ast.expr) -> None:
        """Keep the recursion of all that follows short."""
        waiting: list[tuple[ast.AST, int]] = [(tree, 1)]
        for node, depth in waiting:
            if isinstance(node, ast.expr) and depth > MAX_DEPTH:
                raise self.at(node, f"more than {MAX_DEPTH} levels; write it with fewer brackets and signs")
            waiting += [(child, depth + 1) for child in ast.iter_child_nodes(node)]

    def condition(self, tree: ast.expr) -> Node:
        """Return what holds or does not."""
        if isinstance(tree, ast.BoolOp):
            word = "and" if isinstance(tree.op, ast.And) else "or"
            return Joined(word, tuple(self.condition(part) for part in tree.values))
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
            return Not(self.condition(tree.operand))
        if isinstance(tree, ast.Compare):
            return self.comparisons(tree)
        if isinstance(tree, ast.Name):
            if self.kind(tree) is not bool:
                raise self.at(tree, f"{tree.id} is not yes or no; compare it with something")
            return self.field(tree)
        raise self.at(tree, "a condition is needed: a comparison, or a field that is yes or no")

    def comparisons(self, tree: ast.Compare) -> Node:
        """Return one comparison, or all of a chain such as ``64 <= tile_m <= 256``."""
        sides = [tree.left, *tree.comparators]
        parts = [self.comparison(*part) for part in zip(sides, tree.ops, tree.comparators, strict=False)]
        return parts[0] if len(parts) == 1 else Joined("and", tuple(parts))

    def comparison(self, left: ast.expr, kind: ast.cmpop, right: ast.expr) -> Node:
        if isinstance(kind, (ast.In, ast.NotIn)):
            choices = right.elts if isinstance(right, ast.Tuple) else [right]
            if not choices:
                raise self.at(right, "there is nothing between the brackets")
            words = self.words(left)
            listed = tuple(self.word(choice, words) if words else self.constant(choice) for choice in choices)
            return Among(self.side(left, ()), listed, isinstance(kind, ast.NotIn))
        if type(kind) not in _COMPARISONS:
            raise self.at(right, "compare by ==, !=, <, <=, >, >=, in or not in")
        sign, _ = _COMPARISONS[type(kind)]
        words = self.words(left) or self.words(right)
        if words and sign not in ("==", "!="):
            raise self.at(left, f"words are equal or not; {sign} is for numbers")
        return Binary(sign, self.side(left, words), self.side(right, words))

    def side(self, tree: ast.expr, words: tuple[str, ...]) -> Node:
        """Return one side of a comparison; ``words``: what it may be, if the other side is a field of words."""
        if isinstance(tree, ast.Name) and self.words(tree):
            return self.field(tree)
        return self.word(tree, words) if words else self.number(tree)

    def word(self, tree: ast.expr, words: tuple[str, ...]) -> Word:
        if isinstance(tree, ast.Name) and tree.id in words:
            return Word(tree.id)
        raise self.at(tree, f"this is not one of {', '.join(words)}")

    def constant(self, tree: ast.expr) -> Number:
        number = self.number(tree)
        if not isinstance(number, Number):
            raise self.at(tree, "between the brackets are numbers")
        return number

    def number(self, tree: ast.expr) -> Node:
        """Return a number, a field of numbers, or arithmetic on them."""
        if isinstance(tree, ast.Constant) and type(tree.value) is int:
            return Number(tree.value)
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
            return Number(-self.constant(tree.operand).value)
        if isinstance(tree, ast.BinOp) and type(tree.op) in _ARITHMETIC:
            sign, _ = _ARITHMETIC[type(tree.op)]
            return Binary(sign, self.number(tree.left), self.number(tree.right))
        if isinstance(tree, ast.Name):
            kind = self.kind(tree)
            if kind is bool:
                raise self.at(tree, f"{tree.id} is yes or no: write {tree.id} or not {tree.id}")
            if kind is not int:
                raise self.at(tree, f"{tree.id} is a word: compare it by ==, != or in")
            return self.field(tree)
        raise self.at(tree, "a whole number or a field is needed, or + - * // % of them")

    def field(self, tree: ast.Name) -> Field:
        self.reads.add(tree.id)
        return Field(tree.id)

    def kind(self, tree: ast.Name) -> Kind:
        if tree.id not in self.known:
            near = get_close_matches(tree.id, self.known, n=1)
            meant = f" (do you mean {near[0]}?)" if near else ""
            raise self.at(tree, f"there is no field {tree.id}{meant}; the fields are {', '.join(self.known)}")
        return self.known[tree.id]

    def words(self, tree: ast.expr) -> tuple[str, ...]:
        """Return what a field of words may hold; empty for everything else."""
        kind = self.known.get(tree.id) if isinstance(tree, ast.Name) else None
        return kind if isinstance(kind, tuple) else ()
