"""The one door to a library of convolution kernels: everything that only this library has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pandas as pd

from tileseer.core.errors import UserError
from tileseer.facts.hardware import Hardware
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.libraries.costs.timing import KernelTerms
from tileseer.libraries.emitter import Emitter
from tileseer.libraries.enumeration import Sweep
from tileseer.libraries.features.table import FeatureSet
from tileseer.libraries.gemm_kernel import Kernel
from tileseer.libraries.program import Form
from tileseer.libraries.rules import Rules
from tileseer.libraries.source_tree import SourceTree

Part = TypeVar("Part")


INSTALLED = Path("results/installed")
"""Below it are a folder for each library that has times where it is installed, and in that one for each arch."""
WAYS = "next.txt"
"""Commands that bring such models into programs on this machine, a line each, in the folder of an arch."""


class Installed(NamedTuple):
    """What an installation of a library brings."""

    archs: tuple[str, ...]
    """Names of the models that its times make, one for each GPU."""
    config: Path
    """The configuration that replays the times."""
    said: tuple[str, ...]
    """What was read and left out, in lines."""


@dataclass(frozen=True, eq=False)
class Library:
    """A library of kernels. What one of them lacks, such as C++ text of kernels that nobody makes here, is None."""

    name: str
    title: str
    """Its name in a sentence."""
    archs: str
    """Pattern of the names of its archs."""
    kernel: type[Any]
    """The subclass of ``Kernel`` that its models know."""
    rules: Rules
    features: dict[str, FeatureSet]
    """By the name that ``model.features`` gives; the first is its own."""

    # What it says itself.
    layout: str = "NHWC"
    """That its kernels are for (``problem.LAYOUTS``), or the first of several."""
    has_networks: bool = True
    """Whether its times are of problems of which we know the networks."""
    vendor: str = ""
    """Last word of the arch whose models have a candidate for every problem: those of the vendor's library."""
    forms: tuple[Form, ...] = ()
    """Texts that are problems (``program_lines``)."""
    complete_name: Callable[[str, str], tuple[Kernel, str]] | None = None
    """(name that others gave, arch) to the kernel, and what the name leaves open, if there are such names."""

    # Rooms above this one, as ``module:object``, or the name of a module.
    plans: str = ""
    """Where it offers candidates: a class like ``libraries.cudnn.device_plans.CudnnPlans``, which lists them for a
    problem and runs them in the worker on the GPU."""
    modules: Mapping[str, str] = field(default_factory=dict)
    """Python modules without which ``plans`` cannot measure, and how to get each."""
    program: str = ""
    """Its own program that times its kernels (``tune --driver``), instead of our measuring driver."""
    device: str = ""
    """(product, program, environment, open lock of the GPU, folder of the journal) to the ``Device`` that times by that
    program; it may put into the folder what the program says of its runs."""
    read_times: Callable[[Sequence[Path]], pd.DataFrame] | None = None
    """(``times_files`` and ``problems.parquet``) to the microseconds of what this library chooses, by problem key."""
    times_files: tuple[str, ...] = ()
    """Files of these beside the pairs of a recording of other kernels."""
    measuring: tuple[str, ...] = ()
    """Its modules that measure, as patterns of ``digest_of_code``: times of other code are those of another device."""
    importers: Mapping[str, str] = field(default_factory=dict)
    """Formats of times that others measured: ``tileseer import WORD`` is a module with ``SUMMARY``, ``EXAMPLES``,
    ``configure`` and ``run``, as those of ``cli``."""
    exporters: Mapping[str, str] = field(default_factory=dict)
    """Formats of choices for other programs: ``tileseer export WORD`` is such a module."""

    installed: str = ""
    """(folder, GPU or empty, table of products) to ``Installed``: recordings of the times that its installation on this
    machine has, for ``tileseer run --arch installed_NAME``."""
    installed_gpus: str = ""
    """Pattern of the targets of which an installation may have times."""

    # Kernels that are made here.
    sweep: type[Sweep] | None = None
    """The form of its files of rule sets."""
    rule_set: str = ""
    """File of config/rule_sets that the kernels of a quick measurement are drawn from."""
    emitter: type[Emitter] | None = None
    toolchain: str = ""
    """What compiles its kernels, a word of compile.toolchain; empty for kernels that nobody makes here."""
    tree: SourceTree | None = None
    """The headers that its kernels are compiled against."""

    # Formulas.
    estimate: Callable[[pd.DataFrame, Hardware, Coefficients], pd.DataFrame] | None = None
    """(Q candidates, GPU, coefficients) to a row each: ``vgprs``, ``lds_bytes``, ``occupancy``, ``fault``.

    What the formula does not know is NaN.
    """
    estimates_registers: bool = False
    """Whether ``estimate`` knows registers and occupancy."""
    cost: Callable[[pd.DataFrame, pd.DataFrame, str, Hardware, Coefficients], KernelTerms] | None = None
    """(P problems of one direction, Q candidates, direction, GPU, coefficients) to the terms of the formula."""
    in_reference_words: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    """Candidates with the fields that Composable Kernel's predictor reads of its own (``reference_features``)."""

    # Words for users.
    measured_with: tuple[str, str] | None = None
    """Kind of GPU and configuration that measure its kernels."""
    use: str = ""
    """The way of its kernels from ``{folder}``, which ``tileseer ship`` wrote, into a program."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Words of one more example in the help text of a command of ``cli``."""
    naming: str = ""
    """How another program finds the candidate of a name, a sentence of the page of models."""

    @property
    def offered(self) -> bool:
        """Whether it says for each problem which candidates there are, and which of them it would run itself."""
        return bool(self.plans)

    @property
    def prefix(self) -> str:
        """How its kernels' names begin."""
        return str(self.kernel.parts[0].form)

    @property
    def feature_set(self) -> str:
        """Name of its own feature set."""
        return next(iter(self.features))

    def made_here(self, part: Part | None) -> Part:
        """Return a part that kernels made here have; ``UserError`` if those of this library are only recorded."""
        if part is None:
            raise UserError(
                f"the kernels of {self.name} are not made or timed here; replay a recording: give its arch and folder "
                "under replays"
            )
        return part
