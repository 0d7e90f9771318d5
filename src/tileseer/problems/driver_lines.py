"""A convolution as a line of other programs: MIOpenDriver, ckProfiler, and the letters of cuDNN.

``parse_line`` reads such a line; ``lines_of`` writes one of each program, so that others can measure the same problem.
ckProfiler counts C and K of one group, with pads of both sides; the others have totals and one pad an axis.
"""

import shlex
from collections.abc import Sequence
from typing import TypeVar

from tileseer.config.operations import VARIANTS
from tileseer.core.errors import UserError
from tileseer.problems.problem import DIMS, Problem

Key = TypeVar("Key")
Value = TypeVar("Value")
DRIVER_DTYPES = {"fp32": "conv", "fp16": "convfp16", "bf16": "convbfp16"}
DRIVER_DIRECTIONS: dict[str, str] = dict(zip(VARIANTS, ("1", "2", "4"), strict=True))
DRIVER_FLAGS = {
    "N": ("-n", "--batchsize"), "C": ("-c", "--in_channels"), "K": ("-k", "--out_channels"),
    "G": ("-g", "--group_count"), "Di": ("-!", "--in_d"), "Hi": ("-H", "--in_h"), "Wi": ("-W", "--in_w"),
    "Z": ("-@", "--fil_d"), "Y": ("-y", "--fil_h"), "X": ("-x", "--fil_w"),
    "stride_d": ("-#", "--conv_stride_d"), "stride_h": ("-u", "--conv_stride_h"), "stride_w": ("-v", "--conv_stride_w"),
    "pad_d": ("-$", "--pad_d"), "pad_h": ("-p", "--pad_h"), "pad_w": ("-q", "--pad_w"),
    "dilation_d": ("-^", "--dilation_d"), "dilation_h": ("-l", "--dilation_h"), "dilation_w": ("-j", "--dilation_w"),
}  # fmt: skip
"""Short and long flag of each dimension."""
DIRECTION_FLAGS = ("-F", "--forw")

PROFILER_OPERATIONS: dict[str, str] = dict(
    zip(VARIANTS, ("grouped_conv_fwd", "grouped_conv_bwd_data", "grouped_conv_bwd_weight"), strict=True)
)
PROFILER_DTYPES = {"fp32": 0, "fp16": 1, "bf16": 2}
PROFILER_WEIGHT_DTYPES = PROFILER_DTYPES | {"bf16": 5}
"""Of ``bwd_weight``, where 2 is bf16 with a gradient in fp32."""
PROFILER_CONTROLS = {"forward": "1 0 1 1 0 1", "bwd_data": "1 1 1 0 1", "bwd_weight": "2 1 1 0 1"}
"""Layout NHWGC, forward the type of indices, then: verify, initialise, do not print, time."""

CUDNN_DIRECTIONS: dict[str, str] = dict(zip(VARIANTS, ("fprop", "dgrad", "wgrad"), strict=True))
CUDNN_LETTERS = {
    "N": "n", "C": "c", "Di": "d", "Hi": "h", "Wi": "w", "K": "k", "Z": "t", "Y": "r", "X": "s", "G": "g"
}  # fmt: skip
"""The other dimensions have their own names."""


def is_line(text: str) -> bool:
    """Whether a text is a line of another program and no ``N=8,C=64``."""
    return len(text.split()) > 1 and "=" not in text.split()[0]


def parse_line(text: str) -> tuple[str | None, str, dict[str, int]]:
    """Direction (None where the line leaves it open), data type and dimensions of a line."""
    program, *words = shlex.split(text)
    name = program.rpartition("/")[2].lower()
    readers = {"miopendriver": _driver, "ckprofiler": _profiler, "cudnn": _cudnn}
    return _known("a line of", name, readers)(words)


