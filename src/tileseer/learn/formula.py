"""The simulated device's formula as a prior: what physics says of a pair before anything is measured.

Formula and coefficients are those of the simulated device. A model keeps the
coefficients that it was trained with.
"""

import copy
from collections.abc import Mapping
from typing import Self

import numpy as np
import pandas as pd

from tileseer.core import exact
from tileseer.core.documents import Document
from tileseer.facts.hardware import Hardware
from tileseer.libraries.costs import timing
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.libraries.registry import library_of_arch

UNIT = 2.0**-20
"""Scores of the formula and what a learner adds are whole multiples of it: sums of them are exact in any order."""
LEAST_OCCUPANCY = 0.1
"""Resident blocks of a kernel of which the formula thinks that none fits."""


class FormulaPrior(Document):
    """The device's formula as a prior: a score is ``weight`` times -ln(its microseconds), plus what was learnt."""

    weight: float
    """How far the measured rows follow the formula, by least squares of the differences within problems."""
    coefficients: Coefficients


class Formula:
    """The formula's scores of P problems and Q candidates on one device."""

    def __init__(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, hardware: Hardware, start: FormulaPrior
    ) -> None:
        """Take ``problems`` of one direction and ``candidates`` with the fields of their library's kernels."""
        coefficients = start.coefficients
        self.weight = start.weight
        self._variant = str(problems["variant"].iloc[0])
        self._hardware, self._coefficients = hardware, coefficients
        library = library_of_arch(hardware.arch)
        terms = library.made_here(library.cost)(problems, candidates, self._variant, hardware, coefficients)
        self._problem = timing.problem_terms(problems, self._variant)
        self.kernel = terms.in_single_precision()
        """Terms of the candidates, float32 [Q] by name."""
        self.kernel["occupancy"] = np.maximum(self.kernel["occupancy"], np.float32(LEAST_OCCUPANCY))

    def of_problems(self, problems: pd.DataFrame) -> Self:
        """Return the formula of other problems of the direction and the same candidates."""
        other = copy.copy(self)
        other._problem = timing.problem_terms(problems, self._variant)
        return other

    def score(self, problem: np.ndarray, candidate: np.ndarray) -> np.ndarray:
        """Return weight times -ln(microseconds) of n pairs, float64 [n]; both int [n], rows of the tables."""
        return whole_units(self.weight * self.log_speed(problem, candidate))

    def log_speed(self, problem: np.ndarray, candidate: np.ndarray) -> np.ndarray:
        """Return -ln(microseconds) of n pairs, float64 [n]; both int [n], rows of the tables."""
        of_problem = {name: values[problem] for name, values in self._problem.items()}
        of_kernel = {name: values[candidate] for name, values in self.kernel.items()}
        return -exact.log(self.microseconds(of_problem, of_kernel).astype(np.float64))

    def microseconds(self, of_problem: Mapping[str, np.ndarray], of_kernel: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the formula's time of n pairs from their terms, float32 [n]."""
        return timing.formula_us(self._variant, of_problem, of_kernel, self._hardware, self._coefficients)


def whole_units(score: np.ndarray) -> np.ndarray:
    """Return the scores rounded to whole multiples of ``UNIT``, whose sums are exact."""
    return np.asarray(np.rint(score / UNIT) * UNIT)
