"""Two versions of what is published, and a reader that notices a mixture of both."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tileseer.core import parquet
from tileseer.core.atomic import write_text
from tileseer.learn import model_files
from tileseer.serve.selector import Selector
from tileseer.serve.serving_files import KNOWN_PROBLEMS


def other_version(serving: Path, folder: Path) -> Path:
    """Copy a serving folder; two files say that the copy is another version: no problem is known, no kernel pruned."""
    shutil.copytree(serving, folder)
    content = json.loads((folder / model_files.KERNELS).read_text()) | {"pruned": []}
    write_text(folder / model_files.KERNELS, json.dumps(content))
    parquet.write_table(KNOWN_PROBLEMS.empty_table(), folder / model_files.KNOWN)
    return folder


def read_once(models: Path, operation: str) -> None:
    """Read a published selector; an error if its files are of two versions."""
    selector = Selector.read(models, operation)
    assert bool(selector.known.num_rows) == selector.pruned.any()
