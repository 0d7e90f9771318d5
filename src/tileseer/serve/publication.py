"""Publishing: training, validation and serving become one model directory, and ``results/history.jsonl`` a line longer.

The history has times, so nothing is made from it and no hash covers it.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

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

    The directory is built beside its place and renamed into it. ``UserError`` unless there is one of each for every
    operation, and all are of one arch, device and device kind.
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
        index = Index(format=model_files.FORMAT, **device, operations=operations, sha256=model_files.file_digests(made))
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


def _copy(source: Path, names: Sequence[str], folder: Path, fix: str) -> None:
    for name in names:
        if not (source / name).is_file():
            raise UserError(f"{source / name}: there is no such file; {fix}")
        seal.check_seal(source / name)
        shutil.copyfile(source / name, folder / name)


def append_publication(
    path: Path, earlier: Sequence[Published], index: Index, reports: Sequence[Path], provenance: Provenance
) -> None:
    """Append a publication to the file of the earlier ones, unless the last one of the arch was the same."""
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
    last = [one for one in earlier if one.arch == entry.arch][-1:]
    if [one.model_copy(update={"time": entry.time}) for one in last] != [entry]:
        with path.open("a") as stream:
            stream.write(entry.model_dump_json() + "\n")


def read_history(path: Path) -> list[Published]:
    """All publications, the oldest first; none where there is no file."""
    publications = []
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else (), 1):
        try:
            content = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}, line {number}: this is no JSON ({error}); remove the line") from error
        publications.append(validate_table(content, Published, f"{path}, line {number}"))
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
