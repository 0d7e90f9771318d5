"""What the learning stages ask of a kernel family: its kernels as columns, and which problems they can run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tileseer import families
from tileseer.families import Family
from tileseer.families.ck_tile import kernel as ck_kernel
from tileseer.families.ck_tile import support as ck_support
from tileseer.families.ck_tile.support import Columns, Rule
from tileseer.families.cutlass import kernel as cutlass_kernel
from tileseer.families.cutlass import support as cutlass_support


@dataclass(frozen=True)
class Learned:
    """A family as models know it."""

    family: Family
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

    @property
    def features(self) -> str:
        """Its feature set."""
        return self.family.features

    @property
    def header_suffix(self) -> str:
        """Of the file that an emitted kernel is in."""
        return self.family.header_suffix


def _ck_tile_frame(names: Sequence[str]) -> pd.DataFrame:
    return ck_kernel.frame([ck_kernel.parse(name) for name in names]).drop(columns="kernel")


def _ck_tile_check(problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, wave_size: int) -> np.ndarray:
    return ck_support.check(problems, candidates, variant, wave_size=wave_size)


def _cutlass_check(problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, wave_size: int) -> np.ndarray:
    return cutlass_support.check(problems, candidates, variant)


OF_FAMILY = {
    families.CK_TILE.name: Learned(
        families.CK_TILE, _ck_tile_frame, _ck_tile_check, ck_kernel.FIELDS, ck_support.RULES,
        ck_support.kernel_classes, ck_support.problem_columns,
    ),
    families.CUTLASS.name: Learned(
        families.CUTLASS, cutlass_kernel.frame, _cutlass_check, cutlass_kernel.FIELDS, cutlass_support.RULES,
        cutlass_support.kernel_classes, cutlass_support.problem_columns,
    ),
}  # fmt: skip


def of_arch(arch: str) -> Learned:
    """Return the family whose kernels run on an arch."""
    return OF_FAMILY[families.of_arch(arch).name]


def of_kernels(names: Sequence[str]) -> Learned:
    """Return the family of kernel names; ``UserError`` where they are of several or none."""
    return OF_FAMILY[families.of_kernels(names).name]


def check(problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, wave_size: int) -> np.ndarray:
    """Return the verdict of each of P problems with each of Q candidates, uint8 [P, Q]; 0 is supported."""
    return of_kernels(candidates["kernel"].tolist()).check(problems, candidates, variant, wave_size)
