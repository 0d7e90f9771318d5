"""A new GPU target in the table of facts: the text of a known one, with what differs filled in."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from tileseer.core.errors import UserError
from tileseer.gpus.arch import ArchSpecs

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
    start = _end_of(r'"archs"\s*:\s*\{', text, 0)
    known = _end_of(rf'"{like}"\s*:\s*', text, start)
    entry = text[known : json.JSONDecoder().raw_decode(text, known)[1]]
    for field, value in changes.items():
        begin = _end_of(rf'"{field}"\s*:\s*', entry, 0)
        entry = entry[:begin] + json.dumps(value) + entry[json.JSONDecoder().raw_decode(entry, begin)[1] :]
    result = f'{text[:start]}\n    "{name}": {entry},{text[start:]}'
    ArchSpecs.parse(result, str(path))
    return result, f'"{name}": {entry}'


def _end_of(pattern: str, text: str, start: int) -> int:
    match = re.compile(pattern).search(text, start)
    assert match is not None, "the loader has read it"
    return match.end()
