"""The model stage: the settings that fit a dataset."""

from tileseer.core.errors import UserError
from tileseer.dataset.measurements import Measurements
from tileseer.families.registry import FAMILIES, of_arch
from tileseer.model import features
from tileseer.settings.model import TrainingParameters


def settings_for(settings: TrainingParameters, measurements: Measurements) -> TrainingParameters:
    """Settings with the feature set and the start that fit a dataset; a model to start from keeps its features.

    ``UserError`` for a formula that made the very times, or that there is not.
    """
    if settings.features == FAMILIES[0].features:
        settings = settings.model_copy(update={"features": of_arch(measurements.arch).features})
    if settings.prior_folder is None:
        settings = settings.model_copy(
            update={"features": features.fitting(settings.features, measurements.candidates)}
        )
    if settings.features == "reference" and measurements.candidates["split_k"].nunique() > 1:
        raise UserError(
            f"model.features: reference: {measurements.operation}: its features do not tell values of split-K apart, "
            "so a model picks one at random; leave one split_k in the rule set or take the features of the kernels"
        )
    lack = _no_formula(settings, measurements)
    if settings.prior == "formula" and lack:
        raise UserError(f"model.prior: formula: {measurements.operation} of {measurements.arch}: {lack}; leave it out")
    if settings.prior == "auto":
        settings = settings.model_copy(update={"prior": "none" if lack else "formula"})
    return settings


def _no_formula(settings: TrainingParameters, measurements: Measurements) -> str:
    """Why training cannot start from a formula; empty if it can."""
    if measurements.device_kind == "simulated":
        return "the formula made these times, so it would be judged by itself"
    if settings.features == "reference":
        return "who reads a model of the reference's features knows no formula"
    return "" if of_arch(measurements.arch).has("simulated") else "no formula is known of its kernels"
