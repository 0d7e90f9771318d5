"""What a run of a compiler reads: headers, libraries of device code, and the commands that its options become.

The compiler is asked for both. ``-###`` of clang and ``--dryrun`` of nvcc print the commands that would run, with all
that variables such as ``CPLUS_INCLUDE_PATH`` and ``NVCC_APPEND_FLAGS`` add. The preprocessor lists every header that it
opens, of the kernel library, of HIP or CUDA, and of the system. Folders do not count, contents do.
"""

import hashlib
import re
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tileseer.build import compiler
from tileseer.build import source_trees as trees
from tileseer.build.compiler import Builder
from tileseer.core.reading import LARGEST_OBJECT, read_bytes, read_utf8

_CLANG = ("-dependency-file", "headers", "-sys-header-deps", "-MT", "unit")
_LISTED = {
    # Clang's own -MD lists none in the pass for a device.
    "hipcc": ("-E", "-o", "/dev/null", *(word for option in _CLANG for word in ("-Xclang", option))),
    "nvcc": ("-M", "-o", "headers"),
}
"""Preprocess, and list the headers; by the name of the program."""
_PLANNED = {"hipcc": ("-o", "unit.s", "-###"), "nvcc": ("-c", "-o", "unit.o", "--dryrun")}
"""Print the commands."""
_COMMAND_STARTS = (' "', "#$ ")
"""Of a line with a command."""
_PATH = re.compile(r"(?:(?<![\w.])|-[IL])/.*|tmpxft_\w+-\d+")
"""An absolute path, and the names of nvcc's own files."""
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"].*$', re.M)
_FILE_IN_RULE = re.compile(r"(?:\\.|[^\s\\])+")
_BITCODE = ".bc"


def digest(builder: Builder, text: bytes, arguments: Sequence[str | Path]) -> str:
    """Return the SHA-256 of what a run with these arguments reads for the headers that ``text`` includes.

    Where the preprocessor fails, the whole tree counts: the compiler will say what is wrong.
    """
    return _digest(builder, b"".join(line.strip() + b"\n" for line in _INCLUDE.findall(text)), tuple(arguments))


@cache
def _digest(builder: Builder, text: bytes, arguments: tuple[str | Path, ...]) -> str:
    program, include = builder.compiler.vendor.program, builder.tree.include
    for _ in range(2):  # what disturbs a run once is no property of the text
        with compiler.workspace({"unit.cpp": text}) as folder:
            planned = builder.call([*arguments, "unit.cpp", *_PLANNED[program]], folder)
            listed = builder.call([*arguments, "unit.cpp", *_LISTED[program]], folder)
            commands = [
                line.removeprefix("#$") for line in planned.log.splitlines() if line.startswith(_COMMAND_STARTS)
            ]
            rule, words = folder / "headers", [word for line in commands for word in shlex.split(line)]
            if not (planned.outcome == listed.outcome == "ok" and words and rule.exists()):
                continue
            lines = [_PATH.sub("", word) for word in words if not word.startswith("-cuid=")]
            for path in map(Path, sorted({word for word in words if word.endswith(_BITCODE)})):
                lines.append(f"{path.name} {_content(path)}")
            # The files that the rule for make depends on; a header of the tree has its folder there, others have none.
            names = _FILE_IN_RULE.findall(read_utf8(rule).replace("\\\n", " ").partition(":")[2])
            headers = [path for name in names if (path := folder / re.sub(r"\\(.)", r"\1", name)).parent != folder]
            lines += sorted(
                f"{path.relative_to(include) if path.is_relative_to(include) else path.name} "
                f"{trees.content_digest(path)}"
                for path in headers
            )
            return hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return builder.tree.digest()


@cache
def _content(path: Path) -> str:
    return hashlib.sha256(read_bytes(path, LARGEST_OBJECT)).hexdigest() if path.is_file() else "missing"
