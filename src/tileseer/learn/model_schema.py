"""The JSON files of a training folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Field

from tileseer.core.documents import Document, Scalar, read_document
from tileseer.core.errors import UserError
from tileseer.data.provenance import Taken
from tileseer.facts.hardware import Hardware
from tileseer.facts.names import Arch, Library, OperationName, Product
from tileseer.learn import model_files
from tileseer.learn.evidence import LearntEvidence
from tileseer.learn.features import Features, feature_sets
from tileseer.learn.formula import FormulaPrior
from tileseer.measure.device import DeviceKind


def _known_feature_set(name: str) -> str:
    if name not in (known := feature_sets()):
        raise ValueError(f"this release has {', '.join(known)}; use the release that made the models")
    return name


FeatureSetName = Annotated[str, AfterValidator(_known_feature_set)]


def percent(share: float | np.floating) -> float:
    """Return ``share`` as a percentage with four decimals."""
    return round(100 * float(share), 4)


class Summary(Document):
    """Efficiencies of several picks, in percent."""

    mean: float
    median: float
    p10: float
    min: float

    @classmethod
    def of(cls, values: np.ndarray) -> Summary:
        """Return the summary of efficiencies (0..1), with four decimals; zeros of none."""
        values = values if len(values) else np.zeros(1)
        figures = values.mean(), np.median(values), np.percentile(values, 10), values.min()
        return cls(**dict(zip(cls.model_fields, map(percent, figures), strict=True)))


class Origin(Document):
    """What a file of a model belongs to."""

    operation: OperationName
    arch: Arch
    device: Product
    device_kind: DeviceKind
    """Where the times come from that the model learnt."""

    @classmethod
    def of(cls, source: object) -> Origin:
        """Return the origin of what has these four fields: a spec, measurements."""
        return Origin(**{name: getattr(source, name) for name in Origin.model_fields})


class Contribution(Document):
    """A feature that made a pick look better than another candidate, or worse if negative."""

    feature: str
    contribution: float
    of_pick: float
    of_best: float


OF_A_DEVICE = ("arch", "device", "device_kind")


def same_origin(
    path: Path, value: object, expected: object, says: object, fix: str, fields: Iterable[str] = OF_A_DEVICE
) -> None:
    """Raise ``UserError`` unless ``value``, read from ``path``, has the origin of the file ``says``."""
    for field in fields:
        if getattr(value, field) != getattr(expected, field):
            raise UserError(
                f"{path}: {field} is {getattr(value, field)!r}, but {says} says {getattr(expected, field)!r}; {fix}"
            )


class FeatureSpec(Document):
    """Features, target and parameters of a model: what a reader of it needs."""

    op_type: str
    feature_encoding_version: int
    operation: OperationName
    variant: str
    dtype: str
    arch: Arch
    device: Product
    device_kind: DeviceKind
    feature_set: FeatureSetName
    feature_names: list[str]
    """In the order of the model's columns."""
    categorical_features: list[str]
    hardware: dict[str, int]
    """The constructor arguments of the reference's feature engine, in its words."""
    targets: list[str]
    log_targets: list[str]
    """Readers must not clamp these at 0: scores are logarithms. Their order is the ranking under any exponential."""
    target: str
    """Name of what is predicted."""
    target_meaning: str | None = None
    formula: FormulaPrior | None = None
    """What scores start from, where it is the device's formula."""
    library: Library | None = None
    """Library that offers the candidates, and its version: of another one the model knows nothing."""
    own_margins: list[float] | None = None
    """Lead in score with which a candidate replaces the choice of the library that offers it, for each of
    ``kinds.MARGIN_KINDS``."""
    layouts: list[str] | None = None
    """Of the problems (``problem.LAYOUTS``, ``DEEP_LAYOUTS``); None: that of the library's kernels."""
    source: str | None = None
    """Whose times these are, where others published them."""
    taken: Taken | None = None
    """As of the recording."""
    evidence: LearntEvidence
    """What is known of problems by their distance from those that were measured and by their kind."""
    params: dict[str, Scalar]
    """Settings of the training."""


def read_features(folder: Path) -> Features:
    """Return the features of the model in a folder; ``UserError`` for some that this release has not."""
    spec = read_document(folder / model_files.SPEC, FeatureSpec)
    return Features.of(spec.feature_set, read_document(folder / model_files.HARDWARE, Hardware), spec.feature_names)


class Manifest(Origin):
    """Counts, settings and origin of the data that a model was trained on."""

    data_rows: int
    pool_rows: int
    valid_rows: int
    training_rows: int
    unique_problems: int
    layer_families: int
    candidates: int
    learner: dict[str, Scalar]
    """What its learner says of how it was made."""
    settings: dict[str, Scalar]
    prior: Origin | None = None
    """What the prior was trained for."""
    source: str | None = None
    """Whose times these are, where others published them."""
    dataset: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of the tables of the dataset, by name."""
    files: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of the other files of the model, by name."""
