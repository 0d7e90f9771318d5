"""A convolution as a line of other programs: MIOpenDriver and ckProfiler.

``parse_line`` reads such a line; ``lines_of`` writes one of each program, so that others can measure the same problem.
ckProfiler counts C and K of one group, with pads of both sides; MIOpenDriver has totals and one pad an axis.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TypeVar

from tileseer.config.operations import VARIANTS
from tileseer.core.errors import UserError, shown
from tileseer.problems.problem import DEEP_LAYOUTS, DIMS, LAYOUTS, NO_DEPTH, Problem

Key = TypeVar("Key")
Value = TypeVar("Value")
Line = tuple[str | None, str, dict[str, int]]
"""Direction (None where it is left open), data type and dimensions."""
DRIVER_DTYPES = {"conv": "fp32", "convfp16": "fp16", "convbfp16": "bf16"}
DRIVER_DIRECTIONS = {"1": "forward", "2": "bwd_data", "4": "bwd_weight", "0": None}
"""0 is all three."""
SHORT_FLAGS = {name: f"-{letter}" for name, letter in zip(DIMS, "nckg!HW@yx#uv$pq^lj", strict=True)}
_LONG = ["batchsize", "in_channels", "out_channels", "group_count"]
_LONG += [f"{name}_{axis}" for name in ("in", "fil", "conv_stride", "pad", "dilation") for axis in "dhw"]
LONG_FLAGS = {name: f"--{word}" for name, word in zip(DIMS, _LONG, strict=True)}
LAYOUT_FLAGS = tuple(
    (f"-{letter}", f"--{word}_layout") for letter, word in zip("IfO", ("in", "fil", "out"), strict=True)
)
"""Of MIOpenDriver, for input, filter and output; without them they are NCHW."""
_DEPTH_DIMS = ("Di", "Z", "stride_d", "pad_d", "dilation_d")

PROFILER_OPERATIONS = {f"grouped_conv_{name}": v for name, v in zip(("fwd", *VARIANTS[1:]), VARIANTS, strict=True)}
PROFILER_DTYPES = {0: "fp32", 1: "fp16", 2: "bf16"}
PROFILER_WEIGHT_DTYPES = {0: "fp32", 1: "fp16", 5: "bf16"}
"""Of ``bwd_weight``, where 2 is bf16 with a gradient in fp32."""
PROFILER_CONTROLS = {"forward": "1 0 1 1 0 1", "bwd_data": "1 1 1 0 1", "bwd_weight": "2 1 1 0 1"}
"""Layout NHWGC, forward the type of indices, then: verify, initialise, do not print, time."""


def is_line(text: str) -> bool:
    """Return whether a text is a line of another program and no ``N=8,C=64``."""
    return len(text.split()) > 1 and "=" not in text.split()[0]


def parse_line(text: str) -> Line:
    """Return the direction, data type and dimensions that a line says."""
    program, *words = shlex.split(text)
    parsers = {"miopendriver": _parse_driver, "ckprofiler": _parse_profiler}
    return _known("a line of", program.rpartition("/")[2].lower(), parsers)(words)


def layout_of(text: str) -> str:
    """Return the layout of a MIOpenDriver line, of ``LAYOUTS`` or ``DEEP_LAYOUTS``; empty if it names none.

    ``UserError`` for another layout, or for several. MIOpenDriver takes a tensor without a layout as NCHW.
    """
    words = shlex.split(text)
    flags = dict(zip(words[2::2], words[3::2], strict=False))
    named = [next((flags[flag] for flag in both if flag in flags), "") for both in LAYOUT_FLAGS]
    # Some lists of layers have words of other programs there, such as GNC01.
    if not any(named) or any(word.startswith("G") for word in named):
        return ""
    one = {(word or LAYOUTS[0]).replace("CDHW", "CHW").replace("NDHW", "NHW") for word in named}
    if len(one) > 1 or not one <= set(LAYOUTS):
        raise UserError(f"--problem: layouts {', '.join(filter(None, named))}: give all tensors one of NCHW and NHWC")
    own = one.pop()
    return DEEP_LAYOUTS[own] if any("D" in word for word in named) else own


def _check_depth(program: str, ndim: int, dims: Mapping[str, int]) -> None:
    """Raise a ``UserError`` for 3D tensors without depth, whose dimensions are those of a 2D problem."""
    flat = dict.fromkeys(_DEPTH_DIMS, 1) | {"pad_d": 0}
    if ndim == 3 and flat == flat | {name: dims[name] for name in _DEPTH_DIMS if name in dims}:
        raise UserError(f"--problem: {program}: {NO_DEPTH}; write it as a 2D one")


def lines_of(problem: Problem) -> dict[str, str]:
    """Return the problem as a line of each program."""
    return {"MIOpenDriver": _driver_line(problem), "ckProfiler": _profiler_line(problem)}


def _driver_line(problem: Problem) -> str:
    flags = {name: flag for name, flag in SHORT_FLAGS.items() if problem.ndim == 3 or name not in _DEPTH_DIMS}
    # A shell would take the short flags of depth for its own.
    flags |= {name: LONG_FLAGS[name] for name in _DEPTH_DIMS if name in flags}
    words = [f"{flag} {getattr(problem, name)}" for name, flag in flags.items()]
    spatial = ["--spatial_dim 3"] if problem.ndim == 3 else []
    if problem.layout == LAYOUTS[1]:
        layout = DEEP_LAYOUTS[problem.layout] if problem.ndim == 3 else problem.layout
        spatial += [f"{flag} {layout}" for _, flag in LAYOUT_FLAGS]
    direction = _word(DRIVER_DIRECTIONS, problem.variant)
    return " ".join(["MIOpenDriver", _word(DRIVER_DTYPES, problem.dtype), *words, *spatial, "-F", direction])


def _profiler_line(problem: Problem) -> str:
    operation = _word(PROFILER_OPERATIONS, problem.variant)
    dtype = _word(_profiler_dtypes(problem.variant), problem.dtype)
    sizes = [problem.G, problem.N, problem.K // problem.G, problem.C // problem.G]
    sizes += [getattr(problem, name) for name in _profiler_axes(problem.ndim)]
    split = ["all"] if problem.variant == "bwd_weight" else []
    words = ["ckProfiler", operation, dtype, PROFILER_CONTROLS[problem.variant], problem.ndim, *sizes, *split]
    return " ".join(map(str, words))


def _word(meanings: Mapping[Key, Value], meaning: Value) -> Key:
    return next(word for word, value in meanings.items() if value == meaning)


def _profiler_dtypes(variant: str) -> dict[int, str]:
    return PROFILER_WEIGHT_DTYPES if variant == "bwd_weight" else PROFILER_DTYPES


def _profiler_axes(ndim: int) -> list[str]:
    """Return the dimensions behind G, N, K, C in ckProfiler's order; pads stand twice, left and right."""
    axes = "dhw"[3 - ndim :]
    filters = [{"d": "Z", "h": "Y", "w": "X"}[axis] for axis in axes]
    images = [f"{axis.upper()}i" for axis in axes]
    rest = [f"{name}_{axis}" for name in ("stride", "dilation", "pad", "pad") for axis in axes]
    return [*filters, *images, *rest]


