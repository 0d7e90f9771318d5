"""What kernels take of a compute unit, by formula: the estimate of each family that has formulas."""

from collections.abc import Callable

import pandas as pd

from tileseer.costmodel import ck_tile_resources, cutlass_resources
from tileseer.costmodel.coefficients import Coefficients
from tileseer.gpus.hardware import Hardware

RESOURCES: dict[str, Callable[[pd.DataFrame, Hardware, Coefficients], pd.DataFrame]] = {
    "ck_tile": ck_tile_resources.estimate,
    "cutlass": cutlass_resources.estimate,
}
"""(Q candidates, GPU, coefficients) to a row each: ``vgprs``, ``lds_bytes``, ``occupancy``, ``fault``.

What a formula does not know is NaN.
"""
REGISTERS = ("ck_tile",)
"""Families whose formulas know registers and occupancy."""