def lines_of(problem: Problem) -> dict[str, str]:
    """The problem as a line of each program."""
    flat = problem.ndim == 2
    used = [name for name in DIMS if not (flat and (name in ("Di", "Z") or name.endswith("_d")))]
    values = {name: getattr(problem, name) for name in used}
    driver = [f"{DRIVER_FLAGS[name][1 if name in _DEEP else 0]} {value}" for name, value in values.items()]
    spatial = [] if flat else ["--spatial_dim 3"]
    letters = [f"{CUDNN_LETTERS.get(name, name)}={value}" for name, value in values.items()]
    profiled = [problem.G, problem.N, problem.K // problem.G, problem.C // problem.G]
    profiled += [getattr(problem, name) for name in _profiler_axes(problem.ndim)]
    dtypes = PROFILER_WEIGHT_DTYPES if problem.variant == "bwd_weight" else PROFILER_DTYPES
    split = ["all"] if problem.variant == "bwd_weight" else []
    return {
        "MIOpenDriver": " ".join([
            "MIOpenDriver", DRIVER_DTYPES[problem.dtype], *driver, *spatial, "-F", DRIVER_DIRECTIONS[problem.variant]
        ]),
        "ckProfiler": " ".join(map(str, [
            "ckProfiler", PROFILER_OPERATIONS[problem.variant], dtypes[problem.dtype],
            PROFILER_CONTROLS[problem.variant], problem.ndim, *profiled, *split,
        ])),
        "cuDNN": " ".join(["cudnn", CUDNN_DIRECTIONS[problem.variant], problem.dtype, *letters]),
    }  # fmt: skip


_DEEP = tuple(name for name, (short, _) in DRIVER_FLAGS.items() if short[1] in "!@#$^")
"""Short flags that a shell would take for its own."""


def _profiler_axes(ndim: int) -> list[str]:
    """Dimensions behind G, N, K, C in ckProfiler's order; pads stand twice, left and right."""
    axes = "dhw"[3 - ndim :]
    filters = [{"d": "Z", "h": "Y", "w": "X"}[axis] for axis in axes]
    images = [f"{axis.upper()}i" for axis in axes]
    rest = [f"{name}_{axis}" for name in ("stride", "dilation", "pad", "pad") for axis in axes]
    return [*filters, *images, *rest]


def _driver(words: Sequence[str]) -> tuple[str | None, str, dict[str, int]]:
    dtype = _known("MIOpenDriver", words[0] if words else "", {v: k for k, v in DRIVER_DTYPES.items()})
    flags = dict(zip(words[1::2], words[2::2], strict=False))
    if len(words) % 2 == 0:
        raise UserError(f"--problem: MIOpenDriver: {words[-1]} has no value")
    dim_of = {flag: name for name, both in DRIVER_FLAGS.items() for flag in both}
    dims = {dim_of[flag]: _number(flag, value) for flag, value in flags.items() if flag in dim_of}
    direction = next((flags[flag] for flag in DIRECTION_FLAGS if flag in flags), "0")
    # 0 is all three directions.
    variant = {value: name for name, value in DRIVER_DIRECTIONS.items()} | {"0": None}
    return _known("MIOpenDriver -F", direction, variant), dtype, dims


def _profiler(words: Sequence[str]) -> tuple[str | None, str, dict[str, int]]:
    variant = _known("ckProfiler", words[0] if words else "", {v: k for k, v in PROFILER_OPERATIONS.items()})
    if words[-1] == "all":
        words = words[:-1]
    numbers = [_number("ckProfiler", word) for word in words[1:]]
    # Older programs have no type of indices; a split-K may stand at the end.
    for controls in (7, 6) if variant == "forward" else (6,):
        ndim = numbers[controls] if len(numbers) > controls else 0
        rest = numbers[controls + 1 :]
        if ndim in (2, 3) and len(rest) - 4 - 6 * ndim in ((0,) if variant == "forward" else (0, 1)):
            break
    else:
        raise UserError(f"--problem: ckProfiler {words[0]}: {len(numbers)} numbers fit no 2D or 3D convolution")
    dtypes = PROFILER_WEIGHT_DTYPES if variant == "bwd_weight" else PROFILER_DTYPES
    dtype = _known("ckProfiler's data type", numbers[0], {v: k for k, v in dtypes.items()})
    groups, batch, k, c, *values = rest
    dims = {"G": groups, "N": batch, "K": k * groups, "C": c * groups}
    for name, value in zip(_profiler_axes(ndim), values, strict=False):
        if dims.setdefault(name, value) != value:
            raise UserError(f"--problem: ckProfiler: {name} is {dims[name]} on the left and {value} on the right")
    return variant, dtype, dims


def _cudnn(words: Sequence[str]) -> tuple[str | None, str, dict[str, int]]:
    variant = _known("cudnn", words[0], {v: k for k, v in CUDNN_DIRECTIONS.items()})
    dtype = _known("cudnn's data type", words[1] if len(words) > 1 else "", {name: name for name in PROFILER_DTYPES})
    letters = {name: name for name in DIMS if name not in CUDNN_LETTERS} | {v: k for k, v in CUDNN_LETTERS.items()}
    pairs = [word.partition("=") for word in words[2:]]
    return variant, dtype, {_known("cudnn", name, letters): _number(name, value) for name, _, value in pairs}


def _known(where: str, word: Key, table: dict[Key, Value]) -> Value:
    if word not in table:
        raise UserError(f"--problem: {where} {word!r}: use one of {', '.join(map(str, table))}")
    return table[word]


def _number(where: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise UserError(f"--problem: {where} {text!r}: this is no whole number")
    return int(text)
