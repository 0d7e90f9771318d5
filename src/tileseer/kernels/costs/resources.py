"""What kernels take of a compute unit, by formula: the estimate of each family that has formulas."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from tileseer.gpus.hardware import Hardware
from tileseer.kernels.ck_tile import resources as ck_tile_resources
from tileseer.kernels.costs.coefficients import Coefficients
from tileseer.kernels.cutlass.kernel import shared_bytes


def estimate_cutlass(candidates: pd.DataFrame, hardware: Hardware, coefficients: Coefficients) -> pd.DataFrame:
    """The operands' shared memory is all that is known without a compiler."""
    used, room = shared_bytes(candidates).to_numpy(), hardware.lds_bytes
    fault = [f"{size} bytes of shared memory, {room} a block" if size > room else "" for size in used]
    columns = {"vgprs": np.nan, "lds_bytes": used, "occupancy": np.nan, "fault": fault}
    return pd.DataFrame(columns, index=candidates.index)


RESOURCES: dict[str, Callable[[pd.DataFrame, Hardware, Coefficients], pd.DataFrame]] = {
    "ck_tile": ck_tile_resources.estimate,
    "cutlass": estimate_cutlass,
}
"""(Q candidates, GPU, coefficients) to a row each: ``vgprs``, ``lds_bytes``, ``occupancy``, ``fault``.

What a formula does not know is NaN.
"""
REGISTERS = ("ck_tile",)
"""Families whose formulas know registers and occupancy."""
