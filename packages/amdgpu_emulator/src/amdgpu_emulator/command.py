"""A kernel from the command line: what it changes, its races, and what of it is not emulated."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from amdgpu_emulator.code_object import CodeObject, is_code_object, load
from amdgpu_emulator.device import Argument
from amdgpu_emulator.faults import EmulationFault
from amdgpu_emulator.memory import Array
from amdgpu_emulator.names import qualified_name
from amdgpu_emulator.program import run_program

_BUFFER = re.compile(r"([iuf])(8|16|32|64)\[(\d+)\](?:=(.+))?")
_SHOWN = 8
"""Elements of a buffer that are printed."""
_USAGE = """python -m amdgpu_emulator OBJECT [KERNEL [ARGUMENT ...]] [OPTION ...]
       python -m amdgpu_emulator PROGRAM [ARGUMENT ...]"""
_HELP = """an array as f32[256] (zeros), f32[256]=1.5, i32[64]=range or file.npy, or a number; floats have a point"""


def main(words: Sequence[str]) -> int:
    """Run a kernel of a code object, list its kernels, or run a HIP program; return the exit status."""
    if words and Path(words[0]).is_file() and is_code_object(Path(words[0])):
        return _object(words)
    if not words or words[0].startswith("-"):
        print(f"usage: {_USAGE}", file=sys.stderr)
        return 2
    try:
        return run_program(words)
    except OSError as error:
        way = "" if Path(words[0]).exists() else "; build the program first"
        print(f"{words[0]}: cannot be run: {error.strerror}{way}", file=sys.stderr)
        return 1


def _object(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m amdgpu_emulator", usage=_USAGE, description=__doc__)
    parser.add_argument("object", type=Path, help="a code object, alone or in a bundle")
    parser.add_argument("kernel", nargs="?", help="its name as it was written; without one, all kernels are listed")
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT", help=_HELP)
    parser.add_argument("--grid", type=_sizes, default=[1], help="workgroups, such as 4 or 4x2")
    parser.add_argument("--block", type=_sizes, default=[64], help="threads of a workgroup, such as 256 or 16x16")
    parser.add_argument("--lds", type=int, default=0, help="bytes of LDS beside the kernel's own")
    parser.add_argument("--seed", type=int, default=0, help="draws an order of waves and workgroups")
    parser.add_argument("--save", type=Path, help="folder for the arrays, as argument_0.npy and so on")
    options = parser.parse_intermixed_args(words)
    try:
        code = load(options.object)
        return _list(code) if options.kernel is None else _launch(code, options)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    except EmulationFault as fault:
        print(f"{type(fault).__name__}: {fault}", file=sys.stderr)
        return 1


def _sizes(text: str) -> list[int]:
    return [int(number) for number in text.split("x")]


def _list(code: CodeObject) -> int:
    for name, kernel in code.kernels.items():
        missing = sorted(set(code.missing(name).values()))
        kinds = ", ".join(f"{row['.value_kind']} of {row['.size']} bytes" for row in kernel.explicit_arguments)
        print(f"{qualified_name(name)} ({kinds})" + (f": not emulated: {', '.join(missing)}" if missing else ""))
    return 0


def _launch(code: CodeObject, options: argparse.Namespace) -> int:
    rows = code.kernels[code.find(options.kernel)].explicit_arguments
    if len(rows) != len(options.arguments):
        raise ValueError(f"{options.kernel} takes {len(rows)} arguments, not {len(options.arguments)}")
    values = [_value(text, row, number) for number, (text, row) in enumerate(zip(options.arguments, rows, strict=True))]
    before = [value.copy() if isinstance(value, np.ndarray) else value for value in values]
    done = code.launch(
        options.kernel, options.grid, options.block, values, dynamic_lds=options.lds, seed=options.seed
    )  # fmt: skip
    print(f"{done.opcodes.total()} instructions of waves")
    for number, (old, new) in enumerate(zip(before, values, strict=True)):
        if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
            if not np.array_equal(old.view(np.uint8), new.view(np.uint8)):
                print(f"argument {number}: {' '.join(map(str, new.ravel()[:_SHOWN]))}{' ...' * (new.size > _SHOWN)}")
            if options.save:
                options.save.mkdir(parents=True, exist_ok=True)
                np.save(options.save / f"argument_{number}.npy", new)
    mistakes = [*done.races, *done.unwritten]
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    return int(bool(mistakes))


def _value(text: str, row: dict[str, Any], number: int) -> Argument:
    is_buffer, size = row[".value_kind"] == "global_buffer", row[".size"]
    if text.endswith(".npy"):
        content: Array = np.ascontiguousarray(np.load(text))
        return content if is_buffer else content.tobytes()
    match = _BUFFER.fullmatch(text)
    if is_buffer and match:
        kind, count = f"{match[1]}{int(match[2]) // 8}", int(match[3])
        return (
            np.arange(count).astype(kind) if match[4] == "range" else np.full(count, float(match[4] or 0)).astype(kind)
        )
    try:
        if is_buffer:
            raise ValueError
        whole = re.fullmatch(r"[+-]?(0x[0-9a-fA-F]+|\d+)", text)
        value = np.array(int(text, 0)).astype(f"i{size}") if whole else np.array(float(text)).astype(f"f{size}")
        return value.tobytes()
    except (ValueError, TypeError):
        what = "an array" if is_buffer else f"a number of {size} bytes"
        raise ValueError(f"argument {number}: {text!r} is not {what}; choose {_HELP}") from None
