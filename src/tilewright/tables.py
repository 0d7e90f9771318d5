"""Reading checked YAML tables: a mistake in one is reported by file, place, value and reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from tilewright.errors import UserError

Model = TypeVar("Model", bound=BaseModel)


class Table(BaseModel):
    """A frozen record of a YAML table; unknown fields and values of another type are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def read(path: str | Path, model: type[Model]) -> Model:
    """Return the content of the YAML file ``path`` as ``model``; ``UserError`` where it does not fit."""
    return checked(_parse(Path(path)), model, str(path))


def checked(content: Any, model: type[Model], where: str) -> Model:
    """Return ``content`` as ``model``; a ``UserError`` names ``where``, field, value and reason."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the whole file"
        given = "" if first["type"] == "missing" else f" is {first['input']!r}"
        raise UserError(f"{where}: {field}{given}: {first['msg']}") from error


def _parse(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: is not a YAML file: {reason}") from error
