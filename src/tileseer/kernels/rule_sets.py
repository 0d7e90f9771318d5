"""The kernels of any rule set: one of the reference's by its name, or a file of a kernel family.

The workflow and ``tileseer codegen`` have their kernels from here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from tileseer.config.rule_set_names import BUILDER_SETS, RULE_SETS
from tileseer.core.errors import UserError
from tileseer.core.stage_store import digest
from tileseer.gpus.arch import ArchSpecs
from tileseer.kernels.ck_tile import flags
from tileseer.kernels.ck_tile.upstream.named import Enumerator, ListedKernel, RuleTables, checkout, list_kernels
from tileseer.kernels.enumeration import Enumeration, NoKernel, sift
from tileseer.kernels.registry import CK_TILE, of_arch
from tileseer.kernels.rules import BrokenRule
from tileseer.kernels.sweeps import read_sweep
from tileseer.problems.operation import Operation

TABLES = ("builder.yaml", "default.yaml", "full.yaml")
NOT_LEARNT = "kind"
"""What kernels that no model knows are refused under."""


def files(rule_set: str, folder: Path) -> list[str]:
    """The tables that a rule set is read from; ``folder``: config/rule_sets."""
    return [(folder / name).as_posix() for name in TABLES] if rule_set in RULE_SETS else [rule_set]


def instances(rule_set: str, folder: Path, ck_root: str | None) -> dict[str, str]:
    """Digest of the files of a checkout that ``profiler`` and ``tests`` are read from; nothing for other sets."""
    if rule_set not in BUILDER_SETS:
        return {}

    top = checkout(rule_set, ck_root) / RuleTables.load(folder).builder.files.folder
    if not top.is_dir():
        raise UserError(f"ck.root: there is no folder {top}, which the rule set {rule_set} is read from")
    return {"instances": digest(top)}


def listed(
    rule_set: str, folder: Path, ck_root: str | None, specs: ArchSpecs, arch: str,
    variants: Sequence[str], ndims: Sequence[int], dtypes: Sequence[str],
) -> list[ListedKernel]:  # fmt: skip
    """Every kernel of a set for one request, flagged ones too: of a named set in the reference's order."""
    if rule_set in RULE_SETS:
        if of_arch(arch) is not CK_TILE:
            raise UserError(
                f"{rule_set} is a set of {CK_TILE.name} kernels, which {arch} does not run; name a file, such as "
                f"config/rule_sets/{of_arch(arch).rule_set or CK_TILE.rule_set}"
            )

        return Enumerator(specs, RuleTables.load(folder), ck_root).enumerate(rule_set, arch, variants, ndims, dtypes)
    return _of_file(Path(rule_set), specs, arch, variants, ndims, dtypes)


def _of_file(
    path: Path, specs: ArchSpecs, arch: str, variants: Sequence[str], ndims: Sequence[int], dtypes: Sequence[str]
) -> list[ListedKernel]:

    if not path.is_file():
        raise UserError(f"unknown rule set {str(path)!r}; use one of {', '.join(RULE_SETS)}, or the path of a file")
    kernel = of_arch(arch).kernel
    specs.arch(arch)
    sweep = read_sweep(path, arch)
    found: list[Any] = []
    for variant, dtype in product(variants, (name for name in dtypes if name in kernel.choices["dtype"])):
        # A file need not have every direction and data type.
        with suppress(NoKernel):
            found += sweep.enumerate(specs, arch, Operation(variant, dtype), ndims, [flags.ALL]).kernels
    return list_kernels(found, arch, specs) if of_arch(arch) is CK_TILE else [ListedKernel(one) for one in found]


def enumeration(
    rule_set: str, folder: Path, ck_root: str | None, specs: ArchSpecs, arch: str,
    operation: Operation, ndims: Sequence[int], included: Collection[str],
) -> Enumeration[Any]:  # fmt: skip
    """The legal kernels of a set for one operation, and the refused ones with the reason."""
    if rule_set not in RULE_SETS:
        return read_sweep(Path(rule_set), arch).enumerate(specs, arch, operation, ndims, included)
    flags.check_flags(included)
    items = listed(rule_set, folder, ck_root, specs, arch, [operation.variant], ndims, [operation.dtype])
    by_kernel: dict[Any, ListedKernel] = {item.kernel.built_as: item for item in items}

    def refusals(item: ListedKernel) -> list[BrokenRule]:
        if not isinstance(item.kernel, CK_TILE.kernel):
            reason = f"no model knows {item.kernel.kind} kernels; `tileseer codegen` emits them"
            return [BrokenRule(NOT_LEARNT, reason)]
        return [flag for flag in item.flags if not flags.is_included(flag.name, included)]

    broken = map(refusals, by_kernel.values())
    return sift(list(by_kernel), broken, [1], f"on {arch} for {operation}")
