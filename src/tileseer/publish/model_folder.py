"""Publishing: the folders of training, validation and serving become one model directory (``model_files``)."""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tileseer.core import documents, seal
from tileseer.core.errors import UserError
from tileseer.core.tables import checked
from tileseer.model.model_files import (
    INDEX,
    PROVENANCE,
    SERVING,
    SERVING_FILES,
    SPEC,
    TRAINING_FILES,
    VALIDATION,
)
from tileseer.model.schema import Origin
from tileseer.publish.index import FORMAT, Entry, Index, hashes
from tileseer.publish.provenance import Provenance


def publish(
    trainings: Sequence[Path],
    validations: Sequence[Path],
    servings: Sequence[Path],
    output: Path,
    provenance: Provenance | None = None,
) -> Index:
    """Write the model directory ``output`` from training folders, their reports and serving folders; return the index.

    The directory is built beside its place and renamed into it. ``UserError`` when a training has no report or no
    serving folder, one of them belongs to another training, or the models differ in arch, device or device kind.
    """
    if not trainings or len(trainings) != len(validations) or len(servings) != len(trainings):
        raise UserError(
            f"publish: {len(trainings)} trainings, {len(validations)} validation reports and {len(servings)} serving "
            "folders; give one each"
        )
    trained = {_origin(folder / SPEC): folder for folder in trainings}
    reports = {_origin(path).operation: path for path in validations}
    served = {_origin(folder / SERVING).operation: folder for folder in servings}
    common = {field: _common(trained, field) for field in ("arch", "device", "device_kind")}
    output.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    try:
        operations = {}
        for origin in sorted(trained, key=lambda origin: origin.operation):
            operation, training = origin.operation, trained[origin]
            for kind, found in (("validation report", reports), ("serving folder", served)):
                if operation not in found:
                    raise UserError(f"{training}: no {kind} of operation {operation} was given")
            folder = f"grouped_conv_{operation}_{common['arch']}"
            operations[operation] = Entry(folder=folder)
            _collect(training, reports[operation], served[operation], origin, building / folder)
        if set(reports) != set(operations):
            raise UserError(f"publish: no training for the report of {min(set(reports) - set(operations))}")
        if provenance is not None:
            documents.write(building / PROVENANCE, provenance, sealed=False)
        index = Index(format=FORMAT, **common, operations=operations, sha256=hashes(building))
        documents.write(building / INDEX, index, sealed=False)
        _move(building, output)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return index


def _origin(path: Path) -> Origin:
    """What a spec, a report or the figures of serving belong to."""
    content = documents.read_json(path)
    fields = content if isinstance(content, dict) else {}
    return checked({name: fields[name] for name in Origin.model_fields if name in fields}, Origin, str(path))


def _common(trained: Mapping[Origin, Path], field: str) -> Any:
    values = sorted({getattr(origin, field) for origin in trained})
    if len(values) > 1:
        raise UserError(f"publish: the models differ in {field}: {', '.join(values)}; one directory holds one")
    return values[0]


def _collect(training: Path, report: Path, serving: Path, origin: Origin, folder: Path) -> None:
    for path, made in ((report, "validate"), (serving / SERVING, "serve")):
        found = _origin(path)
        for field in ("arch", "device", "device_kind"):
            if getattr(found, field) != getattr(origin, field):
                raise UserError(
                    f"{path}: {field} is {getattr(found, field)!r}, but {training / SPEC} says "
                    f"{getattr(origin, field)!r}; {made} the model that is published"
                )
    folder.mkdir()
    for source, names, made in ((training, TRAINING_FILES, "train"), (serving, SERVING_FILES, "serve")):
        for name in names:
            if not (source / name).is_file():
                raise UserError(f"{source / name}: there is no such file; {made} {origin.operation} again")
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
