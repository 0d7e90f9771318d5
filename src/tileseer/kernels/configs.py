"""The configs stage: the kernels of one arch and operation, and the chunks that they are dealt to."""

from pathlib import Path
from typing import Any

from tileseer.config.compile import CkSettings
from tileseer.config.inputs import ConfigsSettings
from tileseer.core import parquet
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.core.script import Settings
from tileseer.gpus.arch import ArchSpecs
from tileseer.kernels import kernel_filter, kernel_table, rule_sets
from tileseer.kernels import plan as chunks
from tileseer.kernels.enumeration import Enumeration, rejected_text
from tileseer.problems.operation import Operation


def enumerate_kernels(
    arch: str, operation: Operation, arch_specs: Path, tables: Path, kernels: Path, rejected: Path, plan: Path,
    settings: Settings,
) -> str:  # fmt: skip
    """Write the kernel table, the refused combinations and the plan; summary of them."""
    asked = ConfigsSettings.of(settings, "configs")
    ck_root = CkSettings.of(settings, "ck").root
    found = enumerated(arch, operation, ArchSpecs.load(arch_specs), tables, asked, ck_root)
    rows = kernel_table.table(found.kernels, found.split_k, asked.chunks)
    parquet.write_table(rows, kernels)
    write_text(rejected, rejected_text(found.rejected))
    write_text(plan, chunks.text(kernel_table.planned(rows)), sealed=True)
    return f"{len(found.kernels)} kernels, {len(found.rejected)} combinations refused"


def enumerated(
    arch: str, operation: Operation, specs: ArchSpecs, tables: Path, asked: ConfigsSettings, ck_root: str | None
) -> Enumeration[Any]:
    """Kernels of the rule set that is asked for, after the filter, and the refused combinations."""
    try:
        found = rule_sets.enumeration(
            asked.rule_set, tables, ck_root, specs, arch, operation, asked.ndims, asked.include_flagged
        )
    except UserError as error:
        # A fault of the table names its file already.
        raise UserError(str(error) if asked.rule_set in str(error) else f"{asked.rule_set}: {error}") from None
    return kernel_filter.filter_kernels(found, asked.filter, "configs.filter") if asked.filter else found
