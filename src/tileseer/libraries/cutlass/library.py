"""The door to the library (``libraries.library.Library`` says what the parts are)."""

import importlib.util
from pathlib import Path

from tileseer.libraries.cutlass import cost, features
from tileseer.libraries.cutlass.emit import CutlassEmitter
from tileseer.libraries.cutlass.kernel import CutlassKernel
from tileseer.libraries.cutlass.rules import RULES
from tileseer.libraries.cutlass.sweep import CutlassSweep
from tileseer.libraries.library import Library
from tileseer.libraries.source_tree import SourceTree, brought, folders


def _places() -> list[Path]:
    package = importlib.util.find_spec("cutlass_library")
    installed = [Path(package.origin).parent / "source"] if package and package.origin else []
    return [*folders("CUTLASS_PATH"), *installed, brought("cuda-toolchain") / "cutlass"]


CUTLASS = Library(
    "cutlass",
    "CUTLASS",
    "sm_*",
    CutlassKernel,
    RULES,
    {"cutlass": features.CUTLASS_FEATURES},
    vendor="cudnn",
    sweep=CutlassSweep,
    rule_set="cutlass.yaml",
    emitter=CutlassEmitter,
    toolchain="nvcc",
    tree=SourceTree("CUTLASS headers", "cutlass", "cutlass", "cuda-toolchain", _places),
    estimate=cost.estimate,
    cost=cost.terms,
    in_reference_words=features.in_reference_words,
    examples={"codegen": "--arch sm_90 --rule-set config/rule_sets/cutlass.yaml --dtype bf16 --output out"},
    measured_with=("cuda", "config/cuda.yaml"),
)
