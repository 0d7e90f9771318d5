from __future__ import annotations

from tileseer.core.stage import Input, Output, Resource, Settings, State, stage


@stage()
def main(
    arch: str, operation: str, support: list[Input], build: list[Input], problems: Input, hardware: Input,
    product: str, coefficients: Input, journal: State, chosen: Output,
    aliases: Input | None = None, driver: Input | None = None, modules: list[Input] = (), memory_mib: Resource = 1024,
    settings: Settings = "{}",
) -> str:  # fmt: skip
    """Choose which training pairs are worth measuring, in rounds of measuring and learning, holding the device's lock.

    support: support tables, one a chunk
    build: build tables, one a chunk
    aliases: kernels that are not measured, because another one is for them
    memory_mib: memory of taking measurements over
    """
    from tileseer.active import stage
    from tileseer.benchmark.run import Session

    session = Session(arch, operation, settings, hardware, product, coefficients, journal, driver)
    return stage.choose(session, support, build, problems, aliases, modules, chosen, memory_mib)
