"""The one table of rules of a library: what arch, kernel, problem and split-K have to be so that the kernel runs.

A rule says which of them it reads. Those of arch and kernel alone are asked where kernels are enumerated; all that do
not read the arch's table are asked of a pair of a kernel and a problem, wherever that is: in the support stage, on the
simulated device, by ``explain``, in the generated C++.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tileseer.facts.arch import ArchSpecs
from tileseer.facts.hardware import Hardware
from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.libraries.gemm_kernel import Kernel, field_types
from tileseer.problems.problem import columns_of_frame
from tileseer.problems.shapes import element_bytes

MAX_THREADS = 1024
"""Of a block."""
VECTOR_BYTES = 16
"""The widest load or store of a lane."""
Columns = Mapping[str, np.ndarray]
Parts = Mapping[str, Any]
"""What rules read by the names of ``Rule.reads``: columns, and of ``split`` the values of split-K themselves."""

OF_KERNELS = frozenset({"arch", "kernel"})
"""What rules can read where kernels are enumerated."""
OF_PAIRS = frozenset({"kernel", "problem", "split"})
"""What rules can read where a kernel with its split-K meets a problem."""


@dataclass(frozen=True)
class Rule:
    """A condition for a kernel to run a problem; ``reason`` is the sentence that a user reads when it fails."""

    name: str
    reason: str
    """May name columns of the kernel or the arch in braces, if the rule reads nothing else: ``{tile_m}``."""
    reads: tuple[str, ...]
    """Some of ``OF_KERNELS``, or some of ``OF_PAIRS``."""
    holds: Callable[..., np.ndarray]
    """What is read, in that order, to bool: [Q] of Q kernels; [P, Q] if it reads problems, [P, 1] to kernels [1, Q]."""

    def __post_init__(self) -> None:
        """Refuse a rule that nobody would ask."""
        if not self.reads or not any(parts.issuperset(self.reads) for parts in (OF_KERNELS, OF_PAIRS)):
            raise ValueError(
                f"the rule {self.name} reads {self.reads}; rules read some of {sorted(OF_KERNELS)} where kernels are "
                f"enumerated, or some of {sorted(OF_PAIRS)} where a kernel meets a problem"
            )

    def check(self, parts: Parts) -> Any:
        """Return whether the rule holds, of the parts that it reads."""
        return self.holds(*(parts[name] for name in self.reads))


class BrokenRule(NamedTuple):
    """A rule that a kernel breaks, and why."""

    name: str
    reason: str


def broken_rules(rules: Sequence[Rule], parts: Parts) -> list[list[BrokenRule]]:
    """Return the rules of arch and kernel that each of Q kernels breaks, in the order of the rules."""
    columns = {**parts["kernel"], **parts["arch"]}
    count = len(next(iter(columns.values())))
    broken: list[list[BrokenRule]] = [[] for _ in range(count)]
    for rule in rules:
        for at in np.flatnonzero(~np.broadcast_to(rule.check(parts), count)):
            row = {name: values[at] for name, values in columns.items()}
            broken[at].append(BrokenRule(rule.name, rule.reason.format(**row)))
    return broken


@dataclass(frozen=True)
class Rules:
    """The rules of a library. Verdict i of a pair is ``names[i]``: the first rule that refuses it; 0 is supported."""

    every: tuple[Rule, ...]
    read_of_kernels: Callable[[pd.DataFrame, int], dict[str, np.ndarray]]
    """(Q candidates with the fields of their kernels, wave size) to what rules read of kernels, [Q] each."""
    read_of_problems: Callable[[Columns, str, np.ndarray | float], dict[str, np.ndarray]]
    """(19 dimensions and ``layout``, int64 [P] each; direction; bytes of an element) to what rules read of problems.

    In arithmetic that C++ has too; ``G`` is among it.
    """
    told_apart: tuple[str, ...] = ()
    """The columns of kernels that rules of problems read: kernels that are alike in them are one class."""
    read_of_arch: Callable[[Columns, str, ArchSpecs], dict[str, np.ndarray]] = lambda kernel, arch, specs: {}
    """(columns of Q kernels, arch, its table) to what rules read of the arch for each kernel, [Q] each."""

    @property
    def names(self) -> list[str]:
        """Name of the rule of each verdict; that of 0 is empty."""
        return ["", *(rule.name for rule in self.every)]

    @cached_property
    def legality(self) -> tuple[Rule, ...]:
        """The rules of arch and kernel alone: a kernel that breaks one is not enumerated."""
        return tuple(rule for rule in self.every if OF_KERNELS.issuperset(rule.reads))

    def parts(self, kernels: Sequence[Kernel], arch: str, specs: ArchSpecs) -> dict[str, dict[str, np.ndarray]]:
        """Return what the rules of arch and kernel read of Q kernels of one class, [Q] each."""
        kernel = self.read_of_kernels(type(kernels[0]).frame(kernels), specs.arch(arch).wave_size)
        return {"kernel": kernel, "arch": self.read_of_arch(kernel, arch, specs)}

    def kernel_classes(self, candidates: pd.DataFrame, hardware: Hardware | None) -> tuple[Columns, np.ndarray]:
        """Return columns of one kernel per class, [1, classes] each, and the class of each candidate [Q].

        Column ``refused`` is the verdict of the rules that read no problem. Without ``hardware``, waves have 64 lanes.
        """
        kernel = self.read_of_kernels(candidates, hardware.wave_size if hardware else 64)
        split = candidates["split_k"].to_numpy(np.int64)
        refused = np.zeros(len(candidates), np.uint8)
        for number, rule in self._numbered(frozenset({"kernel", "split"})):
            refused[~rule.check({"kernel": kernel, "split": split}) & (refused == 0)] = number
        table = pd.DataFrame({name: kernel[name] for name in self.told_apart}, index=candidates.index)
        table["signature"], table["refused"] = signatures(candidates), refused
        if any({"problem", "split"}.issubset(rule.reads) for rule in self.every):
            table["split_k"] = split
        return _distinct(table)

    def problem_columns(self, problems: pd.DataFrame, variant: str) -> dict[str, np.ndarray]:
        """Return what the rules read of P problems of one direction."""
        columns = self.read_of_problems(columns_of_frame(problems), variant, element_bytes(problems["dtype"]))
        return columns | {"signature": signatures(problems)}

    def of_problems(self, problem: Columns, kernel: Columns) -> Iterator[tuple[int, Any]]:
        """Yield the number of each rule that reads the problem, and what it says of classes of kernels."""
        parts = {"kernel": kernel, "problem": problem, "split": kernel.get("split_k")}
        for number, rule in self._numbered(OF_PAIRS):
            if "problem" in rule.reads:
                yield number, rule.check(parts)

    def verdicts(self, problem: Columns, kernel: Columns) -> np.ndarray:
        """Return the verdicts of problems (columns [P]) with classes (columns [1, classes]), uint8 [P, classes]."""
        wide = {name: values[:, None] for name, values in problem.items()}
        verdicts = np.repeat(kernel["refused"], len(problem["G"]), axis=0)
        for number, holds in self.of_problems(wide, kernel):
            verdicts[np.broadcast_to(~holds, verdicts.shape) & (verdicts == 0)] = number
        return verdicts

    def check_classes(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, hardware: Hardware | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the verdicts [P, classes] (uint8), and the class of each candidate [Q]."""
        kernel, classes = self.kernel_classes(candidates, hardware)
        return self.verdicts(self.problem_columns(problems, variant), kernel), classes

    def _numbered(self, parts: frozenset[str]) -> Iterator[tuple[int, Rule]]:
        """Yield the rules that read nothing but ``parts``, with their verdicts."""
        return ((number, rule) for number, rule in enumerate(self.every, 1) if parts.issuperset(rule.reads))


