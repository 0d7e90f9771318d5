"""CUTLASS kernels in the words of the simulated device, which was made for CK Tile.

Nothing here was fitted: each kernel is timed as the nearest CK Tile kernel (docs/internals/simulated-device.md).
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from tileseer.facts.hardware import Hardware
from tileseer.libraries.ck_tile import cost as nearest
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.libraries.costs.timing import KernelTerms
from tileseer.libraries.cutlass.kernel import shared_bytes
from tileseer.problems.shapes import element_bytes

INSTRUCTION = 16
"""Rows and columns of the matrix instruction that is assumed. That of the templates has 8 columns, for which the
formulas have a penalty that AMD GPUs pay."""
SAID: dict[str, Any] = {
    "layout": "nhwgc",
    # The copy pipeline brings operands from global memory straight to shared memory, as this main loop does to LDS.
    "pipeline": "comp_async", "double_smem_buffer": True,
    "scheduler": "intrawave", "epilogue": "cshuffle", "specialization": "default", "explicit_gemm": False,
    "num_wave_groups": 1, "num_groups_to_merge": 1, "two_stage": False, "split_image": False,
    "streamk": "none", "streamk_persistent": False, "pad_m": True, "pad_n": True, "pad_k": True,
}  # fmt: skip
"""Fields of a CK Tile kernel that a CUTLASS kernel lacks, or has other values of."""


def terms(
    problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, hardware: Hardware, coefficients: Coefficients
) -> KernelTerms:
    """Return costs, identities and verdicts of Q candidates (fields of ``KernelConfig``, ``split_k``).

    Shared memory grows with the stages and bounds the resident blocks. Its traffic adds to a k-step: every warp reads
    its rows and columns, and the tile is written once. On recorded H200 times it does not hide. Swizzle, the iterator
    and group modes have no word there: kernels that differ in nothing else take exactly the same time.
    """
    alike = candidates.assign(warp_tile_m=INSTRUCTION, warp_tile_n=INSTRUCTION, warp_tile_k=INSTRUCTION, **SAID)
    near = nearest.terms(problems, alike, variant, hardware, coefficients)
    used = shared_bytes(candidates).to_numpy()
    fitting = np.minimum(near.columns["occupancy"], np.maximum(np.floor(hardware.lds_bytes / used), 1.0))
    size = {name: candidates[name].to_numpy(np.float64) for name in ("tile_m", "tile_n", "tile_k", "wave_m", "wave_n")}
    rows = size["tile_m"] * (size["wave_n"] + 1) + size["tile_n"] * (size["wave_m"] + 1)
    cycles = rows * size["tile_k"] * element_bytes(candidates["dtype"]) / hardware.lds_bytes_per_clock
    slower = {name: near.columns[name] + cycles for name in ("step_latency", "step_cost")}
    return replace(near, columns={**near.columns, **slower, "occupancy": fitting})


def estimate(candidates: pd.DataFrame, hardware: Hardware, coefficients: Coefficients) -> pd.DataFrame:
    """Estimate shared memory, that of the operands: it is all that is known without a compiler."""
    used, room = shared_bytes(candidates).to_numpy(), hardware.lds_bytes
    fault = [f"{size} bytes of shared memory, {room} a block" if size > room else "" for size in used]
    columns = {"vgprs": np.nan, "lds_bytes": used, "occupancy": np.nan, "fault": fault}
    return pd.DataFrame(columns, index=candidates.index)
