"""Reading checked YAML tables: a mistake in one is reported by file, place, value and reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from tileseer.core.errors import UserError

Model = TypeVar("Model", bound=BaseModel)
LONGEST_SHOWN = 80
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C, where PyYAML was built with it, is ten times as fast."""


class Table(BaseModel):
    """A frozen record of a YAML table; unknown fields and values of another type are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def read(path: str | Path, model: type[Model]) -> Model:
    """Return the content of the YAML file ``path`` as ``model``; ``UserError`` where it does not fit."""
    return checked(parsed(Path(path)), model, str(path))


def checked(content: Any, model: type[Model], where: str) -> Model:
    """Return ``content`` as ``model``; the ``UserError`` has one line a fault: place, field, reason and value."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        lines = [f"{where}: {_fault(fault)}" for fault in error.errors(include_url=False)]
        raise UserError("\n".join(lines)) from error


def _fault(fault: ErrorDetails) -> str:
    field = ".".join(str(part) for part in fault["loc"]) or "the whole file"
    if fault["type"] == "missing":
        return f"{field}: this field is required"
    if fault["type"] == "extra_forbidden":
        return f"{field}: unknown field; remove it or correct its name"
    value = repr(fault["input"])
    shown = value if len(value) <= LONGEST_SHOWN else value[:LONGEST_SHOWN] + "…"
    return f"{field}: {fault['msg']}, but it is {shown}"


def parsed(path: Path) -> Any:
    """Return the content of a YAML file, unchecked; a ``UserError`` says why it cannot be read."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: is not a YAML file: {reason}") from error