def _distinct(table: pd.DataFrame) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return columns of one row per class of equal rows, [1, classes] each, and the class of each row."""
    classes = table.groupby(list(table.columns), sort=False).ngroup().to_numpy()
    first = np.unique(classes, return_index=True)[1]
    kernel = {}
    for field in table:
        values = table[field].to_numpy()[first]
        kernel[str(field)] = (values if values.dtype.kind in "ifbu" else values.astype(object))[None, :]
    return kernel, classes


def signature(variant: str, dtype: str, ndim: np.ndarray) -> np.ndarray:
    """Return one number for direction, data type and dimensionality of each problem, int64, for quick comparison."""
    return (VARIANTS.index(variant) * len(DTYPES) + DTYPES.index(dtype)) * 4 + ndim


def signatures(table: pd.DataFrame) -> np.ndarray:
    """Return the ``signature`` of each row."""
    operation = codes(table["variant"], VARIANTS) * len(DTYPES) + codes(table["dtype"], DTYPES)
    return operation * 4 + table["ndim"].to_numpy(np.int64)


def codes(values: pd.Series, words: Sequence[str]) -> np.ndarray:
    """Return the position of each value among the words, int64."""
    return values.map({word: code for code, word in enumerate(words)}).to_numpy(np.int64)


def capped_vectors(candidates: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the elements of one access of A, B and C, at most 16 bytes each, float64 [Q] each."""
    widest = VECTOR_BYTES / element_bytes(candidates["dtype"])
    a, b, c = (np.minimum(candidates[f"vec_{x}"].to_numpy(np.float64), widest) for x in "abc")
    return a, b, c


