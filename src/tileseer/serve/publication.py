"""Publishing: training, validation and serving become one model directory, and ``results/history.jsonl`` a line longer.

The history has times, so nothing is made from it and no hash covers it.
"""

import errno
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Self, cast

from pydantic import ValidationError

from tileseer.core import documents, seal
from tileseer.core.atomic import building
from tileseer.core.documents import Document
from tileseer.core.errors import UserError
from tileseer.core.tables import validate_table
from tileseer.learn import model_files
from tileseer.learn.model_files import INDEX, PROVENANCE, SERVING, SPEC, Entry, Index
from tileseer.learn.model_schema import OF_A_DEVICE, Origin, same_origin
from tileseer.learn.validation_report import Validation
from tileseer.serve.provenance import Provenance


class PublishedFigures(Document):
    """How good the model of one operation is, efficiencies in percent."""

    n_problems: int
    mean: float
    median: float
    p10: float
    without_model: float
    """Mean of the best choice that needs no model, such as one fixed kernel."""
    best_possible: float
    """Mean of a perfect model, or where that is unknown of a perfect selector."""

    @classmethod
    def of(cls, report: Validation) -> Self:
        """The figures of a validation report."""
        return cls(
            n_problems=report.n_problems,
            mean=report.efficiency.mean,
            median=report.efficiency.median,
            p10=report.efficiency.p10,
            without_model=max(baseline.efficiency.mean for baseline in report.baselines.values()),
            best_possible=report.noise_floor.best.efficiency.mean,
        )


class Published(Document):
    """One publication, a line of the history."""

    time: str
    """UTC, to the second."""
    arch: str
    device_kind: str
    commit: str | None
    changed_files: int
    """Files that differ from the commit."""
    config_sha256: str
    data_sha256: dict[str, str]
    """Of each operation's dataset."""
    operations: dict[str, PublishedFigures]


def publish_models(
    trainings: Sequence[Path],
    validations: Sequence[Path],
    servings: Sequence[Path],
    output: Path,
    provenance: Provenance | None = None,
) -> Index:
    """Write the model directory ``output`` from training folders, their reports and serving folders; return the index.

    The directory is built beside its place and changes places with it. Other operations of the device that were
    published before stay in it. ``UserError`` unless there is one of each for every operation, and all are of one arch,
    device and device kind; then what was published stays as it is.
    """
    kinds = ((trainings, SPEC), (validations, ""), (servings, SERVING))
    trained, reports, served = (_by_operation([path / name for path in paths]) for paths, name in kinds)
    if not trained or not trained.keys() == reports.keys() == served.keys():
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
            (made / entry.folder).mkdir()
            _copy(trained[name][0].parent, model_files.TRAINING_FILES, made / entry.folder, f"train {name} again")
            _copy(served[name][0].parent, model_files.SERVING_FILES, made / entry.folder, f"serve {name} again")
            shutil.copyfile(reports[name][0], made / entry.folder / model_files.VALIDATION)
        if provenance is not None:
            documents.write_document(made / PROVENANCE, provenance, sealed=False)
        device = first.model_dump(include=set(OF_A_DEVICE))
        operations = dict(sorted((operations | _keep_others(output, made, operations, device)).items()))
        index = Index(format=model_files.FORMAT, **device, operations=operations, sha256=model_files.file_digests(made))
        documents.write_document(made / INDEX, index, sealed=False)
        model_files.read_index(made)
    return index


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


def _copy(source: Path, names: Sequence[str], folder: Path, fix: str) -> None:
    for name in names:
        if not (source / name).is_file():
            raise UserError(f"{source / name}: there is no such file; {fix}")
        seal.check_seal(source / name)
        shutil.copyfile(source / name, folder / name)


def append_publication(path: Path, index: Index, reports: Sequence[Path], provenance: Provenance) -> None:
    """Append a publication to the history, unless the last one of the arch was the same.

    What is wrong with the history is a warning: it never stops what it tells of.
    """
    config = json.dumps(provenance.config, sort_keys=True).encode()
    validated = [documents.read_document(report, Validation) for report in reports]
    entry = Published(
        time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        arch=index.arch,
        device_kind=index.device_kind,
        commit=provenance.source.commit,
        changed_files=len(provenance.source.uncommitted or ()),
        config_sha256=hashlib.sha256(config).hexdigest(),
        data_sha256={name: next(iter(made.inputs.values())) for name, made in provenance.operations.items()},
        operations={
            report.operation: PublishedFigures.of(report) for report in sorted(validated, key=lambda one: one.operation)
        },
    )
    last = [one for one in read_history(path) if one.arch == entry.arch][-1:]
    if [one.model_copy(update={"time": entry.time}) for one in last] != [entry]:
        try:
            _append_line(path, entry.model_dump_json().encode())
        except OSError as error:
            print(f"warning: {path}: this publication is not in the history: {error}", file=sys.stderr, flush=True)


def _append_line(path: Path, line: bytes) -> None:
    """Append a line, on a new line even after one that was torn, and wait until it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _open_history(path, "ab+") as stream:
        if stream.seek(0, os.SEEK_END):
            stream.seek(-1, os.SEEK_END)
            line = (b"" if stream.read() == b"\n" else b"\n") + line
        stream.write(line + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def _open_history(path: Path, mode: str) -> BinaryIO:
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "this is no file; remove it", str(path))
    return cast(BinaryIO, path.open(mode))


def read_history(path: Path) -> list[Published]:
    """All publications, the oldest first; a warning names the lines that are none, such as one that a kill tore."""
    publications, others = [], []
    try:
        with _open_history(path, "rb") as stream:
            lines = stream.read().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        print(f"warning: the history cannot be read: {error}", file=sys.stderr, flush=True)
        return []
    for number, line in enumerate(lines, 1):
        try:
            publications.append(Published.model_validate_json(line))
        except ValidationError:
            others += [number] if line.strip() else []
    if others:
        numbers = f"line {others[0]}" + (f" and {len(others) - 1} more" if others[1:] else "")
        print(f"warning: {path}, {numbers}: this is no publication and is skipped", file=sys.stderr, flush=True)
    return publications


def changes_since_last(publications: Sequence[Published], shown: Mapping[str, PublishedFigures]) -> str | None:
    """What differs from the publication before; None unless the last of the same arch has the figures ``shown``."""
    if len(publications) < 2 or publications[-1].operations != shown:
        return None
    before, last = publications[-2:]
    old = {name: f"{figures.mean:.2f} ->" for name, figures in before.operations.items()}
    means = ", ".join(f"{name} {old.get(name, 'new:')} {figures.mean:.2f} %" for name, figures in shown.items())
    pairs = {
        "commit": (before.commit, last.commit),
        "config": (before.config_sha256, last.config_sha256),
        "data": (before.data_sha256, last.data_sha256),
    }
    changed = ", ".join(name for name, (old, new) in pairs.items() if old != new) or "none of commit, config, data"
    return f"{before.time[:10]}, commit {(before.commit or 'unknown')[:9]}: {means}; changed: {changed}"
