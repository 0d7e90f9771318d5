"""The kernels of any rule set: one of the reference's by its name, or a file of a kernel family.

The workflow and ``tileseer codegen`` have their kernels from here. The imports are late: Snakemake asks for the files
of a rule set each time that it reads the workflow.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileseer.core.errors import UserError
from tileseer.families.registry import of_arch, of_toolchain
from tileseer.settings.rule_set_names import BUILDER_SETS, RULE_SETS

if TYPE_CHECKING:
    from tileseer.conv.operation import Operation
    from tileseer.families.enumeration import Enumeration
    from tileseer.gpu.arch import ArchSpecs
    from tileseer.reference.named import Enumerated

NAMED_OF = of_toolchain("hipcc")
"""The family whose kernels the named sets are of."""
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
    from tileseer.core.stage_store import digest
    from tileseer.reference.named import RuleTables, checkout

    top = checkout(rule_set, ck_root) / RuleTables.load(folder).builder.files.folder
    if not top.is_dir():
        raise UserError(f"ck.root: there is no folder {top}, which the rule set {rule_set} is read from")
    return {"instances": digest(top)}


def listed(
    rule_set: str, folder: Path, ck_root: str | None, specs: ArchSpecs, arch: str,
    variants: Sequence[str], ndims: Sequence[int], dtypes: Sequence[str],
) -> list[Enumerated]:  # fmt: skip
    """Every kernel of a set for one request, flagged ones too: of a named set in the reference's order."""
    if rule_set in RULE_SETS:
        if of_arch(arch) is not NAMED_OF:
            raise UserError(
                f"{rule_set} is a set of {NAMED_OF.name} kernels, which {arch} does not run; name a file, such as "
                f"config/rule_sets/{of_arch(arch).rule_set or NAMED_OF.rule_set}"
            )
        from tileseer.reference.named import Enumerator, RuleTables

        return Enumerator(specs, RuleTables.load(folder), ck_root).enumerate(rule_set, arch, variants, ndims, dtypes)
    return _of_file(Path(rule_set), specs, arch, variants, ndims, dtypes)


def _of_file(
    path: Path, specs: ArchSpecs, arch: str, variants: Sequence[str], ndims: Sequence[int], dtypes: Sequence[str]
) -> list[Enumerated]:
    from tileseer.conv.operation import Operation
    from tileseer.families.ck_tile import flags
    from tileseer.families.ck_tile.kernel import KernelConfig
    from tileseer.families.enumeration import NoKernel
    from tileseer.reference.named import Enumerated, judged

    if not path.is_file():
        raise UserError(f"unknown rule set {str(path)!r}; use one of {', '.join(RULE_SETS)}, or the path of a file")
    rules, kernel = of_arch(arch).part("rules"), of_arch(arch).part("kernel").KERNEL
    specs.arch(arch)
    rows = rules.load(path)
    found: list[Any] = []
    for variant, dtype in product(variants, (name for name in dtypes if name in kernel.choices["dtype"])):
        # A file need not have every direction and data type.
        with suppress(NoKernel):
            found += rules.swept(rows, specs, arch, Operation(variant, dtype), ndims, [flags.ALL]).kernels
    return [judged(one, arch, specs) if isinstance(one, KernelConfig) else Enumerated(one) for one in found]


def enumeration(
    rule_set: str, folder: Path, ck_root: str | None, specs: ArchSpecs, arch: str,
    operation: Operation, ndims: Sequence[int], included: Collection[str],
) -> Enumeration[Any]:  # fmt: skip
    """The legal kernels of a set for one operation, and the refused ones with the reason."""
    from tileseer.families.ck_tile import flags
    from tileseer.families.enumeration import sifted

    if rule_set not in RULE_SETS:
        rules = of_arch(arch).part("rules")
        return rules.swept(rules.load(Path(rule_set)), specs, arch, operation, ndims, included)
    flags.check_names(included)
    items = listed(rule_set, folder, ck_root, specs, arch, [operation.variant], ndims, [operation.dtype])
    by_kernel: dict[Any, Enumerated] = {item.kernel.built_as: item for item in items}
    known = NAMED_OF.part("kernel").KERNEL

    def fault(kernel: Any) -> tuple[str, str]:
        if not isinstance(kernel, known):
            return NOT_LEARNT, f"no model knows {kernel.kind} kernels; `tileseer codegen` emits them"
        refused = (flag for flag in by_kernel[kernel].flags if not flags.is_asked(flag.name, included))
        return next(((flag.name, flag.reason) for flag in refused), ("", ""))

    return sifted(by_kernel, fault, [1], f"on {arch} for {operation}")
