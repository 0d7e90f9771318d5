"""Lines of ckProfiler, which counts C and K of one group, with pads of both sides."""

import re
from collections.abc import Sequence

from tileseer.core.errors import UserError
from tileseer.facts.operations import VARIANTS
from tileseer.libraries.program import Form, Line, call_of, check_depth, known, number

PROFILER_OPERATIONS = {f"grouped_conv_{name}": v for name, v in zip(("fwd", *VARIANTS[1:]), VARIANTS, strict=True)}
PROFILER_DTYPES = {0: "fp32", 1: "fp16", 2: "bf16"}
PROFILER_WEIGHT_DTYPES = {0: "fp32", 1: "fp16", 5: "bf16"}
"""Of ``bwd_weight``, where 2 is bf16 with a gradient in fp32."""
SPLIT_WORDS = ("all", "-1")
"""Of ckProfiler, for any split-K: each, or the one that it computes."""


def _profiler_axes(ndim: int) -> list[str]:
    """Return the dimensions behind G, N, K, C in ckProfiler's order; pads stand twice, left and right."""
    axes = "dhw"[3 - ndim :]
    filters = [{"d": "Z", "h": "Y", "w": "X"}[axis] for axis in axes]
    images = [f"{axis.upper()}i" for axis in axes]
    rest = [f"{name}_{axis}" for name in ("stride", "dilation", "pad", "pad") for axis in axes]
    return [*filters, *images, *rest]


def _parse_profiler(words: Sequence[str]) -> Line:
    variant = known("ckProfiler", words[0] if words else "", PROFILER_OPERATIONS)
    # Newer programs name one of their kernels anywhere.
    text = re.sub(r"--instance[ =]\S+|--list-instances", "", " ".join(words))
    words = [word for word in text.split() if word not in SPLIT_WORDS]
    numbers = [number("ckProfiler", word) for word in words[1:]]
    # Older programs have no type of indices; a split-K may stand at the end.
    for controls in (7, 6) if variant == "forward" else (6,):
        ndim = numbers[controls] if len(numbers) > controls else 0
        rest = numbers[controls + 1 :]
        if ndim in (2, 3) and len(rest) - 4 - 6 * ndim in ((0,) if variant == "forward" else (0, 1)):
            break
    else:
        raise UserError(
            f"--problem: ckProfiler {words[0]}: {len(numbers)} numbers fit no 2D or 3D convolution: 6 of "
            "controls (7 with a type of indices), the dimensionality, and 16 (2D) or 22 (3D) more"
        )
    dtypes = PROFILER_WEIGHT_DTYPES if variant == "bwd_weight" else PROFILER_DTYPES
    dtype = known("ckProfiler's data type", numbers[0], dtypes)
    groups, batch, k, c, *values = rest
    dims = {"G": groups, "N": batch, "K": k * groups, "C": c * groups}
    for name, value in zip(_profiler_axes(ndim), values, strict=False):
        if dims.setdefault(name, value) != value:
            raise UserError(f"--problem: ckProfiler: {name} is {dims[name]} on the left and {value} on the right")
    check_depth("ckProfiler", ndim, dims)
    return Line((variant,), dtype, dims)


CK_PROFILER = Form(
    "ckProfiler", call_of("ckProfiler"), _parse_profiler, "ckProfiler grouped_conv_fwd 1 1 0 1 1 0 1 2 ..."
)
