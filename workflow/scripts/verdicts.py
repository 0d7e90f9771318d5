from pathlib import Path

from tileseer.core.script import Settings, stage_script


@stage_script
def main(
    arch: str, build: Path, headers: Path, driver: Path, module: Path, aliases: Path, hardware: Path,
    native: Path, verdicts: Path, settings: Settings,
) -> str:  # fmt: skip
    """Execute the kernels of one chunk on the emulated GPU; one Parquet row a kernel.

    driver: driver of the emulated GPU
    module: library of the chunk's kernels
    aliases: kernels that are not executed, because another one is for them
    """
    from tileseer.core import parquet
    from tileseer_emulated import verdicts as stage

    table = stage.execute_chunk(arch, build, headers, driver, module, aliases, hardware, native, settings)
    parquet.write_table(table, verdicts)
    return stage.count_verdicts(table["status"].to_pylist())
