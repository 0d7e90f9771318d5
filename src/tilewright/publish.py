"""The published model directory: what a client loads, and how it knows that nothing was changed.

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
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
from pydantic import Field, StringConstraints

from tilewright import parquet, seal
from tilewright.atomic import write_text
from tilewright.errors import UserError
from tilewright.hardware import Hardware
from tilewright.measurements import DeviceKind
from tilewright.tables import Table, checked

if TYPE_CHECKING:
    # Only the type: LightGBM takes seconds to import, and who reads a published model may not need it.
    from tilewright.learn import Trained
    from tilewright.serving.artefacts import Served

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
"""What made the models (``tilewright.provenance``); a directory that was published by hand may lack it."""
FORMAT = 2


def json_text(content: Any) -> str:
    """Return ``content`` as JSON, in its own order: a spec lists its features as the model numbers them."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def write_training(folder: Path, trained: Trained, hardware: Hardware) -> None:
    """Write ``TRAINING_FILES`` into ``folder``, each whole or not at all."""
    texts = {
        MODEL: trained.model,
        SPEC: json_text(trained.spec),
        MANIFEST: json_text(trained.manifest),
        CV_METRICS: json_text(trained.cv),
        IMPORTANCES: json_text(trained.importances),
        HARDWARE: json_text(hardware.model_dump(mode="json")),
    }
    for name, text in texts.items():
        write_text(folder / name, text, sealed=True)
    # The index and the pandas metadata are no part of the pool; the latter names library versions.
    for name, table in ((CANDIDATES, trained.candidates), (OUT_OF_FOLD, trained.out_of_fold)):
        plain = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None)
        parquet.write(plain, folder / name)


class _Entry(Table):
    folder: Annotated[str, StringConstraints(pattern=r"^grouped_conv_\w+$")]


class _Index(Table):
    """``index.json``; the patterns keep a directory from naming files outside it."""

    format: int
    arch: str
    device: str
    device_kind: DeviceKind
    operations: Annotated[dict[str, _Entry], Field(min_length=1)]
    sha256: dict[str, Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]]


def publish(
    trainings: Sequence[Path],
    validations: Sequence[Path],
    servings: Sequence[Path],
    output: Path,
    provenance: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write the model directory ``output`` from training folders, their reports and serving folders; return the index.

    The directory is built beside its place and renamed into it. ``UserError`` when a training has no report or no
    serving folder, one of them belongs to another training, or the models differ in arch, device or device kind.
    """
    if not trainings or len(trainings) != len(validations) or len(servings) != len(trainings):
        raise UserError(
            f"publish: {len(trainings)} trainings, {len(validations)} validation reports and {len(servings)} serving "
            "folders; give one each"
        )
    served = {figures["operation"]: path for path in servings for figures in [read_json(path / SERVING)]}
    specs = {training: read_json(training / SPEC) for training in trainings}
    common = {field: _common(specs, field) for field in ("arch", "device", "device_kind")}
    reports = {report["operation"]: path for path in validations for report in [read_json(path)]}
    output.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    try:
        operations = {}
        for training, spec in sorted(specs.items(), key=lambda item: item[1]["operation"]):
            operation = spec["operation"]
            if operation not in reports:
                raise UserError(f"{training}: no validation report of operation {operation} was given")
            if operation not in served:
                raise UserError(f"{training}: no serving folder of operation {operation} was given")
            folder = f"grouped_conv_{operation}_{spec['arch']}"
            operations[operation] = {"folder": folder}
            _collect(training, reports[operation], served[operation], spec, building / folder)
        if set(reports) != set(operations):
            raise UserError(f"publish: no training for the report of {sorted(set(reports) - set(operations))[0]}")
        if provenance is not None:
            write_text(building / PROVENANCE, json_text(provenance))
        index = {"format": FORMAT, **common, "operations": operations, "sha256": _hashes(building)}
        write_text(building / INDEX, json_text(index))
        _move(building, output)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return index


def write_serving(folder: Path, served: Served) -> None:
    """Write ``SERVING_FILES`` into ``folder``, each whole or not at all."""
    texts = {
        SERVED_MODEL: served.model,
        SELECTOR: served.header,
        KERNELS: json_text(served.kernels),
        SERVING: json_text(served.figures),
        ESTIMATES: json_text(served.estimates),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    parquet.write(served.known, folder / KNOWN)


def verify(models: Path) -> dict[str, Any]:
    """Return the index of a model directory; ``UserError`` names a file that is missing, changed or not listed."""
    index = read_json(models / INDEX)
    said = index.get("format") if isinstance(index, dict) else None
    if said != FORMAT:
        raise UserError(f"{models / INDEX}: format is {said!r}; this release reads {FORMAT}: publish the models again")
    checked(index, _Index, str(models / INDEX))
    present = _hashes(models)
    for name, expected in index["sha256"].items():
        if name not in present:
            raise UserError(f"{models / name}: the file is missing; publish the models again")
        if present[name] != expected:
            raise UserError(f"{models / name}: the content does not match index.json; publish the models again")
    extra = sorted(set(present) - set(index["sha256"]))
    if extra:
        raise UserError(f"{models / extra[0]}: the file is not listed in index.json; remove it or publish again")
    return index


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; ``UserError`` if it is missing or damaged."""
    seal.check(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file; is this the right directory?") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not JSON ({error}); make it again") from error


def _common(specs: dict[Path, Any], field: str) -> str:
    values = sorted({spec[field] for spec in specs.values()})
    if len(values) > 1:
        raise UserError(f"publish: the models differ in {field}: {', '.join(values)}; one directory holds one")
    return values[0]


def _collect(training: Path, report: Path, serving: Path, spec: dict[str, Any], folder: Path) -> None:
    for path, made in ((report, "validate"), (serving / SERVING, "serve")):
        content = read_json(path)
        for field in ("arch", "device", "device_kind"):
            if content[field] != spec[field]:
                raise UserError(
                    f"{path}: {field} is {content[field]!r}, but {training / SPEC} says {spec[field]!r}; "
                    f"{made} the model that is published"
                )
    folder.mkdir()
    for source, names, made in ((training, TRAINING_FILES, "train"), (serving, SERVING_FILES, "serve")):
        for name in names:
            if not (source / name).is_file():
                raise UserError(f"{source / name}: there is no such file; {made} {spec['operation']} again")
            seal.check(source / name)
            shutil.copyfile(source / name, folder / name)
    shutil.copyfile(report, folder / VALIDATION)


def _hashes(models: Path) -> dict[str, str]:
    """Return the SHA-256 of every file but the index, by its path inside ``models``."""
    # Hidden files are no part of a model: Snakemake leaves a time stamp in every folder that a job makes.
    visible = (path for path in models.rglob("[!.]*") if path.is_file())
    files = sorted(path for path in visible if path != models / INDEX)
    return {path.relative_to(models).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _move(building: Path, output: Path) -> None:
    """Put the finished directory in its place; a reader sees the old one or the new one."""
    # mkdtemp makes the folder private; results are for the group as any other folder is.
    umask = os.umask(0)
    os.umask(umask)
    building.chmod(0o777 & ~umask)
    if not output.exists():
        os.rename(building, output)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{output.name}.old.", dir=output.parent))
    os.rename(output, old / output.name)
    os.rename(building, output)
    shutil.rmtree(old)
