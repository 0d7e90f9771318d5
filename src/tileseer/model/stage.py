"""The model stage: the settings that fit a dataset."""

from tileseer.dataset.measurements import Measurements
from tileseer.families.registry import FAMILIES, of_arch
from tileseer.model import features
from tileseer.settings.model import TrainingParameters


def settings_for(settings: TrainingParameters, measurements: Measurements) -> TrainingParameters:
    """Settings with the feature set that fits the kernels of a dataset; a correction of a prior has the prior's."""
    if settings.features == FAMILIES[0].features:
        settings = settings.model_copy(update={"features": of_arch(measurements.arch).features})
    if settings.prior is None:
        settings = settings.model_copy(
            update={"features": features.fitting(settings.features, measurements.candidates)}
        )
    return settings
