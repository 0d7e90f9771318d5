"""A convolution as a line of other programs: MIOpenDriver and ckProfiler.

``parse_line`` reads such a line as people paste it: in quotes, with variables in front, behind a log's own words.
ckProfiler counts C and K of one group, with pads of both sides; MIOpenDriver has totals and one pad an axis. Its flags
and defaults are those of release 3.6 (ROCm/rocm-libraries, projects/miopen/driver/conv_driver.hpp).
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from tileseer.core.errors import UserError, shown
from tileseer.facts.operations import VARIANTS
from tileseer.problems.problem import DEEP_LAYOUTS, DIMS, LAYOUTS, NO_DEPTH, Problem

Key = TypeVar("Key")
Value = TypeVar("Value")
PROGRAM = re.compile(r"(?:^|[/\\=(])(MIOpenDriver|ckProfiler)(?:\.exe)?$", re.IGNORECASE)
"""The word of a line that calls a program."""
SHELL_WORDS = re.compile(r"[0-9&]?>.*|\||\|\||&&|;")
"""What ends the call in a line of a shell."""
DRIVER_DTYPES = {"conv": "fp32", "convfp16": "fp16", "convbfp16": "bf16"}
SHORT_FLAGS = {name: f"-{letter}" for name, letter in zip(DIMS, "nckg!HW@yx#uv$pq^lj", strict=True)}
_LONG = ["batchsize", "in_channels", "out_channels", "group_count"]
_LONG += [f"{name}_{axis}" for name in ("in", "fil", "conv_stride", "pad", "dilation") for axis in "dhw"]
LONG_FLAGS = {name: f"--{word}" for name, word in zip(DIMS, _LONG, strict=True)}
DRIVER_DEFAULTS = {"N": 100, "C": 3, "K": 32, "G": 1, "Di": 32, "Hi": 32, "Wi": 32, "Z": 3, "Y": 3, "X": 3}
DRIVER_DEFAULTS |= {
    f"{name}_{axis}": 0 if name == "pad" else 1 for name in ("stride", "pad", "dilation") for axis in "dhw"
}
LAYOUT_FLAGS = tuple(
    (f"-{letter}", f"--{word}_layout") for letter, word in zip("IfO", ("in", "fil", "out"), strict=True)
)
"""Of MIOpenDriver, for input, filter and output; without them they are NCHW."""
OTHER_FLAGS = {"-_": "--spatial_dim", "-F": "--forw", "-m": "--mode", "-z": "--pad_mode"}
FIXED_FLAGS = {
    "-r": ("--pad_val", "0"), "-Z": ("--tensor_vect", "0"), "-L": ("--vector_length", "1"),
    "-U": ("--in_cast_type", "-1"), "-T": ("--out_cast_type", "-1"), "-R": ("--wei_cast_type", "-1"),
}  # fmt: skip
"""With the one value that is a problem here."""
IGNORED_FLAGS = {
    "-i": "--iter", "-V": "--verify", "-C": "--verification_cache", "-t": "--time", "-w": "--wall", "-s": "--search",
    "-P": "--printconv", "-o": "--dump_output", "-d": "--in_data", "-e": "--weights", "-b": "--bias",
    "-a": "--in_bias", "-D": "--dout_data", "-S": "--solution", "-G": "--gpualloc", "-~": "--gpubuffer_check",
    "-N": "--init_output_nan", "-&": "--tuning_policy", "-M": "--math_type", "-J": "--use_hip_graph",
    "-Q": "--use_hip_graph", "-%": "--trans_output_pad_d", "-Y": "--trans_output_pad_h", "-X": "--trans_output_pad_w",
}  # fmt: skip
"""Of what is done with the problem, or of transposed convolutions alone."""
_FLAG_OF = {
    **{short: LONG_FLAGS[name] for name, short in SHORT_FLAGS.items()}, **dict(LAYOUT_FLAGS), **OTHER_FLAGS,
    **{short: long for short, (long, _) in FIXED_FLAGS.items()}, **IGNORED_FLAGS,
}  # fmt: skip
"""Long flag of each short one."""
_DEPTH_DIMS = ("Di", "Z", "stride_d", "pad_d", "dilation_d")

PROFILER_OPERATIONS = {f"grouped_conv_{name}": v for name, v in zip(("fwd", *VARIANTS[1:]), VARIANTS, strict=True)}
PROFILER_DTYPES = {0: "fp32", 1: "fp16", 2: "bf16"}
PROFILER_WEIGHT_DTYPES = {0: "fp32", 1: "fp16", 5: "bf16"}
"""Of ``bwd_weight``, where 2 is bf16 with a gradient in fp32."""


class Line(NamedTuple):
    """What a line says."""

    directions: tuple[str, ...]
    dtype: str
    dims: dict[str, int]
    layout: str = ""
    """Of ``LAYOUTS`` or ``DEEP_LAYOUTS``; empty if the line names none."""
    assumed: str = ""
    """The flags that were missing, with the defaults of the program."""


def is_line(text: str) -> bool:
    """Return whether a text is a line of another program and no ``N=8,C=64``."""
    words = split_words(text)
    return len(words) > 1 and ("=" not in words[0] or any(map(PROGRAM.search, words)))


def split_words(text: str) -> list[str]:
    """Return the words of a pasted line, the call quoted or not; where a quote does not end, quotes mean nothing."""
    lexer = shlex.shlex(text.replace("`", " "), posix=True)
    lexer.whitespace_split, lexer.escape, lexer.commenters = True, "", ""
    try:
        words = list(lexer)
    except ValueError:
        words = re.sub(r"[\"']", " ", text).split()
    calls = [word.split() if any(map(PROGRAM.search, word.split())) else [word] for word in words]
    return [word for call in calls for word in call if word != "\\"]  # a line that goes on


def parse_line(text: str) -> Line:
    """Return what a line says; ``UserError`` for another program or flag, or for no convolution that we have."""
    words = split_words(text)
    start = next((place for place, word in enumerate(words) if PROGRAM.search(word)), 0)
    program, *words = words[start:]
    end = next((place for place, word in enumerate(words) if SHELL_WORDS.fullmatch(word)), len(words))
    named = PROGRAM.search(program)
    parsers = {"miopendriver": _parse_driver, "ckprofiler": _parse_profiler}
    parse = _known("a line of", named[1].lower() if named else program, parsers)
    return parse([own for word in words[:end] if (own := word.rstrip(";,)"))])


def _check_depth(program: str, ndim: int, dims: Mapping[str, int]) -> None:
    """Raise a ``UserError`` for 3D tensors without depth, whose dimensions are those of a 2D problem."""
    flat = dict.fromkeys(_DEPTH_DIMS, 1) | {"pad_d": 0}
    if ndim == 3 and flat == flat | {name: dims[name] for name in _DEPTH_DIMS if name in dims}:
        raise UserError(f"--problem: {program}: {NO_DEPTH}; write it as a 2D one")


def driver_line(problem: Problem) -> str:
    """Return the problem as a line of MIOpenDriver."""
    flags = {name: flag for name, flag in SHORT_FLAGS.items() if problem.ndim == 3 or name not in _DEPTH_DIMS}
    # A shell would take the short flags of depth for its own.
    flags |= {name: LONG_FLAGS[name] for name in _DEPTH_DIMS if name in flags}
    words = [f"{flag} {getattr(problem, name)}" for name, flag in flags.items()]
    spatial = ["--spatial_dim 3"] if problem.ndim == 3 else []
    if problem.layout == LAYOUTS[1]:
        layout = DEEP_LAYOUTS[problem.layout] if problem.ndim == 3 else problem.layout
        spatial += [f"{flag} {layout}" for _, flag in LAYOUT_FLAGS]
    direction = 1 << VARIANTS.index(problem.variant)
    program = next(word for word, dtype in DRIVER_DTYPES.items() if dtype == problem.dtype)
    return " ".join(["MIOpenDriver", program, *words, *spatial, f"-F {direction}"])


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
    flags = _flags(words[1:])
    for long, value in FIXED_FLAGS.values():
        if flags.get(long, value) != value:
            raise UserError(f"--problem: MIOpenDriver {long} {shown(flags[long])}: only {value} is a problem here")
    _known("MIOpenDriver --mode", flags.get("--mode", "conv"), {"conv": True})
    ndim = _known("MIOpenDriver --spatial_dim", flags.get("--spatial_dim", "2"), {"2": 2, "3": 3})
    names = [name for name in DIMS if ndim == 3 or name not in _DEPTH_DIMS]
    given = {name: _number(LONG_FLAGS[name], flags[LONG_FLAGS[name]]) for name in names if LONG_FLAGS[name] in flags}
    dims = {name: DRIVER_DEFAULTS[name] for name in names} | given
    dims["G"] = max(dims["G"], 1)
    dims |= _padding(flags.get("--pad_mode", "default"), dims)
    _check_depth("MIOpenDriver", ndim, dims)
    directions = _directions(flags.get("--forw", "0"))
    assumed = [f"{SHORT_FLAGS[name]} {dims[name]}" for name in names if name not in given and name in _NAMED_DEFAULTS]
    return Line(directions, dtype, dims, _layout(flags), " ".join(assumed))


_NAMED_DEFAULTS = ("N", "C", "K", "Di", "Hi", "Wi", "Z", "Y", "X")
"""Defaults that are no convention, so they are told."""


def _flags(words: Sequence[str]) -> dict[str, str]:
    """Return the values of MIOpenDriver's flags by their long names; ``UserError`` for one that it does not have."""
    flags = {}
    for flag, value in zip(words[::2], [*words[1::2], None], strict=False):
        long = _FLAG_OF.get(flag, flag)
        if long not in _FLAG_OF.values():
            raise UserError(f"--problem: MIOpenDriver has no flag {shown(flag)}; leave it out, or write -FLAG VALUE")
        if value is None:
            raise UserError(f"--problem: MIOpenDriver: {flag} has no value")
        flags[long] = value
    return flags


