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
    """
    from tileseer.configs import stage
    from tileseer.conv.operation import Operation

    return stage.enumerate_kernels(arch, Operation.parse(operation), arch_specs, kernels, rejected, plan, settings)
