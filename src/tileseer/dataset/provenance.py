"""Origin of a dataset, in the metadata of its file, and of a recording, in ``recording.json``."""

import json
from pathlib import Path
from typing import Annotated

import pyarrow as pa
from pydantic import Field

from tileseer.config.names import Arch, Library, OperationName, Product
from tileseer.core.errors import UserError
from tileseer.core.tables import StrictModel, validate_table
from tileseer.measure.device import DeviceKind

SCHEMA_VERSION = 4
KEY = "tileseer"


class BetweenRuns(StrictModel):
    """Difference between the times of two runs."""

    relative: Annotated[float, Field(gt=0)]
    """Standard deviation of a time from run to run, over the time."""
    pairs: Annotated[int, Field(ge=1)]
    """Pairs that were measured in both runs."""
    source: str
    """The runs, and where their log is."""


class Recording(StrictModel):
    """The content of ``recording.json``."""

    arch: Arch
    device: Product
    operations: Annotated[list[OperationName], Field(min_length=1)]
    library: Library | None = None
    """Library that offered the candidates."""
    latency: str
    """What ``latency_ms`` of the dataset is."""
    provenance: dict[str, str]
    """Everything else that a number depends on, in words."""
    between_runs: dict[OperationName, BetweenRuns] = Field(default_factory=dict)
    """By operation; absent where nothing was measured twice."""

    def description(self) -> dict[str, str]:
        """Everything that explains the times."""
        return {"times": self.latency, **self.provenance}


class DatasetProvenance(StrictModel):
    """Origin of the rows of a dataset."""

    schema_version: int = SCHEMA_VERSION
    arch: Arch
    operation: OperationName
    device: Product
    device_kind: DeviceKind
    measurement_id: str
    rows_by_status: dict[str, int]
    library: Library | None = None
    """Library that offered the candidates of a measured dataset, and its version."""
    recording: Recording | None = None
    """Of a replayed recording."""
    between_runs: BetweenRuns | None = None
    """Absent where it was not measured, and where two runs never differ."""

    def metadata(self) -> dict[str, str]:
        """Metadata of the dataset's file."""
        content = self.model_dump(exclude_defaults=True) | {"schema_version": self.schema_version}
        return {KEY: json.dumps(content, sort_keys=True)}


def provenance_of(table: pa.Table, path: Path) -> DatasetProvenance:
    """Provenance of the dataset ``table``, read from ``path``; ``UserError`` if it is not ours."""
    try:
        content = json.loads((table.schema.metadata or {})[KEY.encode()])
        version = content["schema_version"]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: this is no Tileseer dataset: its provenance is missing") from error
    if version != SCHEMA_VERSION:
        raise UserError(
            f"{path}: schema version {version}, but {SCHEMA_VERSION} is read here; make it again: give the same "
            "command once more, or first `make clean`, which keeps what was measured"
        )
    return validate_table(content, DatasetProvenance, f"{path}: provenance")
