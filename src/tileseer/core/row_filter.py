"""Filter expressions: which rows are kept, for example ``tile_m >= 64 and pipeline in (mem, compv3)``.

Python evaluates them, after each node of the syntax tree was found in the small part of the language that is allowed:
fields, whole numbers, words, comparisons, ``and or not in`` and ``+ - * // %``. (pandas' ``query`` would need the same
check, and divides by zero in silence.)
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any

from tileseer.core.errors import UserError, shown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MOST_CHARACTERS = 2000
_ALLOWED = (
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.Name, ast.Tuple, ast.Load),
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod),
)
Vocabulary = dict[str, tuple[str, ...]]
"""Fields and, of those that are text, the words that they may hold."""


def vocabulary(row: type[DataclassInstance], words: Mapping[str, Collection[object]]) -> Vocabulary:
    """Return the fields of a dataclass; ``words`` has the choices of those that are text."""
    return {item.name: tuple(map(str, words[item.name])) if item.type == "str" else () for item in fields(row)}


@dataclass(frozen=True)
class Filter:
    """A valid expression."""

    text: str
    """The expression in Python's spelling."""
    fields: frozenset[str]
    """Fields that it reads."""
    _code: CodeType = field(compare=False, repr=False)
    _words: Mapping[str, object] = field(compare=False, repr=False)

    def keeps(self, row: Mapping[str, Any]) -> bool:
        """Return whether the row is kept; one without a field that is read is not."""
        try:
            return self.fields <= row.keys() and bool(eval(self._code, {**self._words, "__builtins__": {}}, dict(row)))
        except ZeroDivisionError as error:
            raise UserError(f"filter {self.text}: it divides by zero for {dict(row)}") from error


def parse_filter(text: str, known: Vocabulary, where: str) -> Filter:
    """Read an expression; a ``UserError`` says ``where`` it is written, at which character it is wrong, and why."""
    indent = len(text) - len(text.lstrip())

    def fault(place: int, reason: str) -> UserError:
        return UserError(f"{where}: {shown(text)}, character {place + 1}: {reason}")

    if len(text) > MOST_CHARACTERS:
        raise fault(MOST_CHARACTERS, f"the expression has {len(text)} characters; {MOST_CHARACTERS} are the most")
    if odd := re.search(r"[^\w ()<>=!+\-*/%,]", text, re.ASCII):
        raise fault(odd.start(), f"{odd[0]!r} has no meaning here; words need no quotes")
    try:
        with warnings.catch_warnings():
            # What Python only warns of, such as ``1or 2``, is no expression.
            warnings.simplefilter("error")
            tree = ast.parse(text.strip(), where, "eval")
        spelled = ast.unparse(tree)
        words = {word: word for choices in known.values() for word in choices}
        names = [*known, *words]
        for check in (partial(_reason_against, names=names), partial(_reason_against_kinds, known=known)):
            for node in ast.walk(tree.body):
                if reason := check(node):
                    raise fault(getattr(node, "col_offset", 0) + indent, reason)
        code = compile(tree, where, "eval")
    # What the parser raises on a text of bounded length: faults of syntax, numbers with too many digits, and depth.
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # Place 0 stands for the end of the text, as something is missing there.
        place = (getattr(error, "offset", None) or len(text.strip()) + 1) - 1
        raise fault(place + indent, f"this is no expression: {getattr(error, 'msg', error)}") from error
    read = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return Filter(spelled, read & known.keys(), code, words)


def _reason_against_kinds(node: ast.AST, known: Vocabulary) -> str:
    """Return why a node has operands that it cannot have: words are compared with their own field alone."""
    if isinstance(node, ast.BinOp | ast.UnaryOp) and not isinstance(node.op, ast.Not):
        operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.operand]
        wrong = next((one for one in operands if not _is_number(one, known)), None)
        return f"{ast.unparse(wrong)} is no number, so nothing can be computed with it" if wrong else ""
    if isinstance(node, ast.Compare):
        left = node.left
        for sign, right in zip(node.ops, node.comparators, strict=True):
            choices = right.elts if isinstance(right, ast.Tuple) else [right]
            if isinstance(right, ast.Tuple) != isinstance(sign, ast.In | ast.NotIn) or isinstance(left, ast.Tuple):
                return "a list in brackets is read only after in and not in"
            for one in choices:
                if reason := _reason_against_pair(left, sign, one, known):
                    return reason
            left = right
    return ""


def _reason_against_pair(left: ast.expr, sign: ast.cmpop, right: ast.expr, known: Vocabulary) -> str:
    """Return why two values cannot be compared; empty if they can."""
    numbers = [_is_number(one, known) for one in (left, right)]
    words = f"{ast.unparse(left)} and {ast.unparse(right)}"
    if isinstance(right, ast.Tuple):
        return f"{ast.unparse(right)}: there are brackets inside of brackets"
    if numbers[0] != numbers[1]:
        return f"{words}: one is a number, the other a word"
    if not numbers[0] and isinstance(sign, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        return f"{words}: words are equal or not, and no numbers"
    fields = [one.id for one in (left, right) if isinstance(one, ast.Name) and known.get(one.id)]
    others = [one.id for one in (left, right) if isinstance(one, ast.Name) and one.id not in known]
    if len(fields) == len(others) == 1 and others[0] not in known[fields[0]]:
        return f"{fields[0]} is never {others[0]}; it is one of {', '.join(known[fields[0]])}"
    return ""


def _is_number(node: ast.expr, known: Vocabulary) -> bool:
    """Return whether an expression is a number, or true or false; a word of a field is neither."""
    return not isinstance(node, ast.Tuple) and not (isinstance(node, ast.Name) and known.get(node.id, ("",)))


def _reason_against(node: ast.AST, names: list[str]) -> str:
    """Return why a node is not allowed; empty if it is."""
    if isinstance(node, ast.Name) and node.id not in names:
        near = get_close_matches(node.id, names, n=1)
        meant = f" (do you mean {near[0]}?)" if near else ""
        return f"there is no field or word {node.id}{meant}; they are {', '.join(dict.fromkeys(names))}"
    if isinstance(node, ast.Compare):
        for sign, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(sign, ast.In | ast.NotIn) and not isinstance(right, ast.Tuple):
                return f"write brackets and a comma after in: ({ast.unparse(right)},)"
    if isinstance(node, _ALLOWED) or (isinstance(node, ast.Constant) and type(node.value) is int):
        return ""
    return "only fields, whole numbers, words, comparisons, and, or, not, in, + - * // % are allowed"
