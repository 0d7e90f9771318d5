"""The libraries of kernels, which packages bring by entry points; an arch and a kernel's name both tell the library."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.core.entry_points import load_entry_points
from tileseer.core.errors import UserError, shown
from tileseer.facts.hardware import Hardware, target
from tileseer.facts.names import arch_hint
from tileseer.libraries.emitter import Emitter
from tileseer.libraries.gemm_kernel import Kernel
from tileseer.libraries.library import Library
from tileseer.libraries.source_tree import SourceTree

GROUP = "tileseer.libraries"
"""Of the entry points, which name a ``Library`` each."""


@cache
def installed() -> tuple[Library, ...]:
    """Return the libraries of all packages, those with longer patterns of archs first, and of these by name.

    Of several whose pattern an arch has, the first one has its kernels.
    """
    found: list[Library] = list(load_entry_points(GROUP).values())
    return tuple(sorted(found, key=lambda library: (-len(library.archs), library.name)))


def library_of_arch(arch: str) -> Library:
    """Return the library whose kernels run on an arch; ``UserError`` if there is none."""
    for library in installed():
        if fnmatchcase(arch, library.archs):
            return library
    raise UserError(f"no kernels for the arch {shown(arch)}; {arch_hint(arch)}")


def library_of_name(name: str) -> Library:
    """Return the library with a name; ``UserError`` if there is none."""
    for library in installed():
        if library.name == name:
            return library
    raise UserError(f"there is no library {shown(name)}, only {', '.join(one.name for one in installed())}")


def installed_words() -> dict[str, Library]:
    """Return the libraries that have times where they are installed, by the word that stands for these archs."""
    return {f"installed_{library.name}": library for library in installed() if library.installed}


def vendor_arch(arch: str) -> str | None:
    """Return the arch of the same GPU whose models have a candidate for every problem; None if there is no other."""
    vendor = library_of_arch(arch).vendor
    return f"{target(arch)}_{vendor}" if vendor else None


def library_of_kernels(names: Sequence[str]) -> Library:
    """Return the library of kernel names, of which there is at least one; ``UserError`` for several or unknown ones."""
    if not len(names):
        raise ValueError("there is no kernel name to tell the library by")
    for library in installed():
        if all(name.startswith(library.prefix) for name in names):
            return library
    prefixes = ", ".join(library.prefix for library in installed())
    raise UserError(f"kernels of one library at a time, with names that begin with one of {prefixes}; see {names[0]!r}")


def files_of_times(folder: Path) -> list[Path]:
    """Return the files of a recording's operation that have times of other libraries than the candidates'."""
    named = [folder / name for library in installed() for name in library.times_files]
    found = [path for path in named if path.exists()]
    return [*found, folder / "problems.parquet"] if found else []


def times_of_libraries(files: Sequence[Path]) -> pd.DataFrame:
    """Return the microseconds in ``files_of_times`` by problem key, a column for each way to choose."""
    read = [library.read_times for library in installed() if library.read_times]
    return pd.concat([times(files) for times in read], axis=1)


def examples(command: str) -> list[str]:
    """Return the examples that libraries have for the help text of a command."""
    return [f"tileseer {command} {one.examples[command]}" for one in installed() if command in one.examples]


def tree_of_toolchain(toolchain: str) -> SourceTree:
    """Return the headers that kernels of a toolchain are compiled against."""
    return next(one.tree for one in installed() if one.tree is not None and one.toolchain == toolchain)


def emitter_of(kernels: Sequence[Kernel]) -> type[Emitter]:
    """Return what writes the C++ text of kernels, all of one library."""
    library = library_of_kernels([kernel.name for kernel in kernels])
    return library.made_here(library.emitter)


def parse_kernels(names: Sequence[str]) -> list[Kernel]:
    """Return the kernels of names, all of one library."""
    parse = library_of_kernels(names).kernel.parse if len(names) else None
    return [parse(name) for name in names] if parse else []


def check_support(
    problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, hardware: Hardware | None = None
) -> np.ndarray:
    """Return the verdict of each of P problems with each of Q candidates (kernel, its fields, split_k), uint8 [P, Q].

    0 is supported, else 1 + the index of the first rule of the library's that fails. Without ``hardware``, waves have
    64 lanes.
    """
    if candidates.empty:
        return np.zeros((len(problems), 0), np.uint8)
    rules = library_of_kernels(candidates["kernel"].tolist()).rules
    verdicts, classes = rules.check_classes(problems, candidates, variant, hardware)
    return np.take(verdicts, classes, axis=1)
