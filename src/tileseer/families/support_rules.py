"""How support rules are asked: once per class of kernels that agree in the fields that the rules read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tileseer.conv.implicit_gemm import element_bytes
from tileseer.conv.operation import DTYPES, VARIANTS
from tileseer.conv.problem import DIMS
from tileseer.families.registry import of_kernels

if TYPE_CHECKING:
    from tileseer.families.family import SupportPart

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Rule:
    """A condition for a kernel to run a problem; ``reason`` is the sentence a user reads when it fails.

    ``holds(problem, kernel)`` gets columns by name, problems [P, 1] and kernel classes [1, Q], and returns a
    bool array that broadcasts to [P, Q].
    """

    name: str
    reason: str
    holds: Callable[[Columns, Columns], np.ndarray]


def vectors_divide_runs(problem: Columns, kernel: Columns) -> np.ndarray:
    """Each vector width divides the contiguous channels of its operand; merged groups are walked one by one."""
    fits = [problem[f"run_{x}"] % kernel[f"vec_{x}"] == 0 for x in "abc"]
    return fits[0] & fits[1] & fits[2]


OPERATION = Rule(
    "operation", "the kernel is for another direction, data type or dimensionality",
    lambda p, k: p["signature"] == k["signature"],
)  # fmt: skip


def check(problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, wave_size: int = 64) -> np.ndarray:
    """Verdict of each of P problems with each of Q candidates (kernel, its fields, split_k), uint8 [P, Q].

    0 is supported, else 1 + the index of the first rule of the family's that fails.
    """
    family = of_kernels(candidates["kernel"].tolist()).part("support")
    verdicts, classes = check_classes(family, problems, candidates, variant, wave_size)
    return np.take(verdicts, classes, axis=1)


def check_classes(
    family: SupportPart, problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, wave_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Verdicts by the family's rules [P, classes] (uint8), and the class of each candidate [Q]."""
    kernel, classes = family.kernel_classes(candidates, wave_size)
    return classes_verdicts(columns_of(family, problems, variant), kernel, family.RULES), classes


def columns_of(family: SupportPart, problems: pd.DataFrame, variant: str) -> dict[str, np.ndarray]:
    """What the rules read of P problems."""
    dims = {name: problems[name].to_numpy(np.int64) for name in DIMS}
    columns = family.problem_columns(dims, variant, element_bytes(problems["dtype"]))
    return columns | {"signature": signatures(problems)}


def classes_verdicts(problem: Columns, kernel: Columns, rules: Sequence[Rule]) -> np.ndarray:
    """Verdicts of problems (columns [P]) with kernel classes (columns [1, classes]), uint8 [P, classes]."""
    wide = {name: values[:, None] for name, values in problem.items()}
    verdicts = np.zeros((len(problem["G"]), kernel["signature"].shape[1]), np.uint8)
    for number, rule in reversed(list(enumerate(rules, start=1))):
        fails = ~rule.holds(wide, kernel)
        if fails.any():
            verdicts[np.broadcast_to(fails, verdicts.shape)] = number
    return verdicts


def distinct(table: pd.DataFrame) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns of one row a class of equal rows, [1, classes] each, and the class of each row."""
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
