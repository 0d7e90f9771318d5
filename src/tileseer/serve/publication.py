"""Publishing: training, validation and serving become one model directory."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tileseer.core import documents, seal
from tileseer.core.atomic import building
from tileseer.core.errors import UserError
from tileseer.core.tables import validate_table
from tileseer.learn import model_files
from tileseer.learn.model_files import INDEX, PAGE, PROVENANCE, SERVING, SPEC, Entry, Index
from tileseer.learn.model_schema import OF_A_DEVICE, Origin, same_origin
from tileseer.serve.model_page import model_page
from tileseer.serve.provenance import Provenance

KEPT_KIND = "measured"
"""Models of such times are replaced by others of their kind only."""


def refuse_replacement(models: Path, arch: str, device_kind: str, replace: bool) -> None:
    """Raise a ``UserError`` if models of a GPU's times would be replaced by those of recorded or simulated times."""
    if replace or device_kind == KEPT_KIND:
        return
    try:
        published = model_files.parse_index(models)
    except UserError:
        # There are no models, or none that a program could load.
        return
    if published.device_kind == KEPT_KIND:
        raise UserError(
            f"{models}: its models are of {KEPT_KIND} times ({published.device}), and this run makes models of "
            f"{device_kind} times for {arch}: move the folder away to keep it, or replace it: write "
            "`publish: {replace: true}` into a file and add --configfile with its name"
        )


def publish_models(
    trainings: Sequence[Path],
    evaluations: Sequence[Path],
    servings: Sequence[Path],
    output: Path,
    provenance: Provenance | None = None,
    *,
    page: Path,
    replace: bool = False,
) -> Index:
    """Write the model directory ``output`` from training folders, evaluations and serving folders; return the
    index.

    The directory is built beside its place and changes places with it. Other operations of the device that were
    published before stay in it. ``page`` is the template of its ``README.md``; ``replace``: models of a GPU's times may
    be replaced by others. ``UserError`` unless there is one of each for every operation, and all are of one arch,
    device and device kind; then what was published stays as it is.
    """
    kinds = ((trainings, SPEC), (evaluations, ""), (servings, SERVING))
    trained, evaluated, served = (_by_operation([path / name for path in paths]) for paths, name in kinds)
    if not trained or not trained.keys() == evaluated.keys() == served.keys():
        raise UserError(
            f"publish: trainings of {', '.join(trained)}, evaluations of {', '.join(evaluated)} and serving "
            f"folders of {', '.join(served)}; give one of each for every operation"
        )
    (first_file, first), *others = (*trained.values(), *evaluated.values(), *served.values())
    for file, origin in others:
        same_origin(file, origin, first, first_file, "one directory holds the models of one device")
    refuse_replacement(output, first.arch, first.device_kind, replace)
    with building(output) as made:
        operations = {name: Entry(folder=f"grouped_conv_{name}_{first.arch}") for name in sorted(trained)}
        for name, entry in operations.items():
            (made / entry.folder).mkdir()
            _copy(trained[name][0].parent, model_files.TRAINING_FILES, made / entry.folder, f"train {name} again")
            _copy(served[name][0].parent, model_files.SERVING_FILES, made / entry.folder, f"serve {name} again")
            shutil.copyfile(evaluated[name][0], made / entry.folder / model_files.EVALUATION)
        if provenance is not None:
            documents.write_document(made / PROVENANCE, provenance)
        device = first.model_dump(include=set(OF_A_DEVICE))
        operations = dict(sorted((operations | _keep_others(output, made, operations, device)).items()))
        index = _index(made, device, operations)
        recordings = (
            {name: one.measurements.recording for name, one in provenance.operations.items()} if provenance else {}
        )
        (made / PAGE).write_text(model_page(made, index, page, recordings), encoding="utf-8")
        index = _index(made, device, operations)
        documents.write_document(made / INDEX, index)
        model_files.read_index(made)
    return index


def _index(made: Path, device: Mapping[str, Any], operations: Mapping[str, Entry]) -> Index:
    own, files = dict(operations), model_files.file_digests(made)
    return Index(format=model_files.FORMAT, tileseer=model_files.READERS, **device, operations=own, sha256=files)


def _keep_others(output: Path, made: Path, new: Mapping[str, Entry], device: Mapping[str, str]) -> dict[str, Entry]:
    """Copy the other operations of a device that are published at ``output``, each with its own provenance."""
    folders = {entry.folder for entry in new.values()}
    if not {path.name for path in output.glob("grouped_conv_*") if path.is_dir()} - folders:
        return {}
    try:
        published = model_files.parse_index(output)
    except UserError as error:
        raise UserError(f"{error}; publish all operations again, or remove {output}") from error
    if published.model_dump(include=set(OF_A_DEVICE)) != device:
        return {}
    kept = {}
    for name, entry in published.operations.items():
        # A user who does not want an operation any more removes its folder.
        if name not in new and (output / entry.folder).is_dir():
            own = [file for file in published.sha256 if Path(file).parent == Path(entry.folder)]
            copies = dict(zip(own, own, strict=True))
            if entry.provenance is None and PROVENANCE in published.sha256:
                entry = entry.model_copy(update={"provenance": f"{entry.folder}/{PROVENANCE}"})
                copies[PROVENANCE] = str(entry.provenance)
            fix = f"add {name} to operations and publish it again, or remove {output / entry.folder}"
            for file, copy in copies.items():
                _copy_published(output / file, made / copy, published.sha256[file], fix)
            kept[name] = entry
    return kept


def _copy_published(source: Path, copy: Path, digest: str, fix: str) -> None:
    copy.parent.mkdir(exist_ok=True)
    try:
        shutil.copyfile(source, copy)
    except FileNotFoundError as error:
        raise UserError(f"{source}: the file is missing, which index.json lists; {fix}") from error
    if seal.file_digest(copy) != digest:
        raise UserError(f"{source}: the content does not match index.json; {fix}")


def _by_operation(files: Sequence[Path]) -> dict[str, tuple[Path, Origin]]:
    """Return each spec, report or figures of serving with what it belongs to."""
    origins: dict[str, tuple[Path, Origin]] = {}
    for path in files:
        content = documents.read_json(path)
        fields = content if isinstance(content, dict) else {}
        own = {name: fields[name] for name in Origin.model_fields if name in fields}
        origin = validate_table(own, Origin, str(path))
        if origin.operation in origins:
            raise UserError(f"{path}: {origin.operation} occurs twice, first in {origins[origin.operation][0]}")
        origins[origin.operation] = path, origin
    return origins


def _copy(source: Path, names: Sequence[str], folder: Path, fix: str) -> None:
    for name in names:
        if not (source / name).is_file():
            raise UserError(f"{source / name}: there is no such file; {fix}")
        if name.endswith(".json"):
            documents.read_json(source / name)  # whatever is wrong with it is told before it is published
        shutil.copyfile(source / name, folder / name)
