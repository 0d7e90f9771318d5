"""Reading of YAML that a user wrote; without pydantic, since most jobs need no more of a table."""

import re
from pathlib import Path
from typing import Any

import yaml

from tileseer.core.errors import UserError, shown
from tileseer.core.reading import read_utf8

DEEPEST_YAML, MOST_YAML_VALUES = 100, 100_000
_FAST_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C, where PyYAML was built with it, is ten times as fast."""
_TIME, _TEXT = re.compile(r"[-+]?[0-9_]+:|[0-9]{4}-"), "tag:yaml.org,2002:str"
"""How dates, and numbers to the base 60, begin."""


class _Loader(_FAST_LOADER):  # type: ignore[misc]
    """Refuses a key that is written twice, of which YAML readers keep the last one in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"):
            if key.value in seen:
                reason = f"the key {shown(key.value)} is written twice: remove one of the two"
                raise yaml.constructor.ConstructorError(None, None, reason, key.start_mark)
            seen.add(key.value)
        return dict(super().construct_mapping(node, deep))


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file, unchecked; a ``UserError`` says why it cannot be read."""
    return parse_yaml(read_utf8(path), str(path))


def parse_yaml(text: str, where: str) -> Any:
    """Return the content of YAML text, unchecked; ``where`` names it in messages."""
    try:
        _refuse_more_than_data(text, where)
        return yaml.load(text, Loader=_Loader)
    except yaml.constructor.ConstructorError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(f"{where}:{line}: {error.problem}") from error
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).replace('in "<unicode string>", ', "at ").split())
        mark = getattr(error, "problem_mark", None)
        if mark and "".join(text.split("\n")[mark.line : mark.line + 1]).startswith("\t"):
            reason = f"line {mark.line + 1} begins with a tab; indent with blanks"
        raise UserError(f"{where}: is not YAML: {reason}") from error


def _refuse_more_than_data(text: str, path: str) -> None:
    """Refuse YAML that is more than maps, lists, texts and numbers, or more of them than a table has.

    A tag makes an object of a text. Dates and numbers to the base 60 (``1:30``) are not what their writer meant.
    Aliases may stand for more values than there is memory.
    """
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    size, reason = 0, ""
    for event in yaml.parse(text, Loader=_FAST_LOADER):
        size += isinstance(event, yaml.NodeEvent)
        if isinstance(event, yaml.AliasEvent):
            # One that contains itself has no size yet.
            size += sizes.get(str(event.anchor), MOST_YAML_VALUES)
        elif (tag := getattr(event, "tag", None)) is not None:
            reason = f"the tag {shown(tag)} has no meaning here; write the value without it"
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, size))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor:
                sizes[anchor] = size - before
        elif isinstance(event, yaml.ScalarEvent):
            sizes |= {event.anchor: 1} if event.anchor else {}
            if event.implicit[0] and _is_time(event.value):
                reason = f"{shown(event.value)} is a date or a time to YAML; put it in quotes"
        if size > MOST_YAML_VALUES or len(open_nodes) > DEEPEST_YAML:
            reason = f"nested too deeply, or its aliases stand for more than {MOST_YAML_VALUES:,} values; flatten it"
        if reason:
            where = f"{path}:{event.start_mark.line + 1}" if event.start_mark else path
            raise UserError(f"{where}: {reason}")


def _is_time(text: str) -> bool:
    """Return whether YAML takes a plain text for a date or a number to the base 60."""
    return bool(_TIME.match(text)) and _Loader("").resolve(yaml.ScalarNode, text, (True, False)) != _TEXT
