"""Checking of tables that somebody wrote, YAML or JSON: each mistake is one line with file, place, reason and value."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from tileseer.core.errors import UserError, is_it, shown
from tileseer.core.yaml_files import read_yaml

Model = TypeVar("Model", bound=BaseModel)
Item = TypeVar("Item")
MOST_FAULTS = 20
"""Lines about one file."""
_REASON_OF_FAULT = {
    **dict.fromkeys(("model_type", "dict_type"), "should be an object, in braces"),
    **dict.fromkeys(("list_type", "tuple_type"), "should be a list"),
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
        faults = error.errors(include_url=False)
        if isinstance(content, dict) and _is_of_another_kind(content, model):
            fields = ", ".join(model.model_fields)
            raise UserError(f"{where}: is a file of another kind; name one with the fields {fields}") from error
        lines = [f"{where}: {line}" for line in _lines(faults, model)]
        lines[MOST_FAULTS:] = [f"{where}: {len(lines) - MOST_FAULTS:,} more faults"] * (len(lines) > MOST_FAULTS)
        raise UserError("\n".join(lines)) from error


def _is_of_another_kind(content: dict[Any, Any], model: type[BaseModel]) -> bool:
    """Return whether a table has mostly fields of another one, or one alone that is large and like none of this."""
    others = [name for name in content if name not in model.model_fields]
    if len(content) > 1 or not others:
        return len(others) > 2 * (len(content) - len(others)) + 1
    (value,) = content.values()
    return isinstance(value, dict) and len(value) > 1 and not is_it(others[0], model.model_fields)


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


def distinct(items: Sequence[Item]) -> Sequence[Item]:
    """Return the validator of a short list without repetitions."""
    for index, item in enumerate(items):
        if item in items[:index]:
            value = item.model_dump(mode="json") if isinstance(item, BaseModel) else item
            reason = f"should be no repetition of an earlier element, number {items.index(item)}: remove one of the two"
            raise wrong_below(index, value, reason)
    return items


def wrong(reason: str) -> PydanticCustomError:
    """Return the error for a validator to raise about its value, as "should be ..."."""
    return PydanticCustomError("wrong", "{reason}", {"reason": reason})


def _lines(faults: Sequence[ErrorDetails], model: type[BaseModel]) -> Iterator[str]:
    """Yield a line a cause: a misspelt field is not missing as well, and rows with the same mistake are one."""
    told = [(fault["loc"], _fault(fault, model)) for fault in faults]
    meant = {(*place[:-1], match[1]) for place, text in told if (match := re.search(r"; is it (\w+)\?$", text))}
    alike: dict[tuple[object, ...], list[str]] = {}
    # Of an object without several fields, a line names all.
    absent: dict[tuple[object, ...], list[str]] = {}
    for fault, (place, text) in zip(faults, told, strict=True):
        if fault["type"] != "missing":
            alike.setdefault((place[-1:], fault["type"], fault["msg"]), []).append(text)
        elif place not in meant:
            absent.setdefault(place[:-1], []).append(str(place[-1]))
    for parent, names in absent.items():
        field = ".".join(map(str, (*parent, ", ".join(names))))
        text = f"{field}: {'this field is' if len(names) == 1 else 'these fields are'} required"
        alike.setdefault((*names, "missing"), []).append(text)
    for first, *others in alike.values():
        yield f"{first} (and {len(others):,} more like it)" if others else first


def _fault(fault: ErrorDetails, model: type[BaseModel]) -> str:
    place = [part for part in fault["loc"] if part != "[key]"]
    words = (str(part) if re.fullmatch(r"[\w.+-]+", str(part)) else repr(part) for part in place)
    field = ".".join(words) or "the whole file"
    if fault["type"] == "extra_forbidden":
        known = _fields(model, place)
        if fault["input"] is None and (parts := re.fullmatch(r"(\w+)[:= ]+(\S+)", str(place[-1]))):
            return f"{field}: is no field with a value; write {parts[1]}: {parts[2]}, with a blank behind the colon"
        others = f"the fields here are {', '.join(known)}" if known else "remove it or correct its name"
        sections = [name for name in known if place[-1] in _fields(model, [*place[:-1], name, ""])]
        if sections:
            value = "..." if isinstance(fault["input"], dict | list) else fault["input"]
            others = f"{sections[0]} has it: write {sections[0]}: {{{place[-1]}: {value}}}"
        advice = is_it(place[-1], known) or f"; {others}"
        return f"{field}: unknown field, of value {shown(fault['input'])}{advice}"
    said = re.sub("^(Value error, |Input |String |List )|, unable to parse .*", "", fault["msg"])
    reason = _REASON_OF_FAULT.get(
        fault["type"], said.replace("at least 1 item after validation, not 0", "at least one item")
    )
    if fault["type"] in ("model_type", "dict_type") and (fields := _fields(model, [*place, ""])):
        reason = f"should be fields in braces, such as {{{fields[0]}: ...}}"
    # A table's text has lists only.
    if fault["type"] == "list_type" and isinstance(fault["input"], str | int | float):
        reason = "should be a list, in brackets"
    if fault["type"] == "literal_error" and repr(str(fault["input"])) in reason and not isinstance(fault["input"], str):
        reason += ", in quotes"
    value = list(fault["input"]) if isinstance(fault["input"], tuple) else fault["input"]
    subject = "the key " if place != list(fault["loc"]) else ""
    return f"{field}: {subject}{reason}, but it is {shown(value)}"


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
