"""Reading of JSON, of ours and of a user: a key that is written twice is a mistake, and each mistake is one line."""

import json
from pathlib import Path
from typing import Any

from tileseer.core.errors import UserError, shown
from tileseer.core.reading import read_utf8


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, unchecked; ``UserError`` if it is missing or damaged."""
    if path.parent.is_file():
        raise UserError(f"{path.parent}: is a file; give the folder that holds {path.name}")
    if not path.exists():
        raise UserError(f"{path}: there is no such file; is this the right directory?")
    return parse_json(read_utf8(path), str(path))


def parse_json(text: str, where: str) -> Any:
    """Return the content of JSON text, unchecked; ``where`` names it in messages."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # The standard reader would keep the last of two in silence.
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise UserError(f"{where}: the key {shown(key)} is written twice: remove one of the two")
            found[key] = value
        return found

    try:
        content = json.loads(text, object_pairs_hook=members)
        if "\\ud" in text.lower():
            # An escape of half a character, which JSON lets through and no table takes.
            json.dumps(content, ensure_ascii=False).encode()
        return content
    except RecursionError as error:
        raise UserError(f"{where}: nested too deeply; flatten it") from error
    except ValueError as error:
        raise UserError(f"{where}: is not JSON that can be read ({error}); correct it or make it again") from error


def json_text(content: Any) -> str:
    """Return the JSON in the order of ``content``: a spec lists its features as the model numbers them."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"
