"""Two versions of what is published, and a reader that notices a mixture of both."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tileseer.core.atomic import write_text
from tileseer.learn import model_files
from tileseer.serve.selector import Selector


def other_version(serving: Path, folder: Path) -> Path:
    """Copy a serving folder; two files say that the copy is another version: there are no cuts and no pruned set."""
    shutil.copytree(serving, folder)
    for name, field in ((model_files.SERVING, "stages"), (model_files.KERNELS, "pruned")):
        content = json.loads((folder / name).read_text()) | {field: []}
        write_text(folder / name, json.dumps(content))
    return folder


def read_once(models: Path, operation: str) -> None:
    """Read a published selector; an error if its files are of two versions."""
    selector = Selector.read(models, operation)
    assert bool(selector.cuts) == selector.pruned.any()
