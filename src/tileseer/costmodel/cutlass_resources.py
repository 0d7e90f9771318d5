"""What a CUTLASS kernel takes of an SM, as far as it is known without a compiler: the operands' shared memory."""

import numpy as np
import pandas as pd

from tileseer.costmodel.coefficients import Coefficients
from tileseer.gpus.hardware import Hardware
from tileseer.kernels.cutlass.kernel import shared_bytes

_SIZES = ("tile_m", "tile_n", "tile_k", "stages")


def estimate(candidates: pd.DataFrame, hardware: Hardware, coefficients: Coefficients) -> pd.DataFrame:
    """Shared memory of Q candidates and whether it fits; registers and occupancy are NaN."""
    used = np.array([shared_bytes(*row) for row in zip(*(candidates[f] for f in _SIZES), strict=True)], np.int64)
    room = hardware.lds_bytes
    fault = [f"{size} bytes of shared memory, {room} a block" if size > room else "" for size in used]
    unknown = np.full(len(candidates), np.nan)
    return pd.DataFrame(
        {"vgprs": unknown, "lds_bytes": used, "occupancy": unknown, "fault": fault}, index=candidates.index
    )
