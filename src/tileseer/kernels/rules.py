"""The one form of rule: what a kernel and a problem have to be so that the kernel can run the problem.

*Legality* rules read the kernel and its arch alone, and are evaluated where kernels are enumerated. *Support* rules
read the problem and split-K as well, and are evaluated once per class of kernels that look the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from tileseer.config.operations import DTYPES, VARIANTS
from tileseer.gpus.arch import ArchSpecs
from tileseer.gpus.hardware import Hardware
from tileseer.kernels.gemm_kernel import GemmKernel, field_types
from tileseer.problems.implicit_gemm import element_bytes
from tileseer.problems.problem_rows import columns_of_frame

MAX_THREADS = 1024
"""Of a block."""
VECTOR_BYTES = 16
"""The widest load or store of a lane."""
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
    """What legality rules of all libraries read of Q kernels of one class, [Q] each.

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


def vectors_divide_runs(problem: Columns, kernel: Columns) -> np.ndarray:
    """Each vector width divides the contiguous channels of its operand; merged groups are walked one by one."""
    fits = [problem[f"run_{x}"] % kernel[f"vec_{x}"] == 0 for x in "abc"]
    return fits[0] & fits[1] & fits[2]


OPERATION = Rule(
    "operation",
    "the kernel is for another direction, data type or dimensionality",
    lambda p, k: p["signature"] == k["signature"],
)


@dataclass(frozen=True)
class SupportRules:
    """When kernels of a library can run problems; verdict i + 1 is ``rules[i]``, 0 is supported."""

    rules: tuple[Rule, ...]
    read_of_kernels: Callable[[pd.DataFrame, int], pd.DataFrame]
    """(candidates, wave size) to what the rules read of them beside their operation, a row each."""
    read_of_problems: Callable[[Columns, str, np.ndarray | float], dict[str, np.ndarray]]
    """(19 dimensions and ``layout``, int64 [P] each; direction; bytes of an element) to what the rules read.

    In arithmetic that C++ has too; ``G`` is among it.
    """

    def kernel_classes(self, candidates: pd.DataFrame, hardware: Hardware | None) -> tuple[Columns, np.ndarray]:
        """Columns of one kernel per class, [1, classes] each, and the class of each candidate [Q]."""
        wave_size = hardware.wave_size if hardware else 64
        table = self.read_of_kernels(candidates, wave_size)
        table["signature"] = signatures(candidates)
        kernel, classes = _distinct(table)
        shape = kernel["signature"].shape
        constant = {"arch": hardware.arch if hardware else "", "wave_size": wave_size}
        return kernel | {name: np.full(shape, value) for name, value in constant.items()}, classes

    def problem_columns(self, problems: pd.DataFrame, variant: str) -> dict[str, np.ndarray]:
        """What the rules read of P problems of one direction."""
        columns = self.read_of_problems(columns_of_frame(problems), variant, element_bytes(problems["dtype"]))
        return columns | {"signature": signatures(problems)}

    def check_classes(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, hardware: Hardware | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Verdicts [P, classes] (uint8), and the class of each candidate [Q]."""
        kernel, classes = self.kernel_classes(candidates, hardware)
        return self.verdicts(self.problem_columns(problems, variant), kernel), classes

    def verdicts(self, problem: Columns, kernel: Columns) -> np.ndarray:
        """Verdicts of problems (columns [P]) with kernel classes (columns [1, classes]), uint8 [P, classes]."""
        wide = {name: values[:, None] for name, values in problem.items()}
        verdicts = np.zeros((len(problem["G"]), kernel["signature"].shape[1]), np.uint8)
        for number, rule in reversed(list(enumerate(self.rules, start=1))):
            fails = ~rule.holds(wide, kernel)
            if fails.any():
                verdicts[np.broadcast_to(fails, verdicts.shape)] = number
        return verdicts


def _distinct(table: pd.DataFrame) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns of one row per class of equal rows, [1, classes] each, and the class of each row."""
    classes = table.groupby(list(table.columns), sort=False).ngroup().to_numpy()
    first = np.unique(classes, return_index=True)[1]
    kernel = {}
    for field in table:
        values = table[field].to_numpy()[first]
        kernel[str(field)] = (values if values.dtype.kind in "ifbu" else values.astype(object))[None, :]
    return kernel, classes


def signature(variant: str, dtype: str, ndim: np.ndarray) -> np.ndarray:
    """One number for direction, data type and dimensionality of each problem, int64, for quick comparison."""
    return (VARIANTS.index(variant) * len(DTYPES) + DTYPES.index(dtype)) * 4 + ndim


def signatures(table: pd.DataFrame) -> np.ndarray:
    """``signature`` of each row."""
    operation = codes(table["variant"], VARIANTS) * len(DTYPES) + codes(table["dtype"], DTYPES)
    return operation * 4 + table["ndim"].to_numpy(np.int64)


def codes(values: pd.Series, words: Sequence[str]) -> np.ndarray:
    """Position of each value among the words, int64."""
    return values.map({word: code for code, word in enumerate(words)}).to_numpy(np.int64)


def capped_vectors(candidates: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Elements of one access of A, B and C, at most 16 bytes each, float64 [Q] each."""
    widest = VECTOR_BYTES / element_bytes(candidates["dtype"])
    a, b, c = (np.minimum(candidates[f"vec_{x}"].to_numpy(np.float64), widest) for x in "abc")
    return a, b, c
