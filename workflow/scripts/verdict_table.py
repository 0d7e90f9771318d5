from __future__ import annotations

from tileseer.core.stage import Input, Output, Settings, stage


@stage()
def main(
    arch: str, verdicts: list[Input], aliases: list[Input], table: Output, settings: Settings = "{}"
) -> str:  # fmt: skip
    """Bring the verdicts of all operations of an arch together in one table for people.

    verdicts: tables of verdicts, one an operation and chunk
    aliases: tables of kernels with the machine code of another one, one an operation
    """
    from tileseer.core.atomic import write_text
    from tileseer.verdicts import stage

    rows = stage.whole(verdicts, aliases)
    write_text(table, "".join(f"{line}\n" for line in stage.lines(rows)))
    return stage.told([row["status"] for row in rows])
