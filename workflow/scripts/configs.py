#!/usr/bin/env python3
from __future__ import annotations

from tileseer.core.stage import Input, Output, Settings, facts_of_arch, stage


@stage(arch_specs=facts_of_arch)
def main(
    arch: str, operation: str, arch_specs: Input,
    kernels: Output, rejected: Output, plan: Output, settings: Settings = "{}",
) -> str:  # fmt: skip
    """Enumerate the kernels of one arch and operation: one Parquet row a kernel, and the plan of chunks.

    rejected: refused combinations (TSV)
    plan: what each chunk holds (TSV)
    """
    from pathlib import Path

    from tileseer.configs import kernel_filter, kernel_table
    from tileseer.configs import plan as chunks
    from tileseer.conv.operation import Operation
    from tileseer.core import parquet
    from tileseer.core.atomic import write_text
    from tileseer.families.enumeration import rejected_text
    from tileseer.families.registry import of_arch
    from tileseer.gpu.arch import ArchSpecs
    from tileseer.settings.inputs import ConfigsSettings

    asked = ConfigsSettings.of(settings, "configs")
    rules, specs = of_arch(arch).part("rules"), ArchSpecs.load(arch_specs)
    found = rules.enumerate_kernels(
        Path(asked.rule_set), specs, arch, Operation.parse(operation), asked.ndims, asked.include_flagged
    )
    if asked.filter:
        found = kernel_filter.narrowed(found, asked.filter, "configs.filter")
    rows = kernel_table.table(found.kernels, found.split_k, asked.chunks)
    parquet.write(rows, kernels)
    write_text(rejected, rejected_text(found.rejected))
    write_text(plan, chunks.text(kernel_table.planned(rows)), sealed=True)
    return f"{arch} {operation}: {len(found.kernels)} kernels, {len(found.rejected)} combinations refused"


if __name__ == "__main__":
    raise SystemExit(main())
