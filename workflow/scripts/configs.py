from __future__ import annotations

from tileseer.core.stage import Input, Output, Place, Settings, facts_of_arch, stage


@stage(arch_specs=facts_of_arch)
def main(
    arch: str, operation: str, arch_specs: Input, tables: Place,
    kernels: Output, rejected: Output, plan: Output, settings: Settings = "{}",
) -> str:  # fmt: skip
    """Enumerate the kernels of one arch and operation: one Parquet row a kernel, and the plan of chunks.

    rejected: refused combinations (TSV)
    tables: folder of the named rule sets (config/rule_sets)
    """
    from tileseer.configs import stage
    from tileseer.conv.operation import Operation

    wanted = Operation.parse(operation)
    return stage.enumerate_kernels(arch, wanted, arch_specs, tables, kernels, rejected, plan, settings)
