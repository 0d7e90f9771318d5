"""The JSON schema of the configuration, for editors, and the page docs/generated/configuration.md."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tileseer.facts.config import Config

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "config/schema/config.schema.json"
PAGE = ROOT / "docs/generated/configuration.md"
HEAD = """# Configuration

Every option of `config/config.yaml`; all are optional. `make schema` writes this page from the types in the code. An
unknown field or a wrong value stops the workflow before the first job, with one line that names it. Editors can use
`config/schema/config.schema.json`. A stage sees only its own section. A list or map replaces the default as a whole.
[The tutorial](../tutorial.md#4-change-something) changes one option.

"""
_BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
_PATH = "^[A-Za-z0-9_]["


def json_schema() -> str:
    """The schema as it is committed."""
    schema = {**Config.model_json_schema(), "$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def page() -> str:
    """The page as it is committed."""
    return HEAD + table(json.loads(json_schema()))


def fields(schema: dict[str, Any], section: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """(Dotted name, schema) of every option, plain ones of a section before its sub-sections."""
    properties = [(prefix + name, field) for name, field in section["properties"].items()]
    yield from ((name, field) for name, field in properties if "$ref" not in field)
    for name, field in properties:
        if "$ref" in field:
            yield from fields(schema, schema["$defs"][field["$ref"].rpartition("/")[2]], f"{name}.")


def kind(field: dict[str, Any]) -> str:
    """Type of a field in words."""
    if "anyOf" in field:
        return " or ".join(kind(option) for option in field["anyOf"])
    if "const" in field or "enum" in field:
        return " or ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    if field["type"] == "array":
        return f"list of {kind(field['items'])}"
    if field["type"] == "object":
        return f"map to {kind(field['additionalProperties'])}"
    bounds = [f"{words} {field[bound]}" for bound, words in _BOUNDS.items() if bound in field]
    name = "relative path" if field.get("pattern", "").startswith(_PATH) else field["type"]
    return ", ".join([name, *bounds])


def table(schema: dict[str, Any]) -> str:
    """Table of the options, a row an option."""
    head = ("field", "type", "default", "meaning")
    rows = [head, tuple("---" for _ in head), *(_row(name, field) for name, field in fields(schema, schema))]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(name: str, field: dict[str, Any]) -> tuple[str, ...]:
    meaning = " ".join(field["description"].replace("``", "`").split())
    return f"`{name}`", kind(field), f"`{json.dumps(field['default'])}`", meaning
