"""A new GPU target in the table of facts: the text of a known one, with what differs filled in."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from tileseer.core.errors import UserError
from tileseer.gpu.arch import ArchSpecs

FIELDS = ("family", "product", "wave_size", "lds_kib")
"""Fields that may differ from the known target; waves and warp tiles are lists, which an editor changes better."""
_NAME = re.compile(r"gfx[0-9a-f]{3,5}|sm_\d{2,3}")


def table_with(path: Path, name: str, like: str, changes: Mapping[str, str | int]) -> tuple[str, str]:
    """Text of the table at ``path`` with target ``name`` before all others, and the text of its entry.

    The entry is that of ``like``, with ``changes`` of ``FIELDS``; nothing else of the table changes. The result is
    read by the loader before it is returned: a ``UserError`` says what does not fit.
    """
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r} is no name of a target: write gfx or sm_ and its version, as gfx90a or sm_90")
    specs = ArchSpecs.load(path)
    if name in specs.archs:
        raise UserError(f"{path}: {name} is there already; edit its entry")
    specs.arch(like)
    text = path.read_text(encoding="utf-8")
    entry = _changed(_entry(text, like), changes)
    start = re.search(r'"archs"\s*:\s*\{', text)
    assert start is not None, "the loader has read it"
    line = f'\n    "{name}": {entry},'
    result = text[: start.end()] + line + text[start.end() :]
    ArchSpecs.parse(result, str(path))
    return result, f'"{name}": {entry}'


def _entry(text: str, name: str) -> str:
    """Text of a target's object as it stands in the table."""
    archs = re.search(r'"archs"\s*:\s*\{', text)
    assert archs is not None, "the loader has read it"
    found = re.compile(rf'"{name}"\s*:\s*').search(text, archs.end())
    assert found is not None, "the loader has read it"
    _, end = json.JSONDecoder().raw_decode(text, found.end())
    return text[found.end() : end]


def _changed(entry: str, changes: Mapping[str, str | int]) -> str:
    for field, value in changes.items():
        new = f'"{field}": {json.dumps(value)}'
        # A backslash in a replacement has a meaning; it stands for itself when doubled.
        pattern = rf'"{field}"\s*:\s*("(?:[^"\\]|\\.)*"|\d+)'
        entry, count = re.subn(pattern, new.replace("\\", r"\\"), entry, count=1)
        assert count == 1, f"the loader has read {field}"
    return entry
