"""What a stage may ask of a kernel family: a module of its folder for each subject, so that it depends on no other."""

# The docstring of each part says what its functions give.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from tileseer.core.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from tileseer.conv.operation import Operation
    from tileseer.families.coefficients import Coefficients
    from tileseer.families.enumeration import Enumeration
    from tileseer.families.feature_table import FeatureSet
    from tileseer.families.gemm_kernel import Kernel
    from tileseer.families.library import Library
    from tileseer.families.simulation import KernelTerms
    from tileseer.families.support_rules import Columns, Rule
    from tileseer.gpu.arch import ArchSpecs
    from tileseer.gpu.hardware import Hardware


class KernelPart(Protocol):
    """``kernel.py``: the frozen dataclass of the kernels that models know, its fields, and their names.

    ``parse`` refuses any text that is not exactly a name. ``frame`` has one row a kernel: ``kernel`` (its name), every
    field, and ``pipeline``, the main loop in a word.
    """

    KERNEL: type[Kernel]
    FIELDS: tuple[str, ...]

    def parse(self, text: str) -> Kernel: ...
    def frame(self, kernels: Sequence[Any]) -> pd.DataFrame: ...


class NamesPart(Protocol):
    """``names.py``: the kernel that a name of any scheme stands for, and what it leaves open, as words.

    A family without it has one scheme, that of ``kernel.py``.
    """

    def completed(self, name: str, arch: str) -> tuple[Kernel, str]: ...


class RulesPart(Protocol):
    """``rules.py``: legal and refused kernels of a rule set; those with a known defect only if ``included`` has it."""

    def load(self, path: Path) -> Any: ...
    def swept(
        self, rules: Any, specs: ArchSpecs, arch: str, operation: Operation, ndims: Sequence[int],
        included: Collection[str],
    ) -> Enumeration[Any]: ...  # fmt: skip


class ApiPart(Protocol):
    """``api.py``: the library, the levels of its API that the templates write, and the one of a header tree."""

    LIBRARY: Library
    NEWEST: str

    def detect(self, table: str | Path, root: Path) -> str: ...


class Emitter(Protocol):
    """Fills a family's templates in: ``paths`` and ``kernel_files`` are the files of one kernel, ``collection_files``
    those that name many; ``lack``: why the API level has no form for a kernel, or an empty string.
    """

    def paths(self, kernel: Any) -> list[str]: ...
    def kernel_files(self, kernel: Any, arch: str) -> dict[str, str]: ...
    def collection_files(self, kernels: Sequence[Any], arch: str, chunk_size: int) -> dict[str, str]: ...
    def lack(self, kernel: Any, arch: str) -> str: ...


class EmitPart(Protocol):
    """``emit.py``: the C++ of kernels, by a table of C++ names (``api``) for an API ``level``, empty for the newest.

    ``files``: path to text of each kernel's files, or ``KERNEL.lack`` with the reason where there is no form for it.
    ``collection_files``: those that name many kernels, for users' own builds. ``entries``: how a dispatcher finds each
    kernel: name, files and registry key.
    """

    def template_files(self, templates: Path) -> list[Path]: ...
    def emitter(self, templates: Path, api: Path, level: str) -> Emitter: ...
    def files(self, kernels: Sequence[Any], arch: str, templates: Path, api: Path, level: str) -> dict[str, str]: ...
    def collection_files(
        self, kernels: Sequence[Any], arch: str, templates: Path, api: Path, level: str
    ) -> dict[str, str]: ...
    def entries(self, names: Sequence[str], api: Path, arch: str) -> list[dict[str, Any]]: ...


class BuildPart(Protocol):
    """``build.py``: the header of workflow/native that launches a kernel, and the line that registers a kernel.

    ``device_source``: C++ that instantiates kernel I with a type ``probe_I::Probe``, for the device pass of hipcc.
    ``instance``: which of a kernel's instances that is, by the kernel's header; empty if there is one alone.
    ``host_source``: C++ that asks the library's own argument checks on the CPU; ``UserError`` if it has none.
    """

    LAUNCHER: str

    def registration(self, kernel: Kernel) -> str: ...
    def device_source(self, kernels: Sequence[Kernel], headers: Sequence[str]) -> str: ...
    def instance(self, header: str) -> str: ...
    def host_source(self, kernels: Sequence[Kernel]) -> str: ...


class SupportPart(Protocol):
    """``support.py``: which kernels can run which problems; verdict i + 1 stands for ``RULES[i]``, 0 is supported.

    ``kernel_classes``: what the rules read of kernels, [1, classes] by column, and each candidate's class [Q].
    ``problem_columns``: what they read of P problems (19 dimensions, int64 [P]), in arithmetic that C++ has too.
    """

    RULES: tuple[Rule, ...]

    def kernel_classes(self, candidates: pd.DataFrame, wave_size: int) -> tuple[dict[str, np.ndarray], np.ndarray]: ...
    def problem_columns(
        self, dims: Columns, variant: str, element_size: np.ndarray | float
    ) -> dict[str, np.ndarray]: ...


class ResourcesPart(Protocol):
    """``resources.py``: what kernels take of a compute unit without a compiler.

    Columns ``vgprs``, ``lds_bytes``, ``occupancy``, and ``fault``: why no launch fits on the GPU, or empty. Without
    ``FORMULAS`` for registers and occupancy, those are NaN.
    """

    FORMULAS: bool

    def estimate(self, candidates: pd.DataFrame, hardware: Hardware, coefficients: Coefficients) -> pd.DataFrame: ...


class FeaturesPart(Protocol):
    """``features.py``: the learning features, and candidates in the words of the reference's features.

    ``REFERENCE_CODES``: codes of main loops in the reference's one categorical feature; 0 for any other.
    """

    FEATURE_SETS: Mapping[str, FeatureSet]
    REFERENCE_CODES: Mapping[str, int]

    def in_reference_words(self, candidates: pd.DataFrame) -> pd.DataFrame: ...


class SimulatedPart(Protocol):
    """``simulated.py``: kernels in the terms of the simulated device, and the files that its times depend on."""

    SOURCES: tuple[str, ...]

    def terms(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, hardware: Hardware,
        coefficients: Coefficients,
    ) -> KernelTerms: ...  # fmt: skip


@dataclass(frozen=True)
class Family:
    """One line of the registry: what tells a family from the others."""

    name: str
    """Also of its folder."""
    prefix: str
    """How its kernels' names begin."""
    archs: str
    """Pattern of the names of its archs."""
    features: str
    """Its own feature set."""
    toolchain: str = ""
    """What compiles its kernels, a word of compile.toolchain; empty for recorded kernels that nobody makes here."""
    header_suffix: str = ""
    """Of the file of an emitted kernel."""
    offered: bool = False
    """Whether the library says for each problem which candidates there are, and which of them it would run itself."""
    rule_set: str = ""
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
        if not self.has(subject):
            raise UserError(
                f"the kernels of {self.name} are not made or timed here (the family has no part {subject!r}); replay a "
                "recording: give its arch and folder under replays"
            )
        return import_module(self._module(subject))

    def has(self, subject: str) -> bool:
        """Whether the family has that part; one whose kernels are only recorded lacks some."""
        return find_spec(self._module(subject)) is not None

    def _module(self, subject: str) -> str:
        return f"{self.package}.{self.name}.{subject}"
