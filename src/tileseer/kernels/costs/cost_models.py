"""The cost model of each family whose kernels are timed by formula."""

from collections.abc import Callable

import pandas as pd

from tileseer.gpus.hardware import Hardware
from tileseer.kernels.ck_tile import cost as ck_tile
from tileseer.kernels.costs.coefficients import Coefficients
from tileseer.kernels.costs.timing import KernelTerms
from tileseer.kernels.cutlass import cost as cutlass

COST_MODELS: dict[str, Callable[[pd.DataFrame, pd.DataFrame, str, Hardware, Coefficients], KernelTerms]] = {
    "ck_tile": ck_tile.terms,
    "cutlass": cutlass.terms,
}
"""(P problems of one direction, Q candidates, direction, GPU, coefficients) to the terms of the formula."""
