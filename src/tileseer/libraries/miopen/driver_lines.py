"""Lines of MIOpenDriver: totals of channels, and one pad an axis.

Its flags and defaults are those of release 3.6 (ROCm/rocm-libraries, projects/miopen/driver/conv_driver.hpp).
"""

import re
from collections.abc import Mapping, Sequence

from tileseer.core.errors import UserError, is_it, shown
from tileseer.facts.operations import VARIANTS
from tileseer.libraries.miopen.find_db import FORM_OF_A_KEY, Key, UnusableError
from tileseer.libraries.program import DEPTH_DIMS, Form, Line, call_of, check_depth, known, number
from tileseer.problems.problem import DEEP_LAYOUTS, DIMS, LAYOUTS, Problem

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
    "-perf_priority": "--perf_priority",
}  # fmt: skip
"""Of what is done with the problem, or of transposed convolutions alone; the last one is rocMLIR's."""
_FLAG_OF = {
    **{short: LONG_FLAGS[name] for name, short in SHORT_FLAGS.items()}, **dict(LAYOUT_FLAGS), **OTHER_FLAGS,
    **{short: long for short, (long, _) in FIXED_FLAGS.items()}, **IGNORED_FLAGS,
}  # fmt: skip
"""Long flag of each short one."""
_NAMED_DEFAULTS = ("N", "C", "K", "Di", "Hi", "Wi", "Z", "Y", "X")
"""Defaults that are no convention, so they are told."""
_AXES = tuple(zip("dhw", ("Di", "Hi", "Wi"), "ZYX", strict=True))


def driver_line(problem: Problem) -> str:
    """Return the problem as a line of MIOpenDriver."""
    flags = {name: flag for name, flag in SHORT_FLAGS.items() if problem.ndim == 3 or name not in DEPTH_DIMS}
    # A shell would take the short flags of depth for its own.
    flags |= {name: LONG_FLAGS[name] for name in DEPTH_DIMS if name in flags}
    words = [f"{flag} {getattr(problem, name)}" for name, flag in flags.items()]
    spatial = ["--spatial_dim 3"] if problem.ndim == 3 else []
    if problem.layout == LAYOUTS[1]:
        layout = DEEP_LAYOUTS[problem.layout] if problem.ndim == 3 else problem.layout
        spatial += [f"{flag} {layout}" for _, flag in LAYOUT_FLAGS]
    direction = 1 << VARIANTS.index(problem.variant)
    program = next(word for word, dtype in DRIVER_DTYPES.items() if dtype == problem.dtype)
    return " ".join(["MIOpenDriver", program, *words, *spatial, f"-F {direction}"])


def _parse_driver(words: Sequence[str]) -> Line:
    dtype = known("MIOpenDriver", words[0] if words else "", DRIVER_DTYPES)
    flags = _flags(words[1:])
    for long, value in FIXED_FLAGS.values():
        if flags.get(long, value) != value:
            raise UserError(f"--problem: MIOpenDriver {long} {shown(flags[long])}: only {value} is a problem here")
    known("MIOpenDriver --mode", flags.get("--mode", "conv"), {"conv": True})
    ndim = known("MIOpenDriver --spatial_dim", flags.get("--spatial_dim", "2"), {"2": 2, "3": 3})
    names = [name for name in DIMS if ndim == 3 or name not in DEPTH_DIMS]
    given = {name: number(LONG_FLAGS[name], flags[LONG_FLAGS[name]]) for name in names if LONG_FLAGS[name] in flags}
    dims = {name: DRIVER_DEFAULTS[name] for name in names} | given
    dims["G"] = max(dims["G"], 1)
    dims |= _padding(flags.get("--pad_mode", "default"), dims)
    check_depth("MIOpenDriver", ndim, dims)
    directions = _directions(flags.get("--forw", "0"))
    assumed = [f"{SHORT_FLAGS[name]} {dims[name]}" for name in names if name not in given and name in _NAMED_DEFAULTS]
    layout, meant = _layout(flags)
    return Line(directions, dtype, dims, layout, " ".join([*assumed, *meant]))


def _flags(words: Sequence[str]) -> dict[str, str]:
    """Return the values of MIOpenDriver's flags by their long names; ``UserError`` for one that it does not have."""
    flags = {}
    words = [part for word in words for part in (word.split("=", 1) if re.match(r"--?\w+=", word) else [word])]
    for flag, value in zip(words[::2], [*words[1::2], None], strict=False):
        long = _FLAG_OF.get(flag, flag if flag.startswith("--") else f"-{flag}")
        if long not in _FLAG_OF.values():
            advice = is_it(long, _FLAG_OF.values()) or "; leave it out, or write -FLAG VALUE"
            raise UserError(f"--problem: MIOpenDriver has no flag {shown(flag)}{advice}")
        if value is None:
            raise UserError(f"--problem: MIOpenDriver: {flag} has no value")
        flags[long] = value
    return flags