def _parse_driver(words: Sequence[str]) -> Line:
    dtype = _known("MIOpenDriver", words[0] if words else "", DRIVER_DTYPES)
    flags = dict(zip(words[1::2], words[2::2], strict=False))
    if len(words) % 2 == 0:
        raise UserError(f"--problem: MIOpenDriver: {words[-1]} has no value")
    if flags.get("-m", flags.get("--mode")) == "trans":
        raise UserError("--problem: MIOpenDriver -m trans: give the convolution that a transposed one runs as")
    dim_of = {flag: name for both in (SHORT_FLAGS, LONG_FLAGS) for name, flag in both.items()}
    dims = {dim_of[flag]: _number(flag, value) for flag, value in flags.items() if flag in dim_of}
    _check_depth("MIOpenDriver", _number("--spatial_dim", flags.get("-_", flags.get("--spatial_dim", "2"))), dims)
    direction = flags.get("-F", flags.get("--forw", "0"))
    return _known("MIOpenDriver -F", direction, DRIVER_DIRECTIONS), dtype, dims


def _parse_profiler(words: Sequence[str]) -> Line:
    variant = _known("ckProfiler", words[0] if words else "", PROFILER_OPERATIONS)
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
    dtype = _known("ckProfiler's data type", numbers[0], _profiler_dtypes(variant))
    groups, batch, k, c, *values = rest
    dims = {"G": groups, "N": batch, "K": k * groups, "C": c * groups}
    for name, value in zip(_profiler_axes(ndim), values, strict=False):
        if dims.setdefault(name, value) != value:
            raise UserError(f"--problem: ckProfiler: {name} is {dims[name]} on the left and {value} on the right")
    _check_depth("ckProfiler", ndim, dims)
    return variant, dtype, dims


def _known(where: str, word: Key, meanings: Mapping[Key, Value]) -> Value:
    if word not in meanings:
        raise UserError(f"--problem: {where} {shown(word)}: use one of {', '.join(map(str, meanings))}")
    return meanings[word]


def _number(where: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text):
        raise UserError(f"--problem: {where} {shown(text)}: this is no whole number")
    return int(text)
