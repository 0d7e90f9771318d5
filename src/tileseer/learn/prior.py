"""What training starts from: the cost model's formula, or a model of another device, arch or data type.

Few measured rows are too few to learn a device from, but they say where a formula or a model of a similar one is wrong.
So trees learn what the prior misses, and the published model has both.
"""

from pathlib import Path

from tileseer.core.errors import UserError
from tileseer.facts.model import TrainingParameters
from tileseer.learn import model_files
from tileseer.learn.features import feature_set
from tileseer.learn.model import Model
from tileseer.libraries.costs.coefficients import Coefficients


def prior_of(
    settings: TrainingParameters, operation: str, coefficients: Coefficients | None
) -> Model | Coefficients | None:
    """Return what ``settings`` let training start from; ``coefficients`` are those of the formula."""
    if settings.prior == "formula":
        return coefficients
    if settings.prior_folder is None:
        return None
    return read_prior(settings.prior_folder, settings.features, operation.rpartition("_")[0])


def read_prior(folder: Path, features: str, variant: str) -> Model:
    """Read a training folder or the folder of a published operation.

    ``UserError`` when it is another direction's, has other features, or starts from a formula.
    """
    model = Model.read(folder)
    names = list(feature_set(features).names)
    for field, expected in (("variant", variant), ("feature_set", features), ("feature_names", names)):
        value = getattr(model.spec, field)
        if value != expected:
            shown = (value, expected) if field != "feature_names" else ("others", "those of this release")
            raise UserError(
                f"{folder / model_files.SPEC}: {field} is {shown[0]!r}, but the model to train needs {shown[1]!r}; "
                "give model.prior a model of the same direction and features"
            )
    if model.spec.formula is not None:
        raise UserError(f"{folder}: the model starts from a formula; give model.prior one without: model.prior none")
    return model
