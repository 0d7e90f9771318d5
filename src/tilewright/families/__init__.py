"""Kernel families: what differs between CK Tile kernels for AMD GPUs and CUTLASS kernels for NVIDIA GPUs.

The name of a kernel says its family, and so does the arch. Tables of candidates carry the fields of their family's
kernels; fields that mean the same have the same names (``families.cutlass.kernel``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tilewright import kernel as ck_kernel
from tilewright import support as ck_support
from tilewright.errors import UserError
from tilewright.families.cutlass import kernel as cutlass_kernel
from tilewright.families.cutlass import support as cutlass_support
from tilewright.support import Columns, Rule


@dataclass(frozen=True)
class Family:
    """What the learning stages ask of a family."""

    name: str
    prefix: str
    """How its kernels' names begin."""
    features: str
    """Its feature set."""
    frame: Callable[[Sequence[str]], pd.DataFrame]
    """From kernel names to one row a kernel with every field."""
    check: Callable[[pd.DataFrame, pd.DataFrame, str, int], np.ndarray]
    """(problems, candidates, variant, wave size) to the verdicts of its support rules, uint8 [P, Q]; 0 is supported."""
    fields: tuple[str, ...]
    """Columns of a kernel's fields."""
    rules: tuple[Rule, ...]
    """The support rules; verdict i + 1 stands for ``rules[i]``."""
    kernel_classes: Callable[[pd.DataFrame, int], tuple[dict[str, np.ndarray], np.ndarray]]
    """(candidates, wave size) to what the rules read of kernels: columns a class, and each candidate's class."""
    problem_columns: Callable[[Columns, str, float], dict[str, np.ndarray]]
    """(dimensions, variant, bytes of an element) to what they read of problems, in arithmetic that C++ has too."""
    header_suffix: str
    """Of the file that an emitted kernel is in."""


def _ck_tile_frame(names: Sequence[str]) -> pd.DataFrame:
    return ck_kernel.frame([ck_kernel.parse(name) for name in names]).drop(columns="kernel")


def _ck_tile_check(problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, wave_size: int) -> np.ndarray:
    return ck_support.check(problems, candidates, variant, wave_size=wave_size)


def _cutlass_check(problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, wave_size: int) -> np.ndarray:
    return cutlass_support.check(problems, candidates, variant)


CK_TILE = Family(
    "ck_tile", "grouped_conv_", "tilewright", _ck_tile_frame, _ck_tile_check,
    ck_kernel.FIELDS, ck_support.RULES, ck_support.kernel_classes, ck_support.problem_columns, ".hpp",
)  # fmt: skip
CUTLASS = Family(
    "cutlass", cutlass_kernel.PREFIX, "cutlass", cutlass_kernel.frame, _cutlass_check,
    cutlass_kernel.FIELDS, cutlass_support.RULES, cutlass_support.kernel_classes, cutlass_support.problem_columns,
    ".cuh",
)  # fmt: skip
FAMILIES = (CK_TILE, CUTLASS)


def of_arch(arch: str) -> Family:
    """Return the family whose kernels run on an arch: ``sm_...`` is NVIDIA, all others AMD."""
    return CUTLASS if arch.startswith("sm_") else CK_TILE


def of_kernels(names: Sequence[str]) -> Family:
    """Return the family of kernel names; ``UserError`` where they are of several or none."""
    if not len(names):
        return CK_TILE
    for family in FAMILIES:
        if all(name.startswith(family.prefix) for name in names):
            return family
    prefixes = ", ".join(family.prefix for family in FAMILIES)
    raise UserError(f"kernels of one family at a time, with names that begin with one of {prefixes}; see {names[0]!r}")


def check(problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, wave_size: int) -> np.ndarray:
    """Return the verdict of each of P problems with each of Q candidates, uint8 [P, Q]; 0 is supported."""
    return of_kernels(candidates["kernel"].tolist()).check(problems, candidates, variant, wave_size)
