from pathlib import Path

from tileseer.core.script import Settings, stage_script


@stage_script
def main(
    arch: str, operation: str, chunk: int, problems: Path, hardware: Path, product: str, coefficients: Path,
    driver: Path, build: Path, support: Path, settings: Settings, chunks: int = 1,
) -> str:  # fmt: skip
    """Ask the library on the GPU, holding its lock, which plans it offers for each problem.

    build: build table to write: the plans of a chunk
    support: support table to write: which of them are offered for which problem
    chunks: chunks that plans are dealt to
    """
    from tileseer.measure import plan_table
    from tileseer.measure.session import Session

    session = Session(arch, operation, settings, hardware, product, coefficients, support, driver)
    return plan_table.write_plans(session, problems, chunk, chunks, build, support)
