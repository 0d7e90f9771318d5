from pathlib import Path

from tileseer.core.script import Settings, stage_script


@stage_script
def main(
    arch: str,
    native: Path,
    library: Path,
    settings: Settings,
    headers: Path | None = None,
    build: Path | None = None,
    device: str = "",
) -> str:
    """Build what a real or an emulated GPU loads: the driver of an arch, or a chunk's kernels as a module for it.

    library: shared library to write
    headers: bundle of the chunk; without it, the driver is built
    build: build table of the chunk
    device: that of the benchmark; an emulated one has a driver of its own
    """
    from tileseer.build import chunk as stage
    from tileseer.core.atomic import write_bytes

    content, what = stage.library(arch, native, headers, build, settings, device)
    write_bytes(library, content)
    return f"{what}, {len(content) / 2**20:.1f} MiB"
