"""The files of a serving folder beside the header and its arrays."""

import pyarrow as pa

from tileseer.core import parquet
from tileseer.core.documents import Document
from tileseer.facts.names import KernelName
from tileseer.learn.model_schema import Origin, Summary
from tileseer.problems.problem import DIMS

KNOWN_PROBLEMS = parquet.schema(
    [
        *((name, pa.int32()) for name in DIMS),
        ("candidate", pa.string()),
        ("row", pa.int32()),
        ("tflops", pa.float64()),
        ("timed", pa.int32()),
        ("device_kind", pa.string()),
    ]
)
"""With ``layout`` (its place in ``problem.LAYOUTS``) behind the dimensions if the model was trained with layouts. One
row a measured problem: its fastest candidate, that one's row in candidates.parquet, how many candidates ran, and where
the time came from. Where exactly a problem was measured, no model is needed."""


GOLDEN_ROWS = 20
"""Of each model, fewer where fewer problems were measured."""
GOLDEN_PROBLEMS = parquet.schema(
    [
        *((name, pa.int32()) for name in DIMS),
        ("candidate", pa.string()),
        ("row", pa.int32()),
        ("score", pa.float64()),
        ("features", pa.list_(pa.float64())),
    ]
)
"""With ``layout`` as in ``KNOWN_PROBLEMS``. One row a problem: the pick of the model alone, whatever was measured, its
row in candidates.parquet, its score, and its features in the order of ``feature_names`` of feature_spec.json."""


class NoEstimates(Document):
    """``resource_estimates.json`` of a library without formulas; else the file holds ``Coefficients``."""

    meaning: str = "this family's resources are what its compiler reported; none are estimated"


class KernelEntry(Document):
    """A kernel as a dispatcher finds it."""

    kernel: KernelName
    aliases: list[KernelName] | None = None
    """Kernels with the same machine code, of which this one was measured and is offered."""
    header: str | None = None
    wrapper: str | None = None
    unit: str | None = None
    """Source file of a kernel that is compiled as one."""
    registry_key: dict[str, str | int | bool]
    """How the library finds it; of a library that is not compiled here, the fields of the name."""


class Kernels(Origin):
    """The kernels of the pool, and the few that are enough."""

    meaning: str
    allowed_loss: float
    pool_size: int
    pruned_size: int
    oracle_within_pruned: dict[str, Summary]
    """By split of the problems."""
    pruned: list[KernelName]
    kernels: list[KernelEntry]
