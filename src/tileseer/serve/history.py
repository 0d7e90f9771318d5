"""What was published when, and how good it was: ``results/history.jsonl``, one JSON object per line.

The file has times, so nothing is made from it and no hash covers it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tileseer.core import documents
from tileseer.core.documents import Document
from tileseer.core.errors import UserError
from tileseer.core.tables import validate_table
from tileseer.learn.index import Index
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


class Published(Document):
    """One publication."""

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


def figures(report: Validation) -> PublishedFigures:
    """The figures of a validation report."""
    efficiency = report.efficiency
    return PublishedFigures(
        n_problems=report.n_problems,
        mean=efficiency.mean,
        median=efficiency.median,
        p10=efficiency.p10,
        without_model=max(baseline.efficiency.mean for baseline in report.baselines.values()),
        best_possible=report.noise_floor.best.efficiency.mean,
    )


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
        operations={report.operation: figures(report) for report in sorted(validated, key=lambda one: one.operation)},
    )
    last = [one for one in earlier if one.arch == entry.arch][-1:]
    if [one.model_copy(update={"time": entry.time}) for one in last] != [entry]:
        with path.open("a") as stream:
            stream.write(entry.model_dump_json() + "\n")


def read_history(path: Path) -> list[Published]:
    """All publications, the oldest first; none where there is no file."""
    lines = path.read_text().splitlines() if path.exists() else []
    publications = []
    for number, line in enumerate(lines, 1):
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
    means = ", ".join(
        f"{name} {before.operations[name].mean:.2f} -> {figures.mean:.2f} %" if name in before.operations
        else f"{name} is new"
        for name, figures in shown.items()
    )  # fmt: skip
    pairs = {
        "commit": (before.commit, last.commit),
        "config": (before.config_sha256, last.config_sha256),
        "data": (before.data_sha256, last.data_sha256),
    }
    changed = ", ".join(name for name, (old, new) in pairs.items() if old != new) or "none of commit, config, data"
    return f"{before.time[:10]}, commit {(before.commit or 'unknown')[:9]}: {means}; changed: {changed}"
