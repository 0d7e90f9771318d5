from pathlib import Path

from tileseer.core.script import stage_script


@stage_script
def main(
    arch: str, operation: str, problems: Path, build: list[Path], support: list[Path], receipts: list[Path],
    dataset: Path, aliases: Path | None = None,
) -> str:  # fmt: skip
    """Bring the journals of all chunks together into one dataset; malformed lines go to a quarantine file.

    build: build tables, one a chunk
    support: support tables, one a chunk
    receipts: receipts, one a chunk; each names its journal
    aliases: kernels that show what was measured of another one
    dataset: folder of its tables
    """
    from tileseer.compile.aliases import read_aliases
    from tileseer.core import parquet
    from tileseer.dataset import assembly
    from tileseer.problems import problem_table

    chunks = [assembly.ChunkFiles(*files) for files in zip(build, support, receipts, strict=True)]
    table = parquet.read_table(problems, problem_table.SCHEMA)
    pairs, malformed = assembly.write_dataset(chunks, table, arch, operation, dataset, read_aliases(aliases))
    assembly.write_quarantine(dataset / "quarantine.tsv", malformed)
    counts = {row["values"]: row["counts"] for row in pairs["status"].combine_chunks().value_counts().to_pylist()}
    statuses = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items()))
    return f"the dataset has {statuses or 'no'} pairs, the quarantine {len(malformed):,} malformed lines"
