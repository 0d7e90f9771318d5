"""The one form of rule: what a kernel and a problem have to be so that the kernel can run the problem.

*Legality* rules read the kernel and its arch alone, and are evaluated where kernels are enumerated. *Support* rules
read the problem and split-K as well (``support_rules``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tileseer.gpus.arch import ArchSpecs
from tileseer.kernels.gemm_kernel import GemmKernel, field_types

MAX_THREADS = 1024
"""Of a block."""
Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Rule:
    """A condition for a kernel to run a problem; ``reason`` is the sentence a user reads when it fails.

    ``holds(problem, kernel)`` gets columns by name and returns a bool array: problems [P, 1] and kernels [1, Q] to
    what broadcasts to [P, Q]; without a problem, kernels [Q] to [Q]. The kernel's columns are its fields, ``arch`` and
    ``wave_size``; beside a problem, ``split_k``. The reason of a legality rule may name columns: ``{tile_m}``.
    """

    name: str
    reason: str
    holds: Callable[[Columns, Columns], np.ndarray]


class BrokenRule(NamedTuple):
    """A rule that a kernel breaks, and why."""

    name: str
    reason: str


def kernel_columns(kernels: Sequence[GemmKernel], arch: str, specs: ArchSpecs) -> dict[str, np.ndarray]:
    """What legality rules of all families read of Q kernels of one class, [Q] each.

    ``warp_tiles`` is the list of the arch's matrix instructions for the data type, ``has_warp_tile`` whether the
    kernel's is one of them; ``lds`` is the LDS of a block, bytes.
    """
    facts = specs.arch(arch)
    columns = {name: np.array([getattr(kernel, name) for kernel in kernels]) for name in field_types(type(kernels[0]))}
    allowed = {dtype: [tuple(tile) for tile in specs.warp_tiles(arch, dtype)] for dtype in set(columns["dtype"])}
    columns["waves"] = columns["wave_m"] * columns["wave_n"] * columns["wave_k"]
    columns["threads"] = facts.wave_size * columns["waves"]
    columns["has_warp_tile"] = np.array([kernel.warp_tile in allowed[kernel.dtype] for kernel in kernels])
    columns["warp_tiles"] = np.array([str(allowed[kernel.dtype]) for kernel in kernels])
    constant = {"arch": arch, "wave_size": facts.wave_size, "lds": facts.lds_bytes}
    return columns | {name: np.full(len(kernels), value) for name, value in constant.items()}


def broken_rules(rules: Sequence[Rule], columns: Columns) -> list[list[BrokenRule]]:
    """The legality rules that each of Q kernels breaks, in the order of the rules."""
    count = len(next(iter(columns.values())))
    broken: list[list[BrokenRule]] = [[] for _ in range(count)]
    for rule in rules:
        for at in np.flatnonzero(~np.broadcast_to(rule.holds({}, columns), count)):
            row = {name: values[at] for name, values in columns.items()}
            broken[at].append(BrokenRule(rule.name, rule.reason.format(**row)))
    return broken


TILE_DIVIDES = Rule(
    "tile_divides",
    "the tile {tile_m}x{tile_n}x{tile_k} is no multiple of {wave_m}x{wave_n}x{wave_k} waves "
    "x warp tile {warp_tile_m}x{warp_tile_n}x{warp_tile_k}",
    lambda p, k: np.logical_and.reduce(
        [k[f"tile_{axis}"] % (k[f"wave_{axis}"] * k[f"warp_tile_{axis}"]) == 0 for axis in "mnk"]
    ),
)
THREADS_FIT = Rule(
    "threads_fit",
    f"{{waves}} waves make {{threads}} threads; a block has at most {MAX_THREADS}",
    lambda p, k: k["threads"] <= MAX_THREADS,
)
