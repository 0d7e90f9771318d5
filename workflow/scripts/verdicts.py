from __future__ import annotations

from tileseer.core.stage import Input, Output, Place, Settings, stage


@stage()
def main(
    arch: str, build: Input, headers: Input, driver: Input, module: Input, aliases: Input, hardware: Input,
    native: Place, verdicts: Output, operation: str = "", chunk: int | None = None, settings: Settings = "{}",
) -> str:  # fmt: skip
    """Execute the kernels of one chunk on the emulated GPU; one Parquet row a kernel.

    headers: bundle of the chunk
    driver: driver of the emulated GPU
    module: library of the chunk's kernels
    aliases: kernels that are not executed, because another one is for them
    hardware: table of GPU products
    native: folder of driver and launchers (workflow/native)
    """
    from tileseer.core import parquet
    from tileseer.verdicts import stage

    table = stage.of_chunk(arch, build, headers, (driver, module), aliases, hardware, native, settings)
    parquet.write(table, verdicts)
    return stage.told(table["status"].to_pylist())
