from tileseer.core.script import Folder, Input, Output, Settings, chunk_of_plan, row_of_product, stage_script


@stage_script(configs=chunk_of_plan, plan=chunk_of_plan, hardware=row_of_product)
def main(
    arch: str, chunk: int, configs: Input, headers: Input, hardware: Input, product: str, coefficients: Input,
    native: Folder, build: Output, costs: Output, settings: Settings, plan: Input,
) -> str:  # fmt: skip
    """Compile one chunk of kernels, or estimate what they would cost; one Parquet row a kernel.

    headers: bundle of the chunk
    native: folder of the launchers (workflow/native)
    costs: CPU seconds and memory of the builds
    """
    from tileseer.compile import chunk as stage
    from tileseer.core import parquet

    toolchain = stage.toolchain(settings, arch, hardware, product, coefficients, native)
    table, spent = stage.build_chunk(configs, chunk, headers, arch, toolchain)
    parquet.write_table(spent, costs)
    parquet.write_table(table, build)
    return stage.describe_build(table, spent)
