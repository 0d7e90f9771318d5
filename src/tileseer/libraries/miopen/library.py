"""The door to the library (``kernels.library.Library`` says what the parts are)."""

from tileseer.libraries.library import Library, Loss
from tileseer.libraries.miopen import features
from tileseer.libraries.miopen.kernel import Solver
from tileseer.libraries.miopen.rules import RULES

BY_BATCH = "at most; estimated: the fastest solver of a layer at {} the batch, on an MI210 and an MI300X"
"""A GPU with half the compute units stands to a layer about as the whole one to twice its batch."""
MIOPEN = Library(
    "miopen",
    "MIOpen",
    "*_miopen",
    Solver,
    RULES,
    {"miopen": features.MIOPEN_FEATURES, "miopen_layouts": features.MIOPEN_LAYOUTS},
    layout="NCHW",
    has_networks=False,
    use="nothing to compile; `tileseer export miopen` writes the picks into MIOpen's own database (docs/amd.md)",
    naming="A candidate ends with MIOpen's name of the solver, by which `miopenConvolution*GetSolution` has it.",
    borrowed=(
        Loss(1.1, "an MI210's models on an MI250, unseen layers; 0.0 to 6.1 points by operation", 1.7, 8.6),
        Loss(2.0, BY_BATCH.format("twice"), 5.3, 18.8),
        Loss(4.0, BY_BATCH.format("four times"), 6.7, 27.9),
    ),
)
