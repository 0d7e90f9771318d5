"""What a stage may ask of a kernel family: a module of its folder for each subject, so that it depends on no other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from tileseer.conv.operation import Operation
    from tileseer.families.coefficients import Coefficients
    from tileseer.families.enumeration import Enumeration
    from tileseer.families.feature_table import FeatureSet
    from tileseer.families.gemm_kernel import GemmKernel, Kernel
    from tileseer.families.simulation import KernelTerms
    from tileseer.families.support_rules import Columns, Rule
    from tileseer.gpu.arch import ArchSpecs
    from tileseer.gpu.hardware import Hardware


class KernelPart(Protocol):
    """``kernel.py``: the kernels and their names."""

    KERNEL: type[GemmKernel]
    """The frozen dataclass of the kernels that models know."""
    FIELDS: tuple[str, ...]

    def parse(self, text: str) -> GemmKernel:
        """Kernel of a name; ``UserError`` for any text that is not exactly its name."""

    def frame(self, kernels: Sequence[Any]) -> pd.DataFrame:
        """One row a kernel: ``kernel`` (its name), every field, and ``pipeline``, the main loop in a word."""


class NamesPart(Protocol):
    """``names.py``: kernel names as others write them."""

    def completed(self, name: str, arch: str) -> tuple[Kernel, str]:
        """Kernel that a name stands for, and what the name leaves open, as ``field=value`` words."""


class RulesPart(Protocol):
    """``rules.py``: the family's rule sets, and which kernels are legal."""

    def enumerate_kernels(
        self,
        rule_set: Path,
        specs: ArchSpecs,
        arch: str,
        operation: Operation,
        ndims: Sequence[int],
        included: Collection[str],
    ) -> Enumeration[Any]:
        """Legal and refused kernels of a rule set; those with a known defect only if its flag is ``included``."""


class EmitPart(Protocol):
    """``emit.py``: the C++ of kernels, by a table of C++ names (``api``) for an API ``level``, empty for the newest."""

    def template_files(self, templates: Path) -> list[Path]:
        """The family's templates below workflow/templates, sorted."""

    def files(self, kernels: Sequence[Any], arch: str, templates: Path, api: Path, level: str) -> dict[str, str]:
        """Path to text of each kernel's files; ``KERNEL.lack`` with the reason where there is no form for it."""

    def collection_files(
        self, kernels: Sequence[Any], arch: str, templates: Path, api: Path, level: str
    ) -> dict[str, str]:
        """Path to text of the files that name many kernels, for users' own builds."""

    def entries(self, names: Sequence[str], api: Path, arch: str) -> list[dict[str, Any]]:
        """How a dispatcher finds each kernel: name, files and registry key."""


class ApiPart(Protocol):
    """``api.py``: the levels of the library's API that the templates write."""

    NEWEST: str

    def detect(self, table: str | Path, root: Path) -> str:
        """The level of a header tree; ``UserError`` where none fits."""


class SupportPart(Protocol):
    """``support.py``: which kernels can run which problems, in columns."""

    RULES: tuple[Rule, ...]
    """In the order of asking; verdict i + 1 stands for ``RULES[i]``, 0 is supported."""

    def kernel_classes(self, candidates: pd.DataFrame, wave_size: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """What the rules read of kernels, [1, classes] by column, and each candidate's class [Q]."""

    def problem_columns(self, dims: Columns, variant: str, element_size: np.ndarray | float) -> dict[str, np.ndarray]:
        """What the rules read of P problems (19 dimensions, int64 [P]), in arithmetic that C++ has too."""


class ResourcesPart(Protocol):
    """``resources.py``: what kernels take of a compute unit, estimated without a compiler."""

    FORMULAS: bool
    """Whether there are formulas for registers and occupancy; without them, ``estimate`` has NaN there."""

    def estimate(self, candidates: pd.DataFrame, hardware: Hardware, coefficients: Coefficients) -> pd.DataFrame:
        """Columns ``vgprs``, ``lds_bytes``, ``occupancy``, and ``fault``: why no launch fits on the GPU, or empty."""


class FeaturesPart(Protocol):
    """``features.py``: the learning features of the family's candidates."""

    FEATURE_SETS: Mapping[str, FeatureSet]
    REFERENCE_CODES: Mapping[str, int]
    """Codes of main loops in the reference's one categorical feature."""

    def in_reference_words(self, candidates: pd.DataFrame) -> pd.DataFrame:
        """Candidates with the fields that the reference's features are made of."""


class SimulatedPart(Protocol):
    """``simulated.py``: the kernels in the terms of the simulated device."""

    SOURCES: tuple[str, ...]
    """Files of the package, below ``tileseer``, that a simulated time of this family depends on."""

    def terms(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, hardware: Hardware,
        coefficients: Coefficients,
    ) -> KernelTerms:  # fmt: skip
        """Costs, identities and verdicts of Q candidates."""


class BuildPart(Protocol):
    """``build.py``: what a library's source says of a kernel."""

    LAUNCHER: str
    """The header of workflow/native that makes a launcher of a kernel."""

    def registration(self, kernel: GemmKernel) -> str:
        """The line that registers a kernel."""

    def device_source(self, kernels: Sequence[GemmKernel]) -> str:
        """C++ that instantiates kernel I with a type ``probe_I::Probe``, for the device pass; hipcc's families only."""

    def host_source(self, kernels: Sequence[GemmKernel]) -> str:
        """C++ that asks the library's own argument checks on the CPU; ``UserError`` if it has none."""


@dataclass(frozen=True)
class Family:
    """One line of the registry: what tells a family from the others."""

    name: str
    """Also of its folder."""
    prefix: str
    """How its kernels' names begin."""
    archs: str
    """How the names of its archs begin."""
    features: str
    """Its own feature set."""
    toolchain: str
    """What compiles its kernels, a word of compile.toolchain."""
    header_suffix: str
    """Of the file of an emitted kernel."""
    rule_set: str
    """File of config/rule_sets that the kernels of a quick measurement are drawn from."""
    package: str = "tileseer.families"
    """Where its folder lies."""

    @overload
    def part(self, subject: Literal["kernel"]) -> KernelPart: ...
    @overload
    def part(self, subject: Literal["names"]) -> NamesPart: ...
    @overload
    def part(self, subject: Literal["rules"]) -> RulesPart: ...
    @overload
    def part(self, subject: Literal["emit"]) -> EmitPart: ...
    @overload
    def part(self, subject: Literal["api"]) -> ApiPart: ...
    @overload
    def part(self, subject: Literal["support"]) -> SupportPart: ...
    @overload
    def part(self, subject: Literal["resources"]) -> ResourcesPart: ...
    @overload
    def part(self, subject: Literal["features"]) -> FeaturesPart: ...
    @overload
    def part(self, subject: Literal["simulated"]) -> SimulatedPart: ...
    @overload
    def part(self, subject: Literal["build"]) -> BuildPart: ...
    def part(self, subject: str) -> Any:
        """Module of the family on a subject. Who asks for one depends on it: see ``core.modules``."""
        return import_module(f"{self.package}.{self.name}.{subject}")
