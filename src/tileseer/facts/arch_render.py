"""The arch specification as a Python module of its own, for programs that do not have Tileseer."""

import json
from collections.abc import Mapping
from pathlib import Path

from tileseer.core.strict_tables import StrictModel
from tileseer.core.templates import fill_template
from tileseer.facts.arch import ArchSpecs

LINE_LENGTH = 120


def render_python(specs: ArchSpecs, template: str | Path) -> str:
    """Return a module with the tables and look-ups of ``specs``; ``template`` is a Jinja2 file.

    In the template, ``specs`` is the table and ``constant(head, value)`` writes the assignment of a literal.
    A template that is missing or broken is a ``UserError``.
    """
    return fill_template(Path(template), specs=specs, constant=_constant)


def _constant(head: str, value: object) -> str:
    return f"{head} = {_literal(value, 0, len(head) + len(' = '))}"


def _literal(value: object, indent: int, taken: int) -> str:
    """Return ``value`` as a Python literal: in one line where it fits, else one element a line.

    ``taken`` are the columns of its first line that are in use, the indent included.
    """
    opening, elements, closing = _parts(value)
    if not elements:
        return opening + closing
    line = opening + ", ".join(head + _literal(item, 0, 0) for head, item in elements) + closing
    if "\n" not in line and taken + len(line) <= LINE_LENGTH:
        return line
    inner = indent + 4
    rows = (" " * inner + head + _literal(item, inner, inner + len(head) + len(",")) + ",\n" for head, item in elements)
    return f"{opening}\n{''.join(rows)}{' ' * indent}{closing}"


def _parts(value: object) -> tuple[str, list[tuple[str, object]], str]:
    """Return opening, elements (their heads and values) and closing; an atom has no elements."""
    if isinstance(value, StrictModel):
        return f"{type(value).__name__}(", [(f"{name}=", item) for name, item in value], ")"
    if isinstance(value, Mapping):
        return "{", [(f"{_parts(key)[0]}: ", item) for key, item in value.items()], "}"
    if isinstance(value, tuple):
        return "(", [("", item) for item in value], ",)" if len(value) == 1 else ")"
    # JSON puts the double quotes that Python formatters want; the texts are printable, so both read it alike.
    return (json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)), [], ""
