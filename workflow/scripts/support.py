from __future__ import annotations

from tileseer.core.stage import Input, Output, Place, Settings, stage


@stage()
def main(
    arch: str, operation: str, build: Input, problems: Input, hardware: Input, product: str, support: Output,
    headers: Input | None = None, native: Place | None = None, disagreements: Output | None = None,
    chunk: int | None = None, settings: Settings = "{}",
) -> str:  # fmt: skip
    """Decide on the CPU which pairs of one chunk's kernels and the problems can run: by our rules, or by the library.

    headers: bundle of the chunk; for the library's checks, as native and disagreements
    native: folder of hip_stand_in.cpp
    disagreements: where the library and our rules differ
    """
    from tileseer.core import parquet
    from tileseer.support import stage, support_table

    library = stage.Library(headers, native, disagreements)
    table = stage.decide(arch, operation, build, problems, hardware, product, library, settings)
    parquet.write(table, support)
    return f"{support_table.count(table):,} of {table.num_rows:,} pairs can run"
