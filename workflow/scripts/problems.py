from pathlib import Path

from tileseer.core.script import Settings, stage_script


@stage_script
def main(operation: str, ndims: list[int], problems: Path, uses: Path, settings: Settings) -> str:
    """Collect the problems of one operation: those to train on, and layers of unseen networks to validate on.

    ndims: numbers of spatial dimensions
    """
    from tileseer.core import parquet
    from tileseer.facts.inputs import ProblemsSettings
    from tileseer.problems import problem_sets, problem_table
    from tileseer.problems.operation import Operation

    asked = Operation.parse(operation)
    chosen = problem_sets.choose_problems(ProblemsSettings.of(settings, "problems"), asked, tuple(ndims))
    parquet.write_table(problem_table.problem_table(chosen.training, chosen.validation), problems)
    parquet.write_table(problem_table.use_table(chosen.runs, asked), uses)
    left_out = f", without {chosen.held_out:,} that resemble validation layers" if chosen.held_out else ""
    return (
        f"{len(chosen.training):,} problems to train on{left_out}; {len(chosen.validation):,} layers of "
        f"{len(chosen.runs)} network runs to validate on"
    )
