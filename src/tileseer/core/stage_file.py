"""The file of a stage: its settings, its code, and versions of the packages that it uses.

Every rule has it as an input, ``results/stages/STAGE.DIGEST.json``. Its digest is in its name, so it is never
rewritten: another configuration or other code is another input, and a dry run or a second terminal changes nothing.
"""

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tileseer.core import code_digest

NAME = "{stage}.{digest}.json"


def stage_file_text(script: Path, settings: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Text of the file of a stage; ``facts`` are what else decides about its outputs, such as a compiler."""
    code = code_digest.code_of(script)
    content = {
        "stage": script.stem,
        "settings": settings,
        "facts": facts,
        "modules": code.modules,
        "packages": code.packages,
        "python": ".".join(map(str, sys.version_info[:2])),
    }
    return json.dumps(content, indent=1, sort_keys=True)


def name_of_text(script: Path, text: str) -> str:
    """Name of the file with a text."""
    return NAME.format(stage=script.stem, digest=hashlib.sha256(text.encode()).hexdigest()[:16])


def remove_unused(folder: Path, used: set[str]) -> None:
    """Remove the files that no stage uses any more.

    If their configuration comes back, new files are made: what was made for another one is then older than they are,
    even where Snakemake's own records are lost.
    """
    for path in folder.glob("*.json"):
        if path.name not in used:
            path.unlink()
