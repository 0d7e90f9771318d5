"""The JSON files of a serving folder."""

from typing import Annotated

from pydantic import Field

from tileseer.conv.problem import INT32_MAX
from tileseer.core.documents import Document
from tileseer.model.schema import FeatureSetName, Origin, Summary
from tileseer.serving.kernel_list import KernelEntry

_Positive = Annotated[int, Field(ge=1, le=INT32_MAX)]


class Stage(Document):
    """A place in the trees where candidates leave."""

    trees: _Positive
    """After so many."""
    margin: Annotated[float, Field(ge=0)]
    """Those whose sum is further than this below the best one's."""


class NoEstimates(Document):
    """``resource_estimates.json`` of a family without formulas; else the file holds ``Coefficients``."""

    meaning: str = "this family's resources are what its compiler reported; none are estimated"


class Gaps(Document):
    """How far below its pick a near-best candidate stands, over training problems."""

    gap: list[float]
    """Rising, in units of the problem's scores."""
    share: list[float]
    """Of the weight up to each gap."""


class Coverage(Document):
    """What the sets of one confidence reach on the validation problems; shares in percent."""

    confidence: float
    coverage: float
    coverage_by_group: float
    """Mean over families of networks of each one's share, which is what is promised."""
    mean_set_size: float
    median_set_size: float
    largest_set_size: int


class Guarantee(Document):
    """Calibration of ``select --confidence`` (``serving.guarantee``)."""

    meaning: str
    near: float
    """Efficiency from which a candidate is near-best."""
    groups: int
    gaps: dict[str, Gaps]
    """By ``2d``, ``3d`` and ``all``."""
    validation: list[Coverage]
    """Empty where no problems were set aside."""


class Efficiencies(Document):
    """Efficiency of the picks on the validation problems."""

    full_model: Summary
    served_model: Summary
    served_from_pruned_set: Summary


class Losses(Document):
    """Mean efficiency lost against the full model, in points."""

    served_model: float
    served_from_pruned_set: float


class Cost(Document):
    """What serving costs on the validation problems."""

    n_problems: int
    efficiency: Efficiencies
    loss_of_mean: Losses
    same_pick: float
    """Problems with the pick of the full model, percent."""


class Serving(Origin):
    """How the model is served, and its figures."""

    feature_set: FeatureSetName
    trees: int
    finalists: list[Annotated[int, Field(ge=0, le=INT32_MAX)]]
    """Rows of ``candidates.parquet`` that are asked first; the others only where none of these can run."""
    stages: list[Stage]
    known_problems: int
    validation: Cost | None
    """None where no problems were set aside: the served model has learnt from all of them."""
    guarantee: Guarantee


class Kernels(Origin):
    """The kernels of the pool, and the few that are enough."""

    meaning: str
    allowed_loss: float
    pool_size: int
    pruned_size: int
    oracle_within_pruned: dict[str, Summary]
    """By split of the problems."""
    pruned: list[str]
    kernels: list[KernelEntry]
