"""The cost model of each family whose kernels are timed by formula."""

from collections.abc import Callable

import pandas as pd

from tileseer.costmodel import ck_tile, cutlass
from tileseer.costmodel.coefficients import Coefficients
from tileseer.costmodel.timing import KernelTerms
from tileseer.gpus.hardware import Hardware

COST_MODELS: dict[str, Callable[[pd.DataFrame, pd.DataFrame, str, Hardware, Coefficients], KernelTerms]] = {
    "ck_tile": ck_tile.terms,
    "cutlass": cutlass.terms,
}
"""(P problems of one direction, Q candidates, direction, GPU, coefficients) to the terms of the formula."""
