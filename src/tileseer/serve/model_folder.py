"""Publishing: the folders of training, validation and serving become one model directory (``model_files``)."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from tileseer.core import documents, seal
from tileseer.core.atomic import building
from tileseer.core.errors import UserError
from tileseer.core.tables import validate_table
from tileseer.learn.index import FORMAT, Entry, Index, hashes
from tileseer.learn.model_files import INDEX, PROVENANCE, SERVING, SERVING_FILES, SPEC, TRAINING_FILES, VALIDATION
from tileseer.learn.model_schema import OF_A_DEVICE, Origin, same_origin
from tileseer.serve.provenance import Provenance


def publish_models(
    trainings: Sequence[Path],
    validations: Sequence[Path],
    servings: Sequence[Path],
    output: Path,
    provenance: Provenance | None = None,
) -> Index:
    """Write the model directory ``output`` from training folders, their reports and serving folders; return the index.

    The directory is built beside its place and renamed into it. ``UserError`` unless there is one of each for every
    operation, and all are of one arch, device and device kind.
    """
    kinds = ((trainings, SPEC), (validations, ""), (servings, SERVING))
    trained, reports, served = (_by_operation([path / name for path in paths]) for paths, name in kinds)
    if not trained or {tuple(sorted(part)) for part in (reports, served)} != {tuple(sorted(trained))}:
        raise UserError(
            f"publish: trainings of {', '.join(trained)}, validation reports of {', '.join(reports)} and serving "
            f"folders of {', '.join(served)}; give one of each for every operation"
        )
    (first_file, first), *others = (*trained.values(), *reports.values(), *served.values())
    for file, origin in others:
        same_origin(file, origin, first, first_file, "one directory holds the models of one device")
    with building(output) as made:
        operations = {name: Entry(folder=f"grouped_conv_{name}_{first.arch}") for name in sorted(trained)}
        for name, entry in operations.items():
            (spec, _), (report, _), (serving, _) = trained[name], reports[name], served[name]
            _collect(spec.parent, report, serving.parent, name, made / entry.folder)
        if provenance is not None:
            documents.write_document(made / PROVENANCE, provenance, sealed=False)
        device = first.model_dump(include=set(OF_A_DEVICE))
        index = Index(format=FORMAT, **device, operations=operations, sha256=hashes(made))
        documents.write_document(made / INDEX, index, sealed=False)
    return index


def _by_operation(files: Sequence[Path]) -> dict[str, tuple[Path, Origin]]:
    """Each spec, report or figures of serving with what it belongs to."""
    origins: dict[str, tuple[Path, Origin]] = {}
    for path in files:
        content = documents.read_json(path)
        fields = content if isinstance(content, dict) else {}
        own = {name: fields[name] for name in Origin.model_fields if name in fields}
        origin = validate_table(own, Origin, str(path))
        if origin.operation in origins:
            raise UserError(f"{path}: {origin.operation} is there twice, first in {origins[origin.operation][0]}")
        origins[origin.operation] = path, origin
    return origins


def _collect(training: Path, report: Path, serving: Path, operation: str, folder: Path) -> None:
    folder.mkdir()
    for source, names, made in ((training, TRAINING_FILES, "train"), (serving, SERVING_FILES, "serve")):
        for name in names:
            if not (source / name).is_file():
                raise UserError(f"{source / name}: there is no such file; {made} {operation} again")
            seal.check_seal(source / name)
            shutil.copyfile(source / name, folder / name)
    shutil.copyfile(report, folder / VALIDATION)