def _directions(text: str) -> tuple[str, ...]:
    """Return the directions of MIOpenDriver's ``--forw``: the sum of 1, 2 and 4, or 0 for all of them."""
    number = _known("MIOpenDriver -F", text, {str(number): number for number in range(2 ** len(VARIANTS))})
    return tuple(name for bit, name in enumerate(VARIANTS) if not number or number >> bit & 1)


def _padding(mode: str, dims: Mapping[str, int]) -> dict[str, int]:
    """Return the pads that MIOpenDriver's ``--pad_mode`` puts in the place of those given."""
    mode = _known("MIOpenDriver --pad_mode", mode, {name: name for name in ("default", "same", "valid")})
    axes = {axis: (dims[image], dims[extent]) for axis, image, extent in _AXES if image in dims}
    plain = all(dims[f"dilation_{axis}"] == 1 for axis in axes) or all(extent == 1 for _, extent in axes.values())
    if mode == "default" or not plain:
        return {}
    if mode == "valid":
        return {f"pad_{axis}": 0 for axis in axes}
    strides = {axis: max(dims[f"stride_{axis}"], 1) for axis in axes}
    return {
        f"pad_{axis}": max(extent - (image % strides[axis] or strides[axis]), 0) // 2
        for axis, (image, extent) in axes.items()
    }


