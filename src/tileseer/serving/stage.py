"""The serving stage: what a dispatcher runs of a trained model."""

from pathlib import Path

from tileseer.conv import layers as layer_tables
from tileseer.core import parquet
from tileseer.core.stage import Settings
from tileseer.dataset import schema
from tileseer.families.coefficients import load_coefficients
from tileseer.model import model_files
from tileseer.model.model import Model
from tileseer.serving import artefacts
from tileseer.settings.model import ServingSettings


def serve(
    dataset: Path,
    training: Path,
    template: Path,
    api: Path,
    coefficients: Path,
    layers: Path | None,
    threads: int,
    settings: Settings,
) -> tuple[artefacts.Served, str]:
    """Small model, C++ header, known problems and kernel list of a trained model; and a line about them."""
    measurements = schema.load(dataset)
    served = artefacts.build(
        measurements,
        Model.read_for(training, measurements, dataset),
        parquet.read(training / model_files.OUT_OF_FOLD).to_pandas(),
        template,
        api,
        load_coefficients(coefficients),
        ServingSettings.of(settings, "serving").parameters,
        threads,
        layer_tables.families(layer_tables.read(layers)) if layers else {},
    )
    cost, kernels = served.figures.validation, served.kernels
    return served, (
        f"{measurements.arch} {measurements.operation} ({measurements.device_kind}): the served model loses "
        f"{cost.loss_of_mean.served_model} points of mean efficiency on {cost.n_problems} unseen problems; "
        f"{kernels.pruned_size} of {kernels.pool_size} kernels are enough for 1 %"
    )
