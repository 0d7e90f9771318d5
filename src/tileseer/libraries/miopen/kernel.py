"""One of MIOpen's solvers for a direction and a data type; ``parse(solver.name) == solver``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tileseer.libraries.gemm_kernel import OPERATION_CHOICES, OPERATION_PARTS, Kernel
from tileseer.libraries.grammar import Part
from tileseer.libraries.miopen.solvers import SOLVER_NAME, SOLVERS, Facts, facts_of

MIOPEN_PREFIX = "miopen_conv_"


@dataclass(frozen=True, order=True)
class Solver(Kernel):
    """What MIOpen runs is a family of kernels of its own; which of them, it decides behind the solver's name."""

    variant: str
    dtype: str
    ndim: int
    solver: str

    kind: ClassVar[str] = "solver"
    short: ClassVar[str] = "solver"
    choices: ClassVar[Mapping[str, Sequence[Any]]] = OPERATION_CHOICES
    patterns: ClassVar[Mapping[str, str]] = {"solver": SOLVER_NAME}
    short_names: ClassVar[Sequence[str]] = tuple(SOLVERS)
    parts: ClassVar[Sequence[Part]] = (
        Part(MIOPEN_PREFIX, MIOPEN_PREFIX),
        *OPERATION_PARTS,
        Part("a solver", "{solver}"),
    )

    @property
    def facts(self) -> Facts:
        """Number, algorithm and limits."""
        return facts_of(self.solver)

    @property
    def pipeline(self) -> str:
        """The algorithm."""
        return self.facts.algorithm
