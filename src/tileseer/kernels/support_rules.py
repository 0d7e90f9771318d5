"""When a kernel can run a problem: rules evaluated once per class of kernels that look the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tileseer.config.operations import DTYPES, VARIANTS
from tileseer.gpus.hardware import Hardware
from tileseer.kernels.rules import Columns, Rule
from tileseer.problems.implicit_gemm import element_bytes
from tileseer.problems.problem import DIMS


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
    """When kernels of a family can run problems; verdict i + 1 stands for ``rules[i]``, 0 is supported."""

    rules: tuple[Rule, ...]
    read_of_kernels: Callable[[pd.DataFrame, int], pd.DataFrame]
    """(candidates, wave size) to what the rules read of them beside their operation, a row each."""
    read_of_problems: Callable[[Columns, str, np.ndarray | float], dict[str, np.ndarray]]
    """(19 dimensions, int64 [P] each; direction; bytes of an element) to what the rules read of problems.

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
        dims = {name: problems[name].to_numpy(np.int64) for name in DIMS}
        columns = self.read_of_problems(dims, variant, element_bytes(problems["dtype"]))
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
