from pathlib import Path

from tileseer.core.script import stage_script


@stage_script
def main(verdicts: list[Path], aliases: list[Path], table: Path) -> str:
    """Bring the verdicts of all operations of an arch together in one table for people.

    verdicts: tables of verdicts, one an operation and chunk
    aliases: tables of kernels with the machine code of another one, one an operation
    """
    from tileseer.core.atomic import write_text
    from tileseer_emulated import verdicts as stage

    rows = stage.merge_chunks(verdicts, aliases)
    write_text(table, "".join(f"{line}\n" for line in stage.table_lines(rows)))
    return stage.count_verdicts([row["status"] for row in rows])
