from tileseer.core.script import Input, Journal, Output, Settings, row_of_product, stage_script


@stage_script(hardware=row_of_product)
def main(
    arch: str, operation: str, support: list[Input], build: list[Input], problems: Input, hardware: Input,
    product: str, coefficients: Input, journal: Journal, chosen: Output, settings: Settings,
    aliases: Input | None = None, driver: Input | None = None, modules: list[Input] = (),
) -> str:  # fmt: skip
    """Choose which training pairs are worth measuring, in rounds of measuring and learning, holding the device's lock.

    support: support tables, one a chunk
    build: build tables, one a chunk
    aliases: kernels that are not measured, because another one is for them
    """
    from tileseer.learn import active as stage
    from tileseer.measure.session import Session

    session = Session(arch, operation, settings, hardware, product, coefficients, journal, driver)
    return stage.choose_pairs(session, support, build, problems, aliases, modules, chosen)
