#!/usr/bin/env python3
from __future__ import annotations

from tileseer.core.stage import Input, Output, Place, Settings, stage


@stage()
def main(
    arch: str, native: Place, library: Output, headers: Input | None = None, build: Input | None = None,
    operation: str = "", chunk: int | None = None, settings: Settings = "{}",
) -> str:  # fmt: skip
    """Build what a real GPU is measured with: the measuring driver of an arch, or a chunk's kernels as a module for it.

    native: folder of driver and launchers (workflow/native)
    library: shared library to write
    headers: bundle of the chunk; without it, the driver is built
    build: build table of the chunk
    """
    from tileseer.compile import stage
    from tileseer.core.atomic import write_bytes

    content, what = stage.library(arch, native, headers, build, settings)
    write_bytes(library, content, sealed=True)
    return f"{what}, {len(content) / 2**20:.1f} MiB"
