from pathlib import Path

from tileseer.core.script import stage_script


@stage_script
def main(
    arch: str, operation: str, problems: Path, build: list[Path], support: list[Path], receipts: list[Path],
    dataset: Path, aliases: Path | None = None,
) -> str:  # fmt: skip
    """Bring the journals of all chunks together into one dataset; damaged lines go to a file of their own.

    build: build tables, one a chunk
    support: support tables, one a chunk
    receipts: receipts, one a chunk; each names its journal
    aliases: kernels that show what was measured of another one
    dataset: folder of its tables
    """
    from tileseer.build.aliases import read_aliases
    from tileseer.core import parquet
    from tileseer.data import assembly
    from tileseer.measure.device import list_failures
    from tileseer.problems import problem_table

    chunks = [assembly.ChunkFiles(*files) for files in zip(build, support, receipts, strict=True)]
    table = parquet.read_table(problems, problem_table.SCHEMA)
    pairs, malformed = assembly.write_dataset(chunks, table, arch, operation, dataset, read_aliases(aliases))
    assembly.write_quarantine(dataset / "quarantine.tsv", malformed)
    counts = {row["values"]: row["counts"] for row in pairs["status"].combine_chunks().value_counts().to_pylist()}
    failed, damaged = list_failures(counts), malformed.num_rows
    parts = [
        f"{counts.get('ok', 0):,} pairs have a time",
        failed and f"failed: {failed}",
        damaged and f"{damaged:,} damaged lines of the journals left out (listed in {dataset}/quarantine.tsv)",
    ]
    return "; ".join(part for part in parts if part)
