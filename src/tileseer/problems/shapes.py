"""What follows from the dimensions of convolutions by formula: extents, tensors, matrix products, least times.

A grouped convolution is seen as a batch of matrix products, for each direction. Per group, with c = C / G, k = K / G,
filter volume F = Z Y X, output pixels So and, per axis, input extent i, filter extent f, stride s, dilation d and
t = s / gcd(s, d):

=========== =================== ======= ===================== =============
direction   M                   N       K (reduction)         sub-GEMMs
=========== =================== ======= ===================== =============
forward     N So                k       c F                   1
bwd_data    N prod(ceil(i / t)) c       k prod(ceil(f / t))   prod(min(t, f))
bwd_weight  k                   c F     N So                  1
=========== =================== ======= ===================== =============

The batch is G. With strides the input gradient falls apart into one product for each residue of the filter
position modulo t that a filter tap reaches. Source: the implicit-GEMM transforms of CK Tile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from tileseer.core.errors import UserError
from tileseer.facts.operations import DTYPES, ELEMENT_BYTES, VARIANTS

if TYPE_CHECKING:
    import pandas as pd

    from tileseer.facts.hardware import Hardware

Columns = Mapping[str, np.ndarray]
Dims = Mapping[str, Any]
"""The 19 dimensions by name: whole numbers of one problem, columns [P], or symbols of C++."""

AXES = (
    ("Di", "Z", "stride_d", "pad_d", "dilation_d"),
    ("Hi", "Y", "stride_h", "pad_h", "dilation_h"),
    ("Wi", "X", "stride_w", "pad_w", "dilation_w"),
)
"""Of each axis: input, filter, stride, padding, dilation."""


def output_extent(dims: Dims, axis: tuple[str, ...]) -> Any:
    """Return the output along one of ``AXES``: floor((i + 2 p - dilation (f - 1) - 1) / stride) + 1."""
    image, extent, stride, pad, dilation = (dims[name] for name in axis)
    return (image + 2 * pad - dilation * (extent - 1) - 1) // stride + 1


def output_extents(dims: Dims) -> tuple[Any, Any, Any]:
    """Return Do, Ho and Wo."""
    depth, height, width = (output_extent(dims, axis) for axis in AXES)
    return depth, height, width


def tensor_elements(dims: Dims) -> tuple[Any, Any, Any]:
    """Return the elements of input, filter and output."""
    inputs, outputs = dims["N"] * dims["C"], dims["N"] * dims["K"]
    for axis in AXES:
        inputs = inputs * dims[axis[0]]
        outputs = outputs * output_extent(dims, axis)
    return inputs, filter_elements(dims), outputs


def filter_elements(dims: Dims) -> Any:
    """Return K (C/G) Z Y X."""
    return dims["K"] * (dims["C"] // dims["G"]) * dims["Z"] * dims["Y"] * dims["X"]


def useful_flop(dims: Dims) -> Any:
    """Return the useful FLOP in any direction: 2 N Do Ho Wo K (C/G) Z Y X."""
    return 2 * dims["N"] * math.prod(output_extents(dims)) * filter_elements(dims)


def counted_in_32_bits(dims: Dims) -> dict[str, Any]:
    """Return what kernels count in 32 bits of a convolution, by formula: of one problem, or float64 columns.

    The padded input, the rows of the matrix products, one image of input and output, and the filter.
    """
    inputs, outputs = dims["Di"] * dims["Hi"] * dims["Wi"], math.prod(output_extents(dims))
    return {
        **{f"{image} + 2 {pad}": dims[image] + 2 * dims[pad] for image, _, _, pad, _ in AXES},
        "N Di Hi Wi": dims["N"] * inputs,
        "N Do Ho Wo": dims["N"] * outputs,
        "C Di Hi Wi": dims["C"] * inputs,
        "K Do Ho Wo": dims["K"] * outputs,
        "K (C/G) Z Y X": filter_elements(dims),
    }


def element_bytes(dtypes: pd.Series) -> np.ndarray:
    """Bytes of one element for each data type name, float64 [n]."""
    sizes = dtypes.map(ELEMENT_BYTES).to_numpy(np.float64)
    if np.isnan(sizes).any():
        wrong = dtypes.iloc[int(np.isnan(sizes).argmax())]
        raise UserError(f"dtype is {wrong!r}; use one of {', '.join(DTYPES)}")
    return sizes


def implicit_gemm(problems: pd.DataFrame, variant: str) -> pd.DataFrame:
    """Map P problems (columns of ``Problem``) to their matrix products (``gemm_columns``), a row each, in order."""
    import pandas as pd  # Not above: it takes half a second, and most of what knows problems needs none.

    dims = {name: problems[name].to_numpy(np.int64) for name in ("N", "C", "K", "G", *chain(*AXES))}
    return pd.DataFrame(gemm_columns(dims, variant, element_bytes(problems["dtype"])), index=problems.index)


def gemm_columns(dims: Columns, variant: str, element_size: np.ndarray | float) -> dict[str, np.ndarray]:
    """Matrix products of P problems by column; ``dims`` are the 19 dimensions, int64 [P] each.

    ``element_size`` is the bytes of one element.

    Float64 columns: ``gemm_m, gemm_n, gemm_k`` (elements, one sub-GEMM of one group), ``gemm_batch``
    (groups), ``sub_gemms``, ``flops`` (useful, 2 N So K c F), ``input_bytes, filter_bytes, output_bytes``
    (whole tensors), ``bytes_read, bytes_written`` (each element that is used once), ``unique_bytes`` (their sum),
    ``run_a, run_b, run_c`` (contiguous channels of the operands, what a vector access has to divide),
    ``element_bytes``. Boolean columns: ``is_1x1, is_3x3`` (filter; 3 x 3 also with depth 3), ``stride1, pad0``.

    Plain arithmetic on columns, free of pandas: a selection runs it for one problem, and the C++ selector is made by
    running it on symbols (``tileseer.libraries.symbols``).
    """
    if variant not in VARIANTS:
        raise UserError(f"variant is {variant!r}; use one of {', '.join(VARIANTS)}")
    g = {name: dims[name].astype(np.float64) for name in ("N", "C", "K", "G")}
    axes = [_axis(dims, names) for names in AXES]
    c, k = g["C"] / g["G"], g["K"] / g["G"]
    taps, inputs, outputs = (_over_axes(axes, name) for name in ("filter", "in", "out"))
    size = np.ones_like(g["N"]) * element_size

    table = _products(variant, {"n": g["N"], "c": c, "k": k, "taps": taps, "outputs": outputs}, axes)
    table["gemm_batch"] = g["G"]
    table["flops"] = 2.0 * g["N"] * outputs * g["K"] * (g["C"] / g["G"]) * taps
    table["input_bytes"] = g["N"] * inputs * c * g["G"] * size
    table["filter_bytes"] = g["G"] * k * c * taps * size
    table["output_bytes"] = g["N"] * outputs * k * g["G"] * size
    # A strided or small filter does not touch every input pixel.
    table |= _traffic(variant, table, table["input_bytes"] * np.minimum(1.0, outputs * taps / inputs))
    table["run_a"], table["run_b"], table["run_c"] = channel_runs(variant, c, k)
    table["element_bytes"] = size
    table["is_1x1"] = taps == 1
    table["is_3x3"] = (dims["Y"] == 3) & (dims["X"] == 3) & ((dims["Z"] == 1) | (dims["Z"] == 3))
    table["stride1"] = (dims["stride_d"] == 1) & (dims["stride_h"] == 1) & (dims["stride_w"] == 1)
    table["pad0"] = (dims["pad_d"] == 0) & (dims["pad_h"] == 0) & (dims["pad_w"] == 0)
    return table


def _axis(dims: Columns, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Extents and the factors of the input gradient along one axis; the formulas are the module's."""
    i, f, s, _, d = (dims[name] for name in names)
    period = s // np.gcd(s, d)
    return {
        "in": i.astype(np.float64),
        "filter": f.astype(np.float64),
        "out": output_extent(dims, names).astype(np.float64),
        "rows": np.ceil(i / period),
        "taps": np.ceil(f / period),
        "phases": np.minimum(period, f).astype(np.float64),
    }


