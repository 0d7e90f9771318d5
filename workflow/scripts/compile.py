from pathlib import Path

from tileseer.core.script import Settings, stage_script


@stage_script
def main(
    arch: str, chunk: int, configs: Path, headers: Path, hardware: Path, product: str, coefficients: Path,
    native: Path, build: Path, settings: Settings,
) -> str:  # fmt: skip
    """Compile one chunk of kernels, or estimate what they would cost; one Parquet row a kernel."""
    from tileseer.build import chunk as stage
    from tileseer.core import parquet

    toolchain = stage.toolchain(settings, arch, hardware, product, coefficients, native)
    table = stage.build_chunk(configs, chunk, headers, arch, toolchain)
    parquet.write_table(table, build)
    return stage.describe_build(table)
