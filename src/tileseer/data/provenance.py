"""What was measured, on what and how: ``recording.json`` of a dataset."""

from typing import Annotated

from pydantic import Field, field_validator

from tileseer.core.documents import Document
from tileseer.core.strict_tables import StrictModel
from tileseer.facts.hardware import of_its_arch
from tileseer.facts.names import Arch, Library, OperationName, Product
from tileseer.measure.device import DeviceKind


class BetweenRuns(StrictModel):
    """Difference between the times of two runs."""

    relative: Annotated[float, Field(gt=0)]
    """Standard deviation of a time from run to run, over the time."""
    pairs: Annotated[int, Field(ge=1)]
    """Pairs that were measured in both runs."""
    source: str
    """The runs, and where their log is."""


class Taken(StrictModel):
    """With what times were taken that changes from release to release, as far as it is known."""

    library: str | None = None
    """Library that ran the candidates, with its version."""
    date: str | None = None
    """Of the measurement, or of what it is known by."""
    driver: str | None = None
    """Version of the GPU's driver."""

    def __str__(self) -> str:
        return ", ".join(f"{name} {value or 'not known'}" for name, value in self)


class Recording(Document):
    """The content of ``recording.json``."""

    arch: Arch
    device: Product
    device_kind: DeviceKind | None = None
    """Absent of times that were recorded elsewhere."""
    measurement_id: str | None = None
    """16 hex digits of all that a time depends on besides its pair; those of the pairs' file where it is absent."""
    operations: Annotated[list[OperationName], Field(min_length=1)]
    library: Library | None = None
    """Library that offered the candidates, and its version."""
    taken: Taken | None = None
    """Absent where nothing of it is known."""
    latency: str
    """What a time is."""
    provenance: dict[str, str]
    """Everything else that a number depends on, in words."""
    between_runs: dict[OperationName, BetweenRuns] = Field(default_factory=dict)
    """By operation; absent where nothing was measured twice, and where two runs never differ."""

    _of_its_arch = field_validator("device")(of_its_arch)

    @property
    def kind(self) -> DeviceKind:
        """Where the times come from."""
        return self.device_kind or "recorded"

    def description(self) -> dict[str, str]:
        """Return everything that explains the times."""
        taken = {"taken with": str(self.taken)} if self.taken else {}
        return {"times": self.latency, **taken, **self.provenance}
