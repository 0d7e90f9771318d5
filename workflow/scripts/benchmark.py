from __future__ import annotations

from tileseer.core.stage import Input, Output, Resource, Settings, State, stage


@stage()
def main(
    arch: str, operation: str, chunk: int, support: Input, build: Input, problems: Input, hardware: Input,
    product: str, coefficients: Input, journal: State, repeats: State, receipt: Output,
    aliases: Input | None = None, chosen: Input | None = None, driver: Input | None = None, modules: list[Input] = (),
    recording: Input | None = None, shares: int = 1, memory_mib: Resource = 1024, settings: Settings = "{}",
) -> str:  # fmt: skip
    """Measure the pairs of one chunk on the device, holding its lock; measured pairs are kept and not repeated.

    aliases: kernels that are not measured, because another one is for them
    repeats: journal of repeat measurements
    chosen: pairs of training problems to measure; without it, all
    recording: table that the recorded device replays
    shares: jobs that share the budget
    memory_mib: memory of this stage
    """
    from tileseer.benchmark import stage
    from tileseer.benchmark.run import Session

    session = Session(arch, operation, settings, hardware, product, coefficients, journal, driver)
    return stage.measure(
        session, chunk, support, build, problems, aliases, chosen, modules, shares, repeats, receipt, memory_mib
    )
