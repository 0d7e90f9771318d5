"""What the entry point of the package names."""

from tileseer.libraries.library import Library
from toy_library import cost, features
from toy_library.emit import ToyEmitter
from toy_library.kernel import ToyKernel
from toy_library.rules import RULES
from toy_library.sweep import ToySweep

TOY = Library(
    "toy",
    "Toy",
    "toy_*",
    ToyKernel,
    RULES,
    {"toy": features.TOY},
    sweep=ToySweep,
    rule_set="toy.yaml",
    emitter=ToyEmitter,
    toolchain="none",
    estimate=cost.estimate,
    cost=cost.terms,
    in_reference_words=features.in_reference_words,
)
