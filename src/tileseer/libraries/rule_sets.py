"""The kernels of any rule set: one of the reference's by its name, or a file of a library.

The workflow and ``tileseer codegen`` have their kernels from here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from tileseer.core.errors import UserError, nearest
from tileseer.facts.arch import ArchSpecs
from tileseer.facts.inputs import ConfigsSettings
from tileseer.facts.operations import BUILDER_SETS, RULE_SETS
from tileseer.libraries import registry
from tileseer.libraries.ck_tile.flags import ILLEGAL
from tileseer.libraries.ck_tile.flags import check_flags as check_flags
from tileseer.libraries.ck_tile.library import CK_TILE
from tileseer.libraries.ck_tile.upstream.named import Enumerator, RuleTables, checkout, list_kernels
from tileseer.libraries.enumeration import ALL, Enumeration, ListedKernel, NoKernel, Sweep, sift
from tileseer.libraries.registry import library_of_arch
from tileseer.libraries.rules import BrokenRule
from tileseer.problems.operation import Operation

NAMED_SET_FILES = ("builder.yaml", "default.yaml", "full.yaml")
NOT_LEARNT = "kind"
"""What kernels that no model supports are refused under."""


def read_sweep(path: Path, arch: str) -> Sweep:
    """Read a rule-set file for the kernels of an arch; ``UserError`` for one with faults, or of other kernels."""
    library = library_of_arch(arch)
    try:
        return library.made_here(library.sweep).read_file(path)
    except UserError:
        read_by = ""
        for other in registry.installed():
            with suppress(UserError):
                if other.sweep and other.sweep.read_file(path):
                    read_by = other.name
        if read_by:
            _refuse_other_library(str(path), read_by, arch)
        raise


def rule_set_files(name: str, folder: Path) -> list[str]:
    """Return the tables that a rule set is read from; ``folder``: config/rule_sets."""
    return [(folder / table).as_posix() for table in NAMED_SET_FILES] if name in RULE_SETS else [name]


def check_rule_set(name: str, folder: Path, arch: str, operations: Sequence[str], specs: ArchSpecs | None) -> None:
    """Raise ``UserError`` where a rule set cannot be read, or is none for an arch or for one of the operations.

    ``specs`` has the archs that it may name; None: any.
    """
    if name in RULE_SETS:
        _refuse_other_library(name, CK_TILE.name, arch)
        RuleTables.read_folder(folder)
        return
    sweep = read_sweep(Path(name), arch)
    try:
        for operation in map(Operation.parse, operations):
            sweep.rows(operation)
        if specs is not None:
            for named in sweep.named_archs:
                specs.arch(named)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None


def _refuse_other_library(name: str, of: str, arch: str) -> None:
    """Raise ``UserError`` where a rule set, ``of`` one library, has no kernels for an arch."""
    library = library_of_arch(arch)
    if library.offered:
        raise UserError(f"{arch}: {library.title} offers its kernels itself; no rule set makes any, and no sources")
    if of != library.name:
        alike = Path(name).with_name(f"{Path(name).stem}_{library.name}.yaml")
        other = alike if alike.exists() else f"config/rule_sets/{library.rule_set or CK_TILE.rule_set}"
        raise UserError(f"{name} is a set of {of} kernels, which {arch} does not run; name a file, such as {other}")


def instance_files(name: str, folder: Path, ck_root: str | None) -> list[Path]:
    """Return the files of a checkout that ``profiler`` and ``tests`` are read from; none for other sets."""
    if name not in BUILDER_SETS:
        return []
    top = checkout(name, ck_root) / RuleTables.read_folder(folder).builder.files.folder
    if not top.is_dir():
        raise UserError(f"ck.root: there is no folder {top}, which the rule set {name} is read from")
    return sorted(path for path in top.rglob("*") if path.is_file())


@dataclass(frozen=True)
class RuleSet:
    """A rule set by its name or path, and what it is read with."""

    name: str
    tables: Path
    """config/rule_sets."""
    ck_root: str | None
    specs: ArchSpecs

    @cached_property
    def _enumerator(self) -> Enumerator:
        return Enumerator(self.specs, RuleTables.read_folder(self.tables), self.ck_root)

    def list_kernels(
        self, arch: str, variants: Sequence[str], ndims: Sequence[int], dtypes: Sequence[str]
    ) -> list[ListedKernel]:
        """Return every kernel for one request, flagged ones too: of a named set in the reference's order."""
        library = library_of_arch(arch)
        if self.name in RULE_SETS:
            _refuse_other_library(self.name, CK_TILE.name, arch)
            return self._enumerator.enumerate(self.name, arch, variants, ndims, dtypes)
        if not Path(self.name).is_file():
            sets = {path.stem: str(path) for path in self.tables.glob("*.yaml")} | {name: name for name in RULE_SETS}
            near = nearest(Path(self.name).stem, sets, 0.75)
            advice = f"is it {sets[near]}?" if near else f"use one of {', '.join(RULE_SETS)}, or the path of a file"
            raise UserError(f"unknown rule set {self.name!r}; {advice}")
        self.specs.arch(arch)
        sweep = read_sweep(Path(self.name), arch)
        kernels, without = list[Any](), list[NoKernel]()
        for variant, dtype in product(variants, (name for name in dtypes if name in library.kernel.choices["dtype"])):
            # A file need not have every direction and data type.
            try:
                kernels += sweep.enumerate(self.specs, arch, Operation(variant, dtype), ndims, [ALL]).kernels
            except NoKernel as error:
                without.append(error)
        if without and not kernels:
            raise UserError(f"{self.name}: {without[0]}")
        return list_kernels(kernels, arch, self.specs) if library is CK_TILE else [ListedKernel(one) for one in kernels]

    def enumerate_kernels(self, arch: str, operation: Operation, settings: ConfigsSettings) -> Enumeration:
        """Return the legal kernels for one operation, and the refused ones with the reason."""
        try:
            return self._enumerate(arch, operation, settings.ndims, settings.include_flagged)
        except UserError as error:
            # A fault of the table names its file already.
            raise UserError(str(error) if self.name in str(error) else f"{self.name}: {error}") from None

    def _enumerate(
        self, arch: str, operation: Operation, ndims: Sequence[int], included: Collection[str]
    ) -> Enumeration:
        check_flags(included)
        if self.name not in RULE_SETS:
            return read_sweep(Path(self.name), arch).enumerate(self.specs, arch, operation, ndims, included)
        items = self.list_kernels(arch, [operation.variant], ndims, [operation.dtype])
        by_kernel: dict[Any, ListedKernel] = {item.kernel.built_as: item for item in items}

        def refusals(item: ListedKernel) -> list[BrokenRule]:
            if not isinstance(item.kernel, CK_TILE.kernel):
                reason = f"no model supports {item.kernel.kind} kernels; `tileseer codegen` emits them"
                return [BrokenRule(NOT_LEARNT, reason)]
            # No kernel that breaks a rule is built, whatever is asked for.
            return [flag for flag in item.flags if flag.name in ILLEGAL or not {flag.name, ALL} & set(included)]

        broken = map(refusals, by_kernel.values())
        return sift(list(by_kernel), broken, [1], f"on {arch} for {operation}")
