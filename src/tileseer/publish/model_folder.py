"""Publishing: the folders of training, validation and serving become one model directory (``model_files``)."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tileseer.core import seal
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.model.model_files import (
    FORMAT,
    INDEX,
    PROVENANCE,
    SERVING,
    SERVING_FILES,
    SPEC,
    TRAINING_FILES,
    VALIDATION,
    hashes,
    json_text,
    read_json,
)  # fmt: skip


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
        index = {"format": FORMAT, **common, "operations": operations, "sha256": hashes(building)}
        write_text(building / INDEX, json_text(index))
        _move(building, output)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return index


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
