from pathlib import Path

from tileseer.core.script import stage_script


@stage_script
def main(
    arch: str, operation: str, problems: Path, build: list[Path], support: list[Path], receipts: list[Path],
    dataset: Path, quarantine: Path, aliases: Path | None = None,
) -> str:  # fmt: skip
    """Bring the journals of all chunks together into one dataset; malformed lines go to a quarantine file.

    build: build tables, one a chunk
    support: support tables, one a chunk
    receipts: receipts, one a chunk; each names its journal
    aliases: kernels that show what was measured of another one
    """
    from tileseer.compile.aliases import read_aliases
    from tileseer.core import parquet
    from tileseer.dataset import assembly
    from tileseer.problems import problem_table

    chunks = [assembly.ChunkFiles(*files) for files in zip(build, support, receipts, strict=True)]
    table = parquet.read_table(problems, problem_table.SCHEMA)
    rows, malformed = assembly.write_dataset(chunks, table, arch, operation, dataset, read_aliases(aliases))
    assembly.write_quarantine(quarantine, malformed)
    return f"the dataset has {rows:,} rows, the quarantine {len(malformed):,} malformed lines"