def _over_axes(axes: list[dict[str, np.ndarray]], name: str) -> np.ndarray:
    depth, height, width = (axis[name] for axis in axes)
    return depth * height * width


def _products(variant: str, sizes: Columns, axes: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    n, c, k, taps, outputs = sizes.values()
    if variant == "forward":
        extents = n * outputs, k, c * taps
    elif variant == "bwd_weight":
        extents = k, c * taps, n * outputs
    else:
        extents = n * _over_axes(axes, "rows"), c, k * _over_axes(axes, "taps")
    sub_gemms = _over_axes(axes, "phases") if variant == "bwd_data" else np.ones_like(n)
    return dict(zip(("gemm_m", "gemm_n", "gemm_k", "sub_gemms"), (*extents, sub_gemms), strict=True))


def _traffic(variant: str, table: dict[str, np.ndarray], input_used: np.ndarray) -> dict[str, np.ndarray]:
    whole_input, weights, output = (table[f"{name}_bytes"] for name in ("input", "filter", "output"))
    read, written = {
        "forward": (input_used + weights, output),
        "bwd_data": (output + weights, whole_input),
        "bwd_weight": (input_used + output, weights),
    }[variant]
    return {"bytes_read": read, "bytes_written": written, "unique_bytes": read + written}


def channel_runs(variant: str, c: Any, k: Any) -> tuple[Any, Any, Any]:
    """Which of ``c`` and ``k`` lies contiguous in A, in B and in C of the matrix product."""
    return {"forward": (c, c, k), "bwd_data": (k, c, c), "bwd_weight": (k, c, c)}[variant]


def roofline_us(problems: pd.DataFrame, gpu: Hardware) -> np.ndarray:
    """Return the microseconds that P problems of one operation take at least on a GPU, float64 [P]."""
    gemm = implicit_gemm(problems, str(problems["variant"].iloc[0]))
    peak = gpu.peak_tflops(problems["dtype"].iloc[0])
    return np.maximum(gemm["flops"].to_numpy() / peak, gemm["unique_bytes"].to_numpy() / gpu.hbm_tb_per_s) * 1e-6
