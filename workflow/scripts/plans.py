from tileseer.core.script import Input, Output, Settings, row_of_product, stage_script


@stage_script(hardware=row_of_product)
def main(
    arch: str, operation: str, chunk: int, problems: Input, hardware: Input, product: str, coefficients: Input,
    driver: Input, build: Output, support: Output, settings: Settings, chunks: int = 1,
) -> str:  # fmt: skip
    """Ask cuDNN on the GPU, holding its lock, which plans it offers for each problem.

    build: build table to write: the plans of a chunk
    support: support table to write: which of them are offered for which problem
    chunks: chunks that plans are dealt to
    """
    from tileseer.measure import plan_table
    from tileseer.measure.session import Session

    session = Session(arch, operation, settings, hardware, product, coefficients, support, driver)
    return plan_table.write_plans(session, problems, chunk, chunks, build, support)