_AXES = tuple(zip("dhw", ("Di", "Hi", "Wi"), "ZYX", strict=True))


def _layout(flags: Mapping[str, str]) -> str:
    """Return the layout that MIOpenDriver's flags name, empty without one; ``UserError`` for another, or for several.

    MIOpenDriver takes a tensor without a layout as NCHW.
    """
    named = [flags.get(long, "").upper() for _, long in LAYOUT_FLAGS]
    # Some lists of layers have words of other programs there, such as GNC01.
    if not any(named) or any("G" in word for word in named):
        return ""
    one = {(word or LAYOUTS[0]).replace("CDHW", "CHW").replace("NDHW", "NHW") for word in named}
    if len(one) > 1 or not one <= set(LAYOUTS):
        raise UserError(f"--problem: layouts {', '.join(filter(None, named))}: give all tensors one of NCHW and NHWC")
    own = one.pop()
    return DEEP_LAYOUTS[own] if any("D" in word for word in named) else own


SPLIT_WORDS = ("all", "-1")
"""Of ckProfiler, for any split-K: each, or the one that it computes."""


def _parse_profiler(words: Sequence[str]) -> Line:
    variant = _known("ckProfiler", words[0] if words else "", PROFILER_OPERATIONS)
    if words and words[-1] in SPLIT_WORDS:
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
    return Line((variant,), dtype, dims)


def _known(where: str, word: Key, meanings: Mapping[Key, Value]) -> Value:
    if word not in meanings:
        raise UserError(f"--problem: {where} {shown(word)}: use one of {', '.join(map(str, meanings))}")
    return meanings[word]


def _number(where: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text):
        raise UserError(f"--problem: {where} {shown(text)}: this is no whole number")
    return int(text)