# What libraries of implicit GEMMs share.


def gemm_kernel_columns(candidates: pd.DataFrame, kernel: type[Kernel], wave_size: int) -> dict[str, np.ndarray]:
    """Return the fields of Q kernels, and what follows from them, [Q] each.

    ``access_a``, ``access_b`` and ``access_c`` are the vectors as they are loaded and stored: at most 16 bytes.
    """
    columns = {name: candidates[name].to_numpy() for name in field_types(kernel)}
    columns["waves"] = columns["wave_m"] * columns["wave_n"] * columns["wave_k"]
    columns["threads"] = wave_size * columns["waves"]
    columns["wave_size"] = np.full(len(candidates), wave_size)
    accesses = zip("abc", capped_vectors(candidates), strict=True)
    return columns | {f"access_{x}": vector.astype(np.int64) for x, vector in accesses}


def gemm_arch_columns(kernel: Columns, arch: str, specs: ArchSpecs) -> dict[str, np.ndarray]:
    """Return what the arch's table says of Q kernels, [Q] each.

    ``warp_tiles`` is the list of the arch's matrix instructions for the data type, ``has_warp_tile`` whether the
    kernel's is one of them; ``lds`` is the LDS of a block, bytes.
    """
    allowed = {dtype: [tuple(tile) for tile in specs.warp_tiles(arch, dtype)] for dtype in set(kernel["dtype"])}
    tiles = zip(*(kernel[f"warp_tile_{axis}"].tolist() for axis in "mnk"), strict=True)
    return {
        "arch": np.full(len(kernel["dtype"]), arch),
        "lds": np.full(len(kernel["dtype"]), specs.arch(arch).lds_bytes),
        "has_warp_tile": np.array([t in allowed[dtype] for t, dtype in zip(tiles, kernel["dtype"], strict=True)]),
        "warp_tiles": np.array([str(allowed[dtype]) for dtype in kernel["dtype"]]),
    }


TILE_DIVIDES = Rule(
    "tile_divides",
    "the tile {tile_m}x{tile_n}x{tile_k} is no multiple of {wave_m}x{wave_n}x{wave_k} waves "
    "x warp tile {warp_tile_m}x{warp_tile_n}x{warp_tile_k}",
    ("kernel",),
    lambda k: np.logical_and.reduce(
        [k[f"tile_{axis}"] % (k[f"wave_{axis}"] * k[f"warp_tile_{axis}"]) == 0 for axis in "mnk"]
    ),
)
THREADS_FIT = Rule(
    "threads_fit",
    f"{{waves}} waves make {{threads}} threads; a block has at most {MAX_THREADS}",
    ("kernel",),
    lambda k: k["threads"] <= MAX_THREADS,
)
OPERATION = Rule(
    "operation",
    "the kernel is for another number of dimensions (2D or 3D), direction or data type",
    ("kernel", "problem"),
    lambda k, p: p["signature"] == k["signature"],
)
VECTORS_DIVIDE_RUNS = Rule(
    "vector",
    "a vector width does not divide the contiguous channels of A, B or C",
    ("kernel", "problem"),
    # Merged groups are walked one by one.
    lambda k, p: (
        (p["run_a"] % k["access_a"] == 0) & (p["run_b"] % k["access_b"] == 0) & (p["run_c"] % k["access_c"] == 0)
    ),
)
ACCESSES = ("access_a", "access_b", "access_c")
"""What ``VECTORS_DIVIDE_RUNS`` tells kernels apart by."""


def channel_runs_of(gemm: Columns) -> dict[str, np.ndarray]:
    """Return what ``VECTORS_DIVIDE_RUNS`` reads of ``shapes.gemm_columns``."""
    return {f"run_{x}": gemm[f"run_{x}"].astype(np.int64) for x in "abc"}
