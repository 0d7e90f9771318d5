#!/usr/bin/env python3
"""Write the table of docs/configuration.md from config/schema/config.schema.json, or check that it is up to date."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "config/schema/config.schema.json"
PAGE = ROOT / "docs/configuration.md"
BEGIN, END = "<!-- fields -->\n", "<!-- end of fields -->\n"
_BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
_PATH = "^[A-Za-z0-9_]["


def fields(schema: dict[str, Any], section: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (dotted name, schema) of every field, plain ones of a section before its sub-sections."""
    properties = section["properties"].items()
    yield from ((prefix + name, field) for name, field in properties if "$ref" not in field)
    for name, field in properties:
        if "$ref" in field:
            yield from fields(schema, schema["$defs"][field["$ref"].rpartition("/")[2]], f"{prefix}{name}.")


def kind(field: dict[str, Any]) -> str:
    """Return the type of a field in words."""
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
    """Return the table, a row a field."""
    rows = [
        (f"`{name}`", kind(field), f"`{json.dumps(field['default'])}`", _line(field["description"]))
        for name, field in fields(schema, schema)
    ]
    head = "| field | type | default | meaning |\n|---|---|---|---|\n"
    return head + "".join("| " + " | ".join(row) + " |\n" for row in rows)


def _line(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def main() -> int:
    """Rewrite the page, or with ``--check`` return 1 if that would change it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if the page is out of date")
    args = parser.parse_args()
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    wanted = before + BEGIN + table(json.loads(SCHEMA.read_text())) + END + after
    if wanted == text:
        return 0
    if args.check:
        print(f"{PAGE.name} is out of date; run: python tools/configuration_page.py", file=sys.stderr)
        return 1
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
