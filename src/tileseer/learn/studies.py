"""What is studied beside a model's efficiency: learning curves, networks and layers left out, transfer from a prior."""

from pathlib import Path
from typing import Any

from tileseer.config.model import TrainingParameters, ValidationSettings
from tileseer.costmodel.coefficients import Coefficients
from tileseer.dataset.dataset import Dataset
from tileseer.learn import learning_curve, leave_out
from tileseer.learn.model import Model
from tileseer.learn.prior import Prior
from tileseer.learn.validation_report import Validation
from tileseer.measure import chosen_pairs
from tileseer.problems.layers import Network


def with_studies(
    report: Validation, model: Model, dataset: Dataset, settings: ValidationSettings, networks: dict[str, Network],
    chosen: Path | None, threads: int,
) -> Validation:  # fmt: skip
    """A report with the studies that ``settings`` request and the model's training allows.

    ``chosen``: pairs that active measuring chose.
    """
    trained, formula = TrainingParameters.model_validate(model.spec.params), model.spec.formula
    prior = Prior(coefficients=formula.coefficients) if formula else None
    # The problems of all comparisons are the same, so their floors are.
    floor = {"noise_floor": report.baselines["best_single_kernel"].noise_floor}
    more: dict[str, Any] = {}
    # A prior has seen measurements that are not here: leaving a network out of these would prove nothing.
    if "leave_network_out" in settings.studies and not trained.prior_folder:
        families = {name: network.family for name, network in networks.items()}
        left_out = leave_out.by_network(model, dataset, trained, families, threads)
        more["leave_network_out"] = left_out.model_copy(update=floor)
    if trained.prior_folder:
        transfer = learning_curve.of_prior(dataset, model.features, trained, threads)
        more["transfer"] = transfer.model_copy(update=floor)
    # Few pairs of a problem were chosen, or a prior knows more than they do: a share of the problems would say little.
    elif "learning_curve" in settings.studies and not chosen:
        shares = learning_curve.SHARES
        more["learning_curve"] = learning_curve.of_shares(dataset, shares, model.features, trained, prior, threads)
    if chosen:
        pairs = chosen_pairs.read_chosen_pairs(chosen)
        active = learning_curve.of_rounds(dataset, pairs, model.features, trained, prior, threads)
        more["active"] = active.model_copy(update=floor)
    return report.model_copy(update=more)


def report_by_layer(model: Model, dataset: Dataset, simulated: Coefficients | None, threads: int) -> Validation:
    """The report of a dataset without problems set aside: layers are left out in turn."""
    trained = TrainingParameters.model_validate(model.spec.params)
    report = leave_out.validate_by_layer(model, dataset, trained, simulated, threads)
    if not trained.prior_folder:
        return report
    transfer = learning_curve.of_prior_by_layer(dataset, model.features, trained, threads)
    return report.model_copy(update={"transfer": transfer})
