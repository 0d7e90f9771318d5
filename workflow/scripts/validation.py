from __future__ import annotations

from tileseer.core.stage import Input, Output, Resource, Settings, stage


@stage()
def main(
    dataset: Input, training: Input, coefficients: Input, uses: Input, validation: Output,
    baseline: Input | None = None, chosen: Input | None = None, layers: Input | None = None,
    arch: str = "", operation: str = "", threads: Resource = 1, settings: Settings = "{}",
) -> str:  # fmt: skip
    """Score a trained model on the validation split of its dataset: problems that it has never seen.

    baseline: folder that the baseline stage wrote, to compare with
    chosen: pairs that active measuring chose, for its learning curve
    """
    from tileseer.core import documents
    from tileseer.settings.benchmark import BenchmarkSettings
    from tileseer.settings.model import ValidationSettings
    from tileseer.validation import stage

    asked = ValidationSettings.of(settings, "validation")
    deviation = BenchmarkSettings.of(settings, "benchmark").parameters.simulated_deviation
    report = stage.report(dataset, training, coefficients, uses, baseline, chosen, layers, threads, asked, deviation)
    documents.write(validation, report)
    return stage.summary(report)
