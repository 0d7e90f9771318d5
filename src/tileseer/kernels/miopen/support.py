"""Which solvers can run which problems, as far as their limits are simple (``solvers.SOLVERS``)."""

import numpy as np
import pandas as pd

from tileseer.kernels.miopen.solvers import SOLVERS
from tileseer.kernels.rules import OPERATION, Columns, Rule, SupportRules

# p: problem columns [P, 1]; k: columns of kernel classes [1, Q].
RULES: tuple[Rule, ...] = (
    OPERATION,
    Rule("filter", "the solver is written for another filter",
         lambda p, k: (k["filter_h"] == 0) | ((p["Z"] == 1) & (p["Y"] == k["filter_h"]) & (p["X"] == k["filter_w"]))),
    Rule("stride", "the solver is written for another stride",
         lambda p, k: (k["stride"] == 0) | ((p["stride_h"] == k["stride"]) & (p["stride_w"] == k["stride"]))),
    Rule("padding", "the solver does not support padding", lambda p, k: k["padded"] | (p["padding"] == 0)),
    Rule("groups", "the solver does not support groups", lambda p, k: k["grouped"] | (p["G"] == 1)),
    Rule("dilation", "the solver does not support dilation", lambda p, k: k["dilated"] | (p["dilation"] == 1)),
    Rule("layout", "the solver does not support the layout",
         lambda p, k: (k["nchw"] & (p["layout"] == 0)) | (k["nhwc"] & (p["layout"] == 1))),
)  # fmt: skip


def _read_of_kernels(candidates: pd.DataFrame, wave_size: int) -> pd.DataFrame:
    """What the rules read of solvers."""
    facts = [SOLVERS[name] for name in candidates["solver"]]
    filters = [[int(extent) for extent in (one.filter or "0x0").split("x")] for one in facts]
    table = pd.DataFrame(filters, columns=["filter_h", "filter_w"], index=candidates.index)
    for name in ("stride", "padded", "grouped", "dilated", "nchw", "nhwc"):
        table[name] = [getattr(one, name) for one in facts]
    return table


def _read_of_problems(dims: Columns, variant: str, element_size: np.ndarray | float) -> dict[str, np.ndarray]:
    """What the rules read of P problems beside their signature; ``dims``: 19 dimensions and layout, int64 [P] each."""
    columns = {name: dims[name] for name in ("G", "Z", "Y", "X", "stride_h", "stride_w", "layout")}
    columns["padding"] = np.maximum(np.maximum(dims["pad_d"], dims["pad_h"]), dims["pad_w"])
    columns["dilation"] = np.maximum(np.maximum(dims["dilation_d"], dims["dilation_h"]), dims["dilation_w"])
    return columns


MIOPEN_SUPPORT = SupportRules(RULES, _read_of_kernels, _read_of_problems)
