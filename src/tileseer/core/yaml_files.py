"""Reading of YAML and other text that a user wrote; without pydantic, since most jobs need no more of a table."""

from pathlib import Path
from typing import Any

import yaml

from tileseer.core.errors import UserError, shown

DEEPEST_YAML, LARGEST_YAML = 100, 1_000_000
_FAST_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C, where PyYAML was built with it, is ten times as fast."""


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
        _refuse_bombs(text, where)
        return yaml.load(text, Loader=_Loader)
    except yaml.constructor.ConstructorError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(f"{where}:{line}: {error.problem}") from error
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).replace('in "<unicode string>", ', "at ").split())
        raise UserError(f"{where}: is not YAML: {reason}") from error


def _refuse_bombs(text: str, path: str) -> None:
    """Refuse YAML that nests too deeply for the reader, or that grows beyond all measure when aliases are followed."""
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    size = 0
    for event in yaml.parse(text, Loader=_FAST_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, size))
        elif isinstance(event, yaml.AliasEvent):
            # One that contains itself has no size yet.
            size += sizes.get(str(event.anchor), LARGEST_YAML)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor:
                sizes[anchor] = size - before
        elif isinstance(event, yaml.ScalarEvent):
            size += 1
            if event.anchor:
                sizes[event.anchor] = 1
        if size > LARGEST_YAML or len(open_nodes) > DEEPEST_YAML:
            reason = f"nested too deeply, or its aliases stand for more than {LARGEST_YAML:,} values"
            where = f"{path}:{event.start_mark.line + 1}" if event.start_mark else path
            raise UserError(f"{where}: {reason}; flatten it")


def read_utf8(path: Path, encoding: str = "utf-8") -> str:
    """Return the text of a file; ``UserError`` if it cannot be read, is damaged or not in UTF-8."""
    try:
        return path.read_text(encoding=encoding)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
