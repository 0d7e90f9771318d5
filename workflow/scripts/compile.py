from __future__ import annotations

from tileseer.core.stage import Input, Output, Place, Settings, chunk_of_plan, stage


@stage(configs=chunk_of_plan, plan=chunk_of_plan)
def main(
    arch: str, chunk: int, configs: Input, headers: Input, hardware: Input, product: str, coefficients: Input,
    native: Place, build: Output, costs: Output,
    operation: str = "", plan: Input | None = None, settings: Settings = "{}",
) -> str:  # fmt: skip
    """Compile one chunk of kernels, or estimate what they would cost; one Parquet row a kernel.

    headers: bundle of the chunk
    native: folder of the launchers (workflow/native)
    costs: CPU seconds and memory of the builds
    """
    from tileseer.compile import stage
    from tileseer.core import parquet

    toolchain = stage.toolchain(settings, arch, hardware, product, coefficients, native)
    table, spent = stage.build_chunk(configs, chunk, headers, arch, toolchain)
    parquet.write(spent, costs)
    parquet.write(table, build)
    return stage.told(table, spent)