def _directions(text: str) -> tuple[str, ...]:
    """Return the directions of MIOpenDriver's ``--forw``: the sum of 1, 2 and 4, or 0 for all of them."""
    bits = known("MIOpenDriver -F", text, {str(bits): bits for bits in range(2 ** len(VARIANTS))})
    return tuple(name for bit, name in enumerate(VARIANTS) if not bits or bits >> bit & 1)


def _padding(mode: str, dims: Mapping[str, int]) -> dict[str, int]:
    """Return the pads that MIOpenDriver's ``--pad_mode`` puts in the place of those given."""
    if mode.isdecimal():
        raise UserError(
            f"--problem: MIOpenDriver -z {mode}: -z is the padding mode (default, same, valid); a filter's depth "
            "is --fil_d (-@), that of the image --in_d (-!)"
        )
    mode = known("MIOpenDriver --pad_mode", mode, {name: name for name in ("default", "same", "valid")})
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


def _layout(flags: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the layout that MIOpenDriver's flags name, empty without one, and what that assumes, in words.

    MIOpenDriver takes a tensor without a layout as NCHW; lists that name one of several tensors mean all of them.
    ``UserError`` for another layout, or for several.
    """
    named = {long: flags[long].upper() for _, long in LAYOUT_FLAGS if long in flags}
    if not named:
        return "", []
    plain = {_plain(word, long == "--fil_layout") for long, word in named.items()}
    one = plain.pop() if len(plain) == 1 else ""
    words, numbered = ", ".join(dict.fromkeys(named.values())), all(re.search(r"\d", word) for word in named.values())
    if one in (*LAYOUTS, *DEEP_LAYOUTS.values()):
        meant = [f"{one} of all tensors"] * (len(named) < len(LAYOUT_FLAGS) and one.endswith("C"))
        # rocMLIR numbers the axes, and names the order of its own choice in each of its lines.
        return ("" if numbered and not one.endswith("C") else one), meant
    if numbered:
        return "", [f"no layout, as {words} are none of MIOpen's"]
    raise UserError(f"--problem: layouts {words}: give all tensors one of {' and '.join(LAYOUTS)}")


def _plain(word: str, is_filter: bool) -> str:
    """Return MIOpen's word for a layout of rocMLIR, such as GNC01 or GKCYX: without groups, axes by their names."""
    axes = zip("012", "DHW" if "2" in word else "HW", strict=False)
    named = {**dict(axes), "K": "N" if is_filter else "C", "Z": "D", "Y": "H", "X": "W", "G": ""}
    return "".join(named.get(letter, letter) for letter in word)


def _parse_key(words: Sequence[str]) -> Line:
    """Read the key of a find-db, with its values or without."""
    key = words[0].partition("=")[0]
    try:
        problem = Key.parse(key).problem()
    except UnusableError as error:
        raise UserError(f"--problem: key of a find-db: {error}") from error
    layout = problem.layout or LAYOUTS[0]
    dims = dict(zip(DIMS, problem.dims, strict=True))
    return Line((problem.variant,), problem.dtype, dims, DEEP_LAYOUTS[layout] if problem.ndim == 3 else layout)


MIOPEN_DRIVER = Form(
    "MIOpenDriver",
    call_of("MIOpenDriver"),
    _parse_driver,
    "MIOpenDriver convbfp16 -n 8 -c 64 ... -F 1",
    "with MIOPEN_ENABLE_LOGGING_CMD=1 a program prints those of its own convolutions on standard error",
)
_WITHOUT_NAME = r"(?<![\w./-])(?<!-m )(?<!mode[ =])conv(?:b?fp[a-z0-9_]*|int8)?\s+--?[A-Za-z_!@#$^&~%]\w*[\s=]+\S"
DRIVER_WITHOUT_NAME = Form(
    "",
    re.compile(rf"(?={_WITHOUT_NAME}|\$\{{?\w+\}}?\s+(?:-n|--batchsize)\s)"),
    _parse_driver,
    "convbfp16 -n 8 -c 64 ... -F 1",
)
"""As lists of layers have them, of rocMLIR too, and as scripts with a variable for the data type."""
FIND_DB_KEY = Form(
    "",
    re.compile(rf"(?<![\w-])(?={FORM_OF_A_KEY}\s*(?:=|$|[\"',;)\s]))", re.ASCII),
    _parse_key,
    "576-4-4-1x1-192-4-4-8-0x0-1x1-1x1-0-NCHW-FP32-F",
)
