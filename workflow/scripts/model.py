from pathlib import Path

from tileseer.core.script import Settings, stage_script


@stage_script
def main(
    dataset: Path, hardware: Path, product: str, coefficients: Path, output: Path, settings: Settings,
    other_dtype: Path | None = None, threads: int = 1,
) -> str:  # fmt: skip
    """Train the ranking model of one operation on the training split of its dataset.

    coefficients: of the device's formula
    output: folder of the model and of what is published with it
    other_dtype: dataset of the same direction that is learnt from too
    """
    from tileseer.core.errors import UserError
    from tileseer.data.dataset import Dataset
    from tileseer.data.dataset_files import table_digests
    from tileseer.facts.hardware import read_hardware
    from tileseer.facts.model import ModelSettings
    from tileseer.learn.features import Features
    from tileseer.learn.learner import Recipe
    from tileseer.learn.training import prior_of, settings_for, train
    from tileseer.libraries.costs.coefficients import load_coefficients

    gpu, fitted = read_hardware(hardware, product), load_coefficients(coefficients)
    data = Dataset.read(dataset).with_estimates(gpu, fitted)
    if data.device != gpu.name:
        raise UserError(f"{dataset}: the device is {data.device}, but benchmark.products gives {gpu.name}")
    parameters = settings_for(ModelSettings.of(settings, "model"), data)
    features = Features.of(parameters.features, gpu)
    prior = prior_of(parameters, data.operation, fitted)
    more = Dataset.read(other_dtype) if other_dtype else None
    manifest = train(data, Recipe(features, parameters, prior, threads), more).save(output, table_digests(dataset))
    return f"learnt from {manifest.training_rows:,} {data.device_kind} times of {manifest.unique_problems:,} problems"
