from __future__ import annotations

from tileseer.core.stage import Input, Output, Resource, Settings, State, stage


@stage()
def main(
    arch: str, operation: str, problems: Input, build: list[Input], support: list[Input], receipts: list[Input],
    dataset: Output, quarantine: Output, aliases: Input | None = None, chosen: Input | None = None,
    journals: list[State] = (), memory_mib: Resource = 1024, settings: Settings = "{}",
) -> str:  # fmt: skip
    """Bring the journals of all chunks together into one dataset; malformed lines go to a quarantine file.

    build: build tables, one a chunk
    support: support tables, one a chunk
    receipts: receipts, one a chunk; each names its journal
    aliases: kernels that show what was measured of another one
    chosen: pairs of training problems that were measured; without it, all
    journals: those that the receipts name and their repeats; the stage store looks whether they are whole
    memory_mib: memory of this stage
    """
    from tileseer.benchmark import chosen_pairs
    from tileseer.compile.aliases import read
    from tileseer.core import parquet
    from tileseer.dataset import assembly
    from tileseer.problems import problem_table

    chunks = [assembly.Chunk(*files) for files in zip(build, support, receipts, strict=True)]
    pairs, known = chosen_pairs.read(chosen) if chosen else None, read(aliases)
    table = parquet.read(problems, problem_table.SCHEMA)
    rows, malformed = assembly.write(chunks, table, arch, operation, dataset, pairs, known, memory_mib)
    assembly.write_quarantine(quarantine, malformed)
    return f"the dataset has {rows:,} rows, the quarantine {len(malformed):,} malformed lines"
