"""Two versions of what is published, and a reader that notices a mixture of both."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from tileseer.core.atomic import write_text
from tileseer.learn import model_files
from tileseer.serve.selector import ABOUT, Selector


def other_version(serving: Path, folder: Path) -> Path:
    """Copy a serving folder; the selector and the list of its kernels say that the copy is another version."""
    shutil.copytree(serving, folder)
    with np.load(folder / model_files.PICKER, allow_pickle=False) as arrays:
        about = json.loads(arrays[ABOUT].tobytes()) | {"source": "other"}
        changed = dict(arrays) | {ABOUT: np.frombuffer(json.dumps(about).encode(), np.uint8)}
    Selector(changed).save(folder / model_files.PICKER)
    kernels = json.loads((folder / model_files.KERNELS).read_text())
    kernels["kernels"][0]["aliases"] = ["other"]
    write_text(folder / model_files.KERNELS, json.dumps(kernels))
    return folder


def read_once(models: Path, operation: str) -> None:
    """Read a published selector; an error if its files are of two versions."""
    selector = Selector.read(models, operation)
    # Read from another file, and after others may have been published.
    assert (selector.about.source == "other") == (["other"] in selector.aliases.values())
