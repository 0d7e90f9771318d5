from tileseer.core.script import Input, Journal, Output, Settings, row_of_product, stage_script


@stage_script(hardware=row_of_product)
def main(
    arch: str, operation: str, chunk: int, support: Input, build: Input, problems: Input, hardware: Input,
    product: str, coefficients: Input, journal: Journal, repeats: Journal, receipt: Output, settings: Settings,
    aliases: Input | None = None, driver: Input | None = None, modules: list[Input] = (),
    shares: int = 1,
) -> str:  # fmt: skip
    """Measure the pairs of one chunk on the device, holding its lock; measured pairs are kept and not repeated.

    aliases: kernels that are not measured, because another one is for them
    repeats: journal of repeat measurements
    shares: jobs that share the budget
    """
    from tileseer.measure.benchmark import ChunkTables, measure_chunk
    from tileseer.measure.session import Session

    session = Session(arch, operation, settings, hardware, product, coefficients, journal, driver)
    tables = ChunkTables(support, build, problems, aliases, modules)
    made, message = measure_chunk(session, chunk, tables, shares, repeats)
    made.write(receipt)
    return message
