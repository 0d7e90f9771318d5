"""The simulated device's formula as a start: what physics says of a pair before anything is measured.

Formula and coefficients are those of the simulated device without its drawn deviations and crashes. A model keeps the
coefficients that it was trained with.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from tileseer.conv.implicit_gemm import implicit_gemm
from tileseer.devices import timing
from tileseer.families.feature_table import only
from tileseer.families.registry import of_arch
from tileseer.gpu.hardware import Hardware
from tileseer.model import trees
from tileseer.model.schema import FormulaStart

LEAST_OCCUPANCY = 0.1
"""Resident blocks of a kernel of which the formula thinks that none fits."""


class Formula:
    """The formula's scores of P problems and Q candidates on one device."""

    def __init__(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, hardware: Hardware, start: FormulaStart
    ) -> None:
        """Take ``problems`` of one direction and ``candidates`` with the fields of their family's kernels."""
        coefficients = start.coefficients
        self.weight = start.weight
        self._variant = only(problems, "variant")
        self._hardware, self._coefficients = hardware, coefficients
        gemm = implicit_gemm(problems, self._variant)
        family = of_arch(hardware.arch)
        terms = family.part("simulated").terms(problems, candidates, self._variant, hardware, coefficients)
        self._problem = {name: gemm[name].to_numpy(np.float32) for name in timing.PROBLEM_TERMS}
        self.kernel = {name: np.asarray(terms.columns[name], np.float32) for name in timing.KERNEL_TERMS}
        """Terms of the candidates, float32 [Q] by name."""
        self.kernel["occupancy"] = np.maximum(self.kernel["occupancy"], np.float32(LEAST_OCCUPANCY))

    def score(self, problem: np.ndarray, candidate: np.ndarray) -> np.ndarray:
        """Weight times -ln(microseconds) of n pairs, float64 [n]; both int [n], rows of the tables."""
        of_problem = {name: values[problem] for name, values in self._problem.items()}
        return self.score_of(of_problem, {name: values[candidate] for name, values in self.kernel.items()})

    def score_of(self, of_problem: Mapping[str, np.ndarray], of_kernel: Mapping[str, np.ndarray]) -> np.ndarray:
        """``score`` of n pairs from their terms, float32 [n] by name; whole multiples of ``trees.UNIT``."""
        score = -self.weight * np.log(self.microseconds(of_problem, of_kernel).astype(np.float64))
        return np.asarray(np.rint(score / trees.UNIT) * trees.UNIT)

    def microseconds(self, of_problem: Mapping[str, np.ndarray], of_kernel: Mapping[str, np.ndarray]) -> np.ndarray:
        """The formula's time of n pairs from their terms, float32 [n]."""
        return timing.formula_us(self._variant, of_problem, of_kernel, self._hardware, self._coefficients)
