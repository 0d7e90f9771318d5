from __future__ import annotations

from tileseer.core.stage import Output, Settings, stage


@stage()
def main(operation: str, ndims: list[int], problems: Output, uses: Output, settings: Settings = "{}") -> str:
    """Collect the problems of one operation: those to train on, and layers of unseen networks to validate on.

    ndims: numbers of spatial dimensions
    """
    from tileseer.conv.operation import Operation
    from tileseer.core import parquet
    from tileseer.problems import problem_table, training_set
    from tileseer.settings.inputs import ProblemsSettings

    asked = Operation.parse(operation)
    chosen = training_set.enough(ProblemsSettings.of(settings, "problems"), asked, tuple(ndims))
    parquet.write(problem_table.table(chosen.training, chosen.validation), problems)
    parquet.write(problem_table.uses(chosen.runs, asked, chosen.nearest), uses)
    return (
        f"{len(chosen.training)} problems to train on ({chosen.held_out} left out: same layer family "
        f"as a validation problem), {len(chosen.validation)} of {len(chosen.runs)} runs of networks to validate on"
    )
