from pathlib import Path

from tileseer.core.script import stage_script


@stage_script
def main(build: list[Path], support: list[Path], aliases: Path) -> str:
    """Find the kernels with the same machine code: one of them is measured for all.

    build: build tables, one a chunk
    support: support tables, one a chunk
    """
    from tileseer.build import aliases as found
    from tileseer.build.build import SCHEMA as BUILD
    from tileseer.core import parquet
    from tileseer.measure import support_table

    pairs = (parquet.read_table(path, support_table.SCHEMA) for path in support)
    supported = [part.filter(support_table.supported(part)) for part in pairs]
    table = found.find_aliases([parquet.read_table(path, BUILD) for path in build], supported)
    parquet.write_table(table, aliases)
    return f"{table.num_rows:,} kernels have the machine code of another one, which is measured for them"
