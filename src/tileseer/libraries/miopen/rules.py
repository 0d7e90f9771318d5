"""Which solvers can run which problems, as far as their limits are simple (``solvers.facts_of``)."""

import numpy as np
import pandas as pd

from tileseer.libraries.miopen.solvers import facts_of
from tileseer.libraries.rules import OPERATION, Columns, Rule, Rules
from tileseer.problems.shapes import tensor_elements

TWO_GIB = 2**31
"""Bytes that an offset of 32 bits with a sign does not reach."""
_BOTH = ("kernel", "problem")
_EVERY_RULE = (
    OPERATION,
    Rule("filter", "the solver is written for another filter", _BOTH,
         lambda k, p: (k["filter_h"] == 0) | ((p["Z"] == 1) & (p["Y"] == k["filter_h"]) & (p["X"] == k["filter_w"]))),
    Rule("stride", "the solver is written for another stride", _BOTH,
         lambda k, p: (k["stride"] == 0) | ((p["stride_h"] == k["stride"]) & (p["stride_w"] == k["stride"]))),
    Rule("padding", "the solver does not support padding", _BOTH, lambda k, p: k["padded"] | (p["padding"] == 0)),
    Rule("groups", "the solver does not support groups", _BOTH, lambda k, p: k["grouped"] | (p["G"] == 1)),
    Rule("dilation", "the solver does not support dilation", _BOTH, lambda k, p: k["dilated"] | (p["dilation"] == 1)),
    Rule("layout", "the solver does not support the layout", _BOTH,
         lambda k, p: (k["nchw"] & (p["layout"] == 0)) | (k["nhwc"] & (p["layout"] == 1))),
    Rule("offsets", "the solver counts in 32 bits, and a tensor has 2 GiB or more", _BOTH,
         lambda k, p: (k["narrow"] == 0) | (p["largest_bytes"] < TWO_GIB)),
)  # fmt: skip


_FACTS = ("stride", "padded", "grouped", "dilated", "nchw", "nhwc", "narrow")


def _read_of_kernels(candidates: pd.DataFrame, wave_size: int) -> dict[str, np.ndarray]:
    facts = [facts_of(name) for name in candidates["solver"]]
    filters = np.array([[int(extent) for extent in (one.filter or "0x0").split("x")] for one in facts]).reshape(-1, 2)
    columns = {name: np.array([getattr(one, name) for one in facts]) for name in _FACTS}
    return columns | {"filter_h": filters[:, 0], "filter_w": filters[:, 1]}


def _read_of_problems(dims: Columns, variant: str, element_size: np.ndarray | float) -> dict[str, np.ndarray]:
    columns = {name: dims[name] for name in ("G", "Z", "Y", "X", "stride_h", "stride_w", "layout")}
    columns["padding"] = np.maximum(np.maximum(dims["pad_d"], dims["pad_h"]), dims["pad_w"])
    columns["dilation"] = np.maximum(np.maximum(dims["dilation_d"], dims["dilation_h"]), dims["dilation_w"])
    inputs, filters, outputs = tensor_elements(dims)
    columns["largest_bytes"] = np.maximum(np.maximum(inputs, filters), outputs) * element_size
    return columns


RULES = Rules(_EVERY_RULE, _read_of_kernels, _read_of_problems, ("filter_h", "filter_w", *_FACTS))
