from pathlib import Path

from tileseer.core.script import Settings, stage_script


@stage_script
def main(
    arch: str, operation: str, chunk: int, support: Path, build: Path, problems: Path, hardware: Path,
    product: str, coefficients: Path, journal: Path, again: Path, receipt: Path, settings: Settings,
    aliases: Path | None = None, driver: Path | None = None, module: Path | None = None,
    shares: int = 1,
) -> str:  # fmt: skip
    """Measure the pairs of one chunk on the device, holding its lock; measured pairs are kept and not repeated.

    aliases: kernels that are not measured, because another one is for them
    again: journal of repeat measurements
    shares: jobs that share the budget
    """
    from tileseer.core import documents
    from tileseer.measure.benchmark import ChunkTables, measure_chunk
    from tileseer.measure.session import Session

    session = Session(arch, operation, settings, hardware, product, coefficients, journal, driver)
    tables = ChunkTables(support, build, problems, aliases, module)
    made, message = measure_chunk(session, chunk, tables, shares, again)
    documents.write_document(receipt, made)
    return message
