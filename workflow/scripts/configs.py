from tileseer.core.script import Folder, Input, Output, Settings, facts_of_arch, stage_script


@stage_script(arch_specs=facts_of_arch)
def main(
    arch: str, operation: str, arch_specs: Input, tables: Folder, kernels: Output, rejected: Output, plan: Output,
    settings: Settings,
) -> str:  # fmt: skip
    """Enumerate the kernels of one arch and operation: one Parquet row a kernel, and the plan of chunks.

    rejected: refused combinations (TSV)
    tables: folder of the named rule sets (config/rule_sets)
    """
    from tileseer.kernels import configs as stage
    from tileseer.problems.operation import Operation

    wanted = Operation.parse(operation)
    return stage.enumerate_kernels(arch, wanted, arch_specs, tables, kernels, rejected, plan, settings)
