"""One of cuDNN's plans for a direction and a data type; ``parse(plan.name) == plan``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from tileseer.libraries.cudnn.engines import ENGINES
from tileseer.libraries.gemm_kernel import OPERATION_CHOICES, OPERATION_PARTS, Kernel
from tileseer.libraries.grammar import Part

CUDNN_PREFIX = "cudnn_conv_"
KNOB = r"k(?:0|[1-9]\d*)=-?(?:0|[1-9]\d*)"


@dataclass(frozen=True, order=True)
class Plan(Kernel):
    """An engine and the settings of its knobs, in cuDNN's order. What they do, cuDNN does not tell."""

    variant: str
    dtype: str
    ndim: int
    engine: int
    knobs: str = ""
    """As in cuDNN's name: ``k2=7_k13=1``; empty where the engine has none."""

    kind: ClassVar[str] = "plan"
    choices: ClassVar[Mapping[str, Sequence[Any]]] = {**OPERATION_CHOICES, "engine": tuple(ENGINES)}
    patterns: ClassVar[Mapping[str, str]] = {"knobs": f"{KNOB}(?:_{KNOB})*"}
    parts: ClassVar[Sequence[Part]] = (
        Part(CUDNN_PREFIX, CUDNN_PREFIX),
        *OPERATION_PARTS,
        Part("an engine of cuDNN", "eng{engine}"),
        Part("its knobs", "_{knobs}", optional=True),
    )

    @cached_property
    def settings(self) -> dict[int, int]:
        """Value of each knob."""
        pairs = (knob.split("=") for knob in self.knobs.split("_") if knob)
        return {int(knob[1:]): int(value) for knob, value in pairs}

    @property
    def plan(self) -> str:
        """What cuDNN calls it."""
        return f"eng{self.engine}" + (f"_{self.knobs}" if self.knobs else "")

    @property
    def pipeline(self) -> str:
        """The engine."""
        return f"eng{self.engine}"
