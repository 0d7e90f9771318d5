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
from typing import Any, BinaryIO, Self, cast

from pydantic import ValidationError

from tileseer.core import documents, seal
from tileseer.core.atomic import building
from tileseer.core.documents import Document
from tileseer.core.errors import UserError
from tileseer.core.tables import validate_table
from tileseer.learn import model_files
from tileseer.learn.model_files import INDEX, PAGE, PROVENANCE, SERVING, SPEC, Entry, Index
from tileseer.learn.model_schema import OF_A_DEVICE, Origin, same_origin
from tileseer.serve.evaluation import Evaluation
from tileseer.serve.model_page import model_page, read_evaluations
from tileseer.serve.provenance import Provenance


class PublishedFigures(Document):
    """How good the picks of one operation are, efficiencies in percent."""

    n_problems: int
    without_candidate: int = 0
    """More layers that no candidate can run."""
    mean: float
    median: float
    p10: float
    min: float | None = None
    without_model: float
    """Mean of the best choice that needs no model, such as one fixed kernel."""
    best_possible: float
    """Mean of a perfect model, or where that is unknown of a perfect selector."""

    @classmethod
    def of(cls, evaluation: Evaluation) -> Self:
        """Return the figures of an evaluation."""
        return cls(
            n_problems=evaluation.layers,
            without_candidate=evaluation.without_candidate,
            **evaluation.first.model_dump(),
            without_model=evaluation.best_baseline.efficiency.mean,
            best_possible=evaluation.possible.mean,
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
    models_sha256: str = ""
    """Of the index of the directory, which has the hashes of all files: it tells which publication is on disk."""


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


def append_publication(path: Path, models: Path, provenance: Provenance) -> None:
    """Append the publication of ``models`` to the history.

    What is wrong with the history is a warning: it never stops a publication.
    """
    config = json.dumps(provenance.config, sort_keys=True).encode()
    index = model_files.parse_index(models)
    evaluations = read_evaluations(models, index)
    entry = Published(
        time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        arch=index.arch,
        device_kind=index.device_kind,
        commit=provenance.source.commit,
        changed_files=len(provenance.source.uncommitted or ()),
        config_sha256=hashlib.sha256(config).hexdigest(),
        data_sha256={name: next(iter(made.inputs.values())) for name, made in provenance.operations.items()},
        operations={
            name: PublishedFigures.of(evaluations[name]) for name in provenance.operations if name in evaluations
        },
        models_sha256=digest_of_models(models),
    )
    try:
        _append_line(path, entry.model_dump_json().encode())
    except OSError as error:
        print(f"warning: {path}: this publication is not in the history: {error}", file=sys.stderr, flush=True)


def digest_of_models(models: Path) -> str:
    """Return the SHA-256 of the index of a model directory; empty without one."""
    path = models / INDEX
    return seal.file_digest(path) if path.is_file() else ""


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
    """Return all publications, oldest first; a warning names lines that are none, such as one that a kill tore."""
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


def changes_since_last(publications: Sequence[Published], models_sha256: str) -> str | None:
    """Say whose mean differs from that of the last publication of other models, and what else; None without any.

    The last publication is of ``models_sha256``, else None too.
    """
    others = [one for one in publications if one.models_sha256 != models_sha256]
    if not others or publications[-1].models_sha256 != models_sha256:
        return None
    before, last = others[-1], publications[-1]
    old, new = ({name: f"{one.mean:.2f}" for name, one in made.operations.items()} for made in (before, last))
    means = [f"{name} {old.get(name, 'none')} -> {mean} %" for name, mean in new.items() if old.get(name) != mean]
    if not means:
        return None
    pairs = {
        "commit": (before.commit, last.commit),
        "config": (before.config_sha256, last.config_sha256),
        "data": (before.data_sha256, last.data_sha256),
    }
    changed = ", ".join(name for name, (earlier, now) in pairs.items() if earlier != now)
    since = f"{before.time[:10]}, commit {(before.commit or 'unknown')[:9]}: {', '.join(means)}"
    return f"{since}; changed: {changed}" if changed else since
