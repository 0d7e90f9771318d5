"""JSON, of ours and of a user: a key that is written twice is a mistake, and each mistake is one line.

A file that crosses rooms has one declared type, used by its writer and its readers.
"""

import json
import math
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer

from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError, shown
from tileseer.core.reading import read_utf8, way_to
from tileseer.core.strict_tables import StrictModel, validate_table

Content = TypeVar("Content", bound=BaseModel)
DEEPEST = 100
"""Levels of lists and objects in one another; a program may have raised the limit of Python's own reader."""
Scalar = str | int | float | bool | None
"""A value of a free-form table, such as a setting."""


class Document(StrictModel):
    """A JSON object with known fields, written in their order.

    A field whose default is None is left out while it is None; a field without a default is written as null.
    """

    @model_serializer(mode="wrap")
    def _without_absent_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        return {n: v for n, v in handler(self).items() if v is not None or fields[n].default is not None}


def read_document(path: Path, kind: type[Content]) -> Content:
    """Return the content of a JSON file as ``kind``; ``UserError`` where it is missing, damaged or of another form."""
    return validate_table(read_json(path), kind, str(path))


def write_document(path: Path, content: BaseModel) -> None:
    """Write a document as JSON, whole or not at all."""
    write_text(path, json_text(content.model_dump(mode="json")))


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, unchecked; ``UserError`` if it is missing or damaged."""
    if path.parent.is_file():
        raise UserError(f"{path.parent}: is a file; give the folder that holds {path.name}")
    if not path.exists():
        inside = sorted(each.parent.as_posix() for each in path.parent.glob(f"*/{path.name}"))
        outer = path.parent.parent
        way = f"; give one of its folders: {', '.join(inside)}" if inside else "; give the folder that has it"
        if (outer / path.name).is_file():
            way = f"; give {outer}"
        raise UserError(f"{path}: there is no such file{way if path.parent.is_dir() else way_to(path)}")
    return parse_json(read_utf8(path), str(path))


def parse_json(text: str, where: str) -> Any:
    """Return the content of JSON text, unchecked; ``where`` names it in messages."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # The standard reader would keep the last of two in silence.
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise UserError(f"{where}: the key {shown(key)} is written twice: remove one of the two")
            found[key] = value
        return found

    def number(word: str) -> float:
        if not math.isfinite(value := float(word)):
            raise ValueError(f"{word} is no number that a file may hold")
        return value

    try:
        content = json.loads(text, object_pairs_hook=members, parse_float=number, parse_constant=number)
        if "\\ud" in text.lower():
            # An escape of half a character, which JSON lets through and no table takes.
            json.dumps(content, ensure_ascii=False).encode()
        if _is_deeper(content, DEEPEST):
            raise RecursionError
        return content
    except RecursionError as error:
        raise UserError(f"{where}: nested too deeply; flatten it") from error
    except ValueError as error:
        raise UserError(f"{where}: is not JSON that can be read ({error}); correct it or make it again") from error


def _is_deeper(content: Any, levels: int) -> bool:
    """Return whether lists and objects stand in one another on more levels."""
    values = [content]
    for _ in range(levels):
        inner = [each.values() if isinstance(each, dict) else each for each in values if isinstance(each, dict | list)]
        values = [value for each in inner for value in each]
        if not values:
            return False
    return True


def json_text(content: Any) -> str:
    """Return the JSON in the order of ``content``: a spec lists its features as the model numbers them."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"
