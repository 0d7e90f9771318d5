"""JSON files that cross rooms: each has one declared type, used by its writer and its readers."""

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer

from tileseer.core.atomic import write_text
from tileseer.core.json_files import json_text, read_json
from tileseer.core.strict_tables import StrictModel, validate_table

Content = TypeVar("Content", bound=BaseModel)
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
