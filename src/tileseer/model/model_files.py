"""The published model directory: its files, and how a client knows that nothing was changed.

::

    MODELS/index.json                                 hashes of all files, arch, operations, device kind
    MODELS/provenance.json                            what made them
    MODELS/grouped_conv_{operation}_{arch}/
        model_tflops.lgbm  feature_spec.json  train_manifest.json  cv_metrics_tflops.json
        feature_importances_tflops.json  candidates.parquet  hardware.json  validation.json
        served_model.lgbm  selector.hpp  known_problems.parquet  kernels.json  serving.json
        resource_estimates.json  out_of_fold.parquet

No file holds a time, a host or a path, so the same models publish to the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from tileseer.conv.operation import DTYPES, VARIANTS
from tileseer.core import seal
from tileseer.core.errors import UserError
from tileseer.core.tables import Table, checked
from tileseer.devices.base import DeviceKind

INDEX = "index.json"
MODEL = "model_tflops.lgbm"
SPEC = "feature_spec.json"
MANIFEST = "train_manifest.json"
CV_METRICS = "cv_metrics_tflops.json"
IMPORTANCES = "feature_importances_tflops.json"
CANDIDATES = "candidates.parquet"
HARDWARE = "hardware.json"
VALIDATION = "validation.json"
OUT_OF_FOLD = "out_of_fold.parquet"
TRAINING_FILES = (MODEL, SPEC, MANIFEST, CV_METRICS, IMPORTANCES, CANDIDATES, HARDWARE, OUT_OF_FOLD)
"""What training leaves in its folder; publishing adds ``VALIDATION``."""
SERVED_MODEL = "served_model.lgbm"
SELECTOR = "selector.hpp"
KNOWN = "known_problems.parquet"
KERNELS = "kernels.json"
SERVING = "serving.json"
ESTIMATES = "resource_estimates.json"
"""Coefficients by which a kernel outside the pool gets its registers, LDS and occupancy."""
SERVING_FILES = (SERVED_MODEL, SELECTOR, KNOWN, KERNELS, SERVING, ESTIMATES)
"""What the serving stage leaves in its folder."""
PROVENANCE = "provenance.json"
"""What made the models (``tileseer.publish.provenance``); a directory that was published by hand may lack it."""
FORMAT = 2


class _Entry(Table):
    folder: Annotated[str, StringConstraints(pattern=r"^grouped_conv_\w+$")]


_Operation = Annotated[str, StringConstraints(pattern=f"^({'|'.join(VARIANTS)})_({'|'.join(DTYPES)})$")]


class _Index(Table):
    """``index.json``; the patterns keep a directory from naming files outside it."""

    format: int
    arch: str
    device: str
    device_kind: DeviceKind
    operations: Annotated[dict[_Operation, _Entry], Field(min_length=1)]
    sha256: dict[str, Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]]


def json_text(content: Any) -> str:
    """Return ``content`` as JSON, in its own order: a spec lists its features as the model numbers them."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def verify(models: Path) -> dict[str, Any]:
    """Return the index of a model directory; ``UserError`` names a file that is missing, changed or not listed."""
    index = read_json(models / INDEX)
    said = index.get("format") if isinstance(index, dict) else None
    if said != FORMAT:
        raise UserError(f"{models / INDEX}: format is {said!r}; this release reads {FORMAT}: publish the models again")
    checked(index, _Index, str(models / INDEX))
    present = hashes(models)
    for name, expected in index["sha256"].items():
        if name not in present:
            # No path arithmetic: an absolute name in the index would leave the directory out of the message.
            raise UserError(f"{models}/{name}: the file is missing, which index.json lists; publish the models again")
        if present[name] != expected:
            raise UserError(f"{models / name}: the content does not match index.json; publish the models again")
    extra = sorted(set(present) - set(index["sha256"]))
    if extra:
        raise UserError(f"{models / extra[0]}: the file is not listed in index.json; remove it or publish again")
    return index


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; ``UserError`` if it is missing or damaged."""
    if path.parent.is_file():
        raise UserError(f"{path.parent}: is a file; give the folder that holds {path.name}")
    seal.check(path)
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
        if "\\ud" in text.lower():
            # An escape of half a character, which JSON lets through and no table takes.
            json.dumps(content, ensure_ascii=False).encode()
        return content
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file; is this the right directory?") from error
    except (json.JSONDecodeError, UnicodeError) as error:
        raise UserError(f"{path}: is not JSON ({error}); make it again") from error


def hashes(models: Path) -> dict[str, str]:
    """Return the SHA-256 of every file but the index, by its path inside ``models``."""
    # Hidden files are no part of a model: Snakemake leaves a time stamp in every folder that a job makes.
    visible = (path for path in models.rglob("[!.]*") if path.is_file())
    files = sorted(path for path in visible if path != models / INDEX)
    return {path.relative_to(models).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
