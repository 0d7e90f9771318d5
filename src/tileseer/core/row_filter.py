"""Filter expressions: which rows of a table are kept, for example ``tile_m >= 64 and pipeline in (mem, compv3)``.

Python's own parser reads the text into a syntax tree. A small part of that language is accepted, and nothing is ever
evaluated as Python. Fields are known with their types, so a misspelt one is an error and no empty result.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from tileseer.core.errors import UserError, shown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_LENGTH = 2000
MAX_DEPTH = 50
"""Bounds on a text, so that none exhausts the parser."""
_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

Kind = type[int] | type[bool] | tuple[str, ...]
"""What a field holds: a whole number, yes or no, or one of some words."""
Row = Mapping[str, Any]
_Value = Callable[[Row], Any]


def kinds(row: type[DataclassInstance], words: Mapping[str, Collection[object]]) -> dict[str, Kind]:
    """Kind of each field of a dataclass; ``words`` has the choices of those that are text."""
    known: dict[str, Kind] = {"int": int, "bool": bool}
    return {
        field.name: known[str(field.type)] if str(field.type) in known else tuple(map(str, words[field.name]))
        for field in fields(row)
    }


@dataclass(frozen=True)
class Filter:
    """An expression that was understood."""

    text: str
    """The expression in Python's spelling."""
    reads: frozenset[str]
    """Fields that it reads."""
    _condition: _Value = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.text

    def keeps(self, row: Row) -> bool:
        """Whether the row is kept; one without a field that is read is not."""
        try:
            return self.reads <= row.keys() and bool(self._condition(row))
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
    condition = reader.condition(tree)
    return Filter(ast.unparse(tree), frozenset(reader.reads), condition)


class _Reader:
    """Turns the accepted part of a syntax tree into functions of a row; everything else is an error."""

    def __init__(self, text: str, known: Mapping[str, Kind], where: str) -> None:
        self.text = text
        self.known = known
        self.where = where
        self.indent = len(text) - len(text.lstrip())
        self.reads: set[str] = set()

    def fault(self, place: int, told: str) -> UserError:
        return UserError(f"{self.where}: {shown(self.text)}, character {place + 1}: {told}")

    def at(self, tree: ast.expr, told: str) -> UserError:
        return self.fault(tree.col_offset + self.indent, told)

    def refuse_depth(self, tree: ast.expr) -> None:
        """Keep the recursion of all that follows short."""
        waiting: list[tuple[ast.AST, int]] = [(tree, 1)]
        for node, depth in waiting:
            if isinstance(node, ast.expr) and depth > MAX_DEPTH:
                raise self.at(node, f"more than {MAX_DEPTH} levels; write it with fewer brackets and signs")
            waiting += [(child, depth + 1) for child in ast.iter_child_nodes(node)]

    def condition(self, tree: ast.expr) -> _Value:
        """What holds or does not."""
        match tree:
            case ast.BoolOp(op=op, values=parts):
                conditions = [self.condition(part) for part in parts]
                decide = all if isinstance(op, ast.And) else any
                return lambda row: decide(condition(row) for condition in conditions)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                condition = self.condition(operand)
                return lambda row: not condition(row)
            case ast.Compare(left=left, ops=ops, comparators=rights):
                # A chain such as ``64 <= tile_m <= 256``.
                compared = [self.comparison(*part) for part in zip([left, *rights[:-1]], ops, rights, strict=True)]
                return lambda row: all(holds(row) for holds in compared)
            case ast.Name(id=name):
                if self.kind(tree) is not bool:
                    raise self.at(tree, f"{name} is not yes or no; compare it with something")
                return self.field(tree)
        raise self.at(tree, "a condition is needed: a comparison, or a field that is yes or no")

    def comparison(self, left: ast.expr, sign: ast.cmpop, right: ast.expr) -> _Value:
        if isinstance(sign, ast.In | ast.NotIn):
            return self.among(left, right, isinstance(sign, ast.NotIn))
        if type(sign) not in _COMPARISONS:
            raise self.at(right, "compare by ==, !=, <, <=, >, >=, in or not in")
        words = self.words(left) or self.words(right)
        if words and not isinstance(sign, ast.Eq | ast.NotEq):
            raise self.at(left, "words are equal or not; <, <=, > and >= are for numbers")
        holds, first, second = _COMPARISONS[type(sign)], self.side(left, words), self.side(right, words)
        return lambda row: holds(first(row), second(row))

    def among(self, left: ast.expr, right: ast.expr, negated: bool) -> _Value:
        choices = right.elts if isinstance(right, ast.Tuple) else [right]
        if not choices:
            raise self.at(right, "there is nothing between the brackets")
        words = self.words(left)
        value, listed = self.side(left, ()), [self.side(choice, words) for choice in choices]
        return lambda row: any(value(row) == choice(row) for choice in listed) != negated

    def side(self, tree: ast.expr, words: tuple[str, ...]) -> _Value:
        """One side of a comparison; ``words``: what it may be, if the other side is a field of words."""
        if isinstance(tree, ast.Name) and self.words(tree):
            return self.field(tree)
        if not words:
            return self.number(tree)
        if not (isinstance(tree, ast.Name) and tree.id in words):
            raise self.at(tree, f"this is not one of {', '.join(words)}")
        word = tree.id
        return lambda row: word

    def number(self, tree: ast.expr) -> _Value:
        """A number, a field of numbers, or arithmetic on them."""
        match tree:
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                return lambda row: number
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                positive = self.number(operand)
                return lambda row: -positive(row)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                function, first, second = _ARITHMETIC[type(op)], self.number(left), self.number(right)
                return lambda row: function(first(row), second(row))
            case ast.Name(id=name):
                kind = self.kind(tree)
                if kind is bool:
                    raise self.at(tree, f"{name} is yes or no: write {name} or not {name}")
                if kind is not int:
                    raise self.at(tree, f"{name} is a word: compare it by ==, != or in")
                return self.field(tree)
        raise self.at(tree, "a whole number or a field is needed, or + - * // % of them")

    def field(self, tree: ast.Name) -> _Value:
        self.reads.add(tree.id)
        return operator.itemgetter(tree.id)

    def kind(self, tree: ast.Name) -> Kind:
        if tree.id not in self.known:
            near = get_close_matches(tree.id, self.known, n=1)
            meant = f" (do you mean {near[0]}?)" if near else ""
            raise self.at(tree, f"there is no field {tree.id}{meant}; the fields are {', '.join(self.known)}")
        return self.known[tree.id]

    def words(self, tree: ast.expr) -> tuple[str, ...]:
        """What a field of words may hold; empty for everything else."""
        kind = self.known.get(tree.id) if isinstance(tree, ast.Name) else None
        return kind if isinstance(kind, tuple) else ()
