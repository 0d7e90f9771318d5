from __future__ import annotations

from tileseer.core.stage import Input, Output, Resource, Settings, stage


@stage()
def main(
    dataset: Input, hardware: Input, product: str, coefficients: Input, output: Output,
    recorded: list[Input] = (), other_dtype: list[Input] = (), arch: str = "", operation: str = "",
    threads: Resource = 1, settings: Settings = "{}",
) -> str:  # fmt: skip
    """Train the ranking model of one operation on the training split of its dataset.

    coefficients: of the device's formula
    output: folder of the model and of what is published with it
    recorded: datasets that the model is checked on, not trained
    other_dtype: dataset of the same direction that is learnt from too
    """
    from tileseer.dataset import schema
    from tileseer.families.coefficients import load_coefficients
    from tileseer.gpu import hardware as products
    from tileseer.model import reality, stage, trainer
    from tileseer.settings.model import ModelSettings

    measurements, gpu = schema.load(dataset), products.get(hardware, product)
    asked = stage.settings_for(ModelSettings.of(settings, "model").parameters, measurements)
    other = schema.load(other_dtype[0]) if other_dtype else None
    trained = trainer.train(measurements, gpu, asked, threads, load_coefficients(coefficients), other)
    trained = reality.checked(trained, [schema.load(path) for path in recorded], threads)
    trained.save(output)
    manifest, summary = trained.manifest, trained.manifest.out_of_fold_efficiency
    return (
        f"{manifest.training_rows:,} {measurements.device_kind} rows of {manifest.unique_problems:,} problems, "
        f"out-of-fold efficiency mean {summary.mean:.2f} %, p10 {summary.p10:.2f} %"
    )
