"""Reading of hand-written tables, YAML or JSON: each mistake is one line with file, place, reason and value."""

import json
import re
from collections.abc import Hashable
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from tileseer.core.errors import UserError, shown
from tileseer.core.reading import read_utf8
from tileseer.core.yaml_files import read_yaml

Model = TypeVar("Model", bound=BaseModel)
Item = TypeVar("Item", bound=Hashable)
TEMPLATE_KEY = "__use_yte__"
"""With it Snakemake takes a configuration for a template."""
_REASON_OF_FAULT = {
    **dict.fromkeys(("model_type", "dict_type"), "should be an object"),
    **dict.fromkeys(("list_type", "tuple_type"), "should be a list"),
    "string_pattern_mismatch": "should have another form",
}


class StrictModel(BaseModel):
    """A frozen record of a table; unknown fields and values of another type are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)


def read_yaml_table(path: str | Path, model: type[Model]) -> Model:
    """Return the content of a YAML file as ``model``; ``UserError`` where it does not fit."""
    return validate_table(read_yaml(Path(path)), model, str(path))


def validate_table(content: Any, model: type[Model], where: str) -> Model:
    """Return ``content`` as ``model``; the ``UserError`` has one line a fault: place, field, reason and value."""
    try:
        return model.model_validate(content, context={})
    except ValidationError as error:
        lines = [f"{where}: {_fault(fault, model)}" for fault in error.errors(include_url=False)]
        raise UserError("\n".join(lines)) from error


def expected(what: str) -> WrapValidator:
    """Return the validator that reports every mistake in a value, however deep, as "should be ``what``"."""

    def check(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            raise wrong(f"should be {what}") from error

    return WrapValidator(check)


def wrong_below(place: str | int, value: object, reason: str) -> ValidationError:
    """Return the error for a validator to raise about the ``value`` at the key or index ``place`` of its own."""
    return ValidationError.from_exception_data(
        "table", [InitErrorDetails(type=wrong(reason), loc=(place,), input=value)]
    )


def distinct(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the validator of a list without repetitions."""
    seen = set()
    for index, item in enumerate(items):
        if item in seen:
            raise wrong_below(index, item, "should be no repetition of an earlier element: remove one of the two")
        seen.add(item)
    return items


def wrong(reason: str) -> PydanticCustomError:
    """Return the error for a validator to raise about its value, as "should be ..."."""
    return PydanticCustomError("wrong", "{reason}", {"reason": reason})


def _fault(fault: ErrorDetails, model: type[BaseModel]) -> str:
    place = [part for part in fault["loc"] if part != "[key]"]
    field = _place(place) or "the whole file"
    if fault["type"] == "missing":
        return f"{field}: this field is required"
    if fault["type"] == "extra_forbidden":
        known = _fields(model, place)
        near = get_close_matches(str(place[-1]), known, 1)
        others = f"the fields here are {', '.join(known)}" if known else "remove it or correct its name"
        advice = f"is it {near[0]}? {others}" if near else others
        return f"{field}: unknown field, of value {shown(fault['input'])}; {advice}"
    said = fault["msg"].removeprefix("Value error, ").removeprefix("Input ")
    reason = _REASON_OF_FAULT.get(
        fault["type"], said.replace("at least 1 item after validation, not 0", "at least one item")
    )
    # A table's text has lists only.
    value = list(fault["input"]) if isinstance(fault["input"], tuple) else fault["input"]
    subject = "the key " if place != list(fault["loc"]) else ""
    return f"{field}: {subject}{reason}, but it is {shown(value)}"


def _place(parts: list[str | int]) -> str:
    return ".".join(str(part) if re.fullmatch(r"[\w.+-]+", str(part)) else repr(part) for part in parts)


def _fields(kind: Any, place: list[str | int]) -> list[str]:
    """Return the fields of the object in which ``place`` is unknown, in a table of type ``kind``; none without help."""
    for part in place:
        if get_origin(kind) in (Union, UnionType):
            kind = next(choice for choice in get_args(kind) if choice is not type(None))
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            kind = next((argument for argument in reversed(get_args(kind)) if argument is not ...), None)
        elif part in kind.model_fields:
            kind = kind.model_fields[str(part)].annotation
        else:
            return list(kind.model_fields)
    return []


def check_config_file(path: Path) -> None:
    """Raise a ``UserError`` for a configuration that Snakemake would read in silence, or with a traceback, or run."""
    content = strict_json(read_utf8(path), str(path)) if path.suffix == ".json" else read_yaml(path)
    if not isinstance(content, dict):
        raise UserError(f"{path}: should have fields such as arch: gfx950, but it is {shown(content)}")
    if TEMPLATE_KEY in content:
        raise UserError(f"{path}: {TEMPLATE_KEY} lets the file run code; remove it, and write plain YAML")


class _Object(list[tuple[str, Any]]):
    """A JSON object as its text has it, repeated keys included."""


def strict_json(text: str, where: str) -> Any:
    """Return the content of hand-written JSON: keys sorted, those that begin with ``_`` dropped as comments.

    A key that is written twice is a mistake; the standard reader would keep the last one in silence.
    """
    try:
        return _plain(json.loads(text, object_pairs_hook=_Object), where, [])
    except json.JSONDecodeError as error:
        raise UserError(f"{where}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}") from error
    except RecursionError as error:
        raise UserError(f"{where}: nested too deeply; flatten it") from error
    except ValueError as error:
        raise UserError(f"{where}: a number is too long") from error


def _plain(value: Any, where: str, place: list[str | int]) -> Any:
    if isinstance(value, list) and not isinstance(value, _Object):
        return [_plain(item, where, [*place, index]) for index, item in enumerate(value)]
    if not isinstance(value, _Object):
        return value
    members: dict[str, Any] = {}
    for key, member in value:
        if key in members:
            raise UserError(f"{where}: {_place([*place, key])}: this key is written twice: remove one of the two")
        members[key] = _plain(member, where, [*place, key])
    return {key: members[key] for key in sorted(members) if not key.startswith("_")}
