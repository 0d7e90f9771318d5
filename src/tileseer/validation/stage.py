"""The validation stage: score a trained model on the validation split of its dataset."""

from pathlib import Path
from typing import Any

from tileseer.benchmark import chosen_pairs
from tileseer.conv import layers as layer_tables
from tileseer.core import parquet
from tileseer.dataset import schema as datasets
from tileseer.families.coefficients import load_coefficients
from tileseer.model.model import Model
from tileseer.problems.problem_table import USES
from tileseer.settings.model import TrainingParameters, ValidationSettings
from tileseer.validation import evaluation, learning_curve, leave_out, ranking
from tileseer.validation.schema import Validation


def report(
    dataset: Path, training: Path, coefficients: Path, uses: Path, baseline: Path | None, chosen: Path | None,
    layers: Path | None, threads: int, settings: ValidationSettings, deviation: bool,
) -> Validation:  # fmt: skip
    """Validation report of the model in the folder ``training``.

    ``coefficients`` are those of the simulated device, with or without ``deviation``, ``uses`` the table of the
    problems of each run of a network, ``baseline`` the folder of the reference's trainer, ``chosen`` the pairs of
    active measuring, ``layers`` the table with the families of networks. ``UserError`` where the model is not of this
    dataset.
    """
    measurements = datasets.load(dataset)
    model = Model.read_for(training, measurements, dataset)
    hardware, fitted = model.hardware, TrainingParameters.model_validate(model.spec.params)
    start_from = model.spec.formula.coefficients if model.spec.formula else None
    simulated = load_coefficients(coefficients, deviation) if measurements.device_kind == "simulated" else None
    if not ranking.has_validation_split(measurements):
        scores, offered, fold, figures = leave_out.by_layer(measurements, model, fitted, threads)
        found = evaluation.evaluate(measurements, scores, offered, hardware, simulated, fold=fold)
        curve = (
            learning_curve.of_prior_by_layer(measurements, hardware, fitted, threads) if fitted.prior_folder else None
        )
        return found.model_copy(update={"leave_layer_out": figures, "transfer": curve})
    scores, offered = ranking.rank_pool(measurements, model, threads)
    reference = None
    if baseline:
        reference, _ = ranking.rank_pool(measurements, model.with_trees_of(baseline), threads)
    runs = parquet.read(uses, USES).to_pandas()
    networks = layer_tables.networks(layers) if layers else {}
    trained = {name for name, network in networks.items() if network.trains}
    found = evaluation.evaluate(
        measurements, scores, offered, hardware, simulated, model, reference, runs, training_networks=trained
    )
    # The problems of all comparisons are the same, so their floors are.
    floor = {"noise_floor": found.baselines["best_single_kernel"].noise_floor}
    more: dict[str, Any] = {}
    # A prior has seen measurements that are not here: leaving a network out of these would prove nothing.
    if "leave_network_out" in settings.studies and not fitted.prior_folder:
        families = {name: network.family for name, network in networks.items()}
        left_out = leave_out.by_network(
            measurements, hardware, fitted, leave_out.FOLDS, threads, families, model.spec.formula
        )
        more["leave_network_out"] = left_out.model_copy(update=floor)
    if fitted.prior_folder:
        more["transfer"] = learning_curve.of_prior(measurements, hardware, fitted, threads).model_copy(update=floor)
    # Few pairs of a problem were chosen, or a prior knows more than they do: a share of the problems would say little.
    elif "learning_curve" in settings.studies and not chosen:
        shares = learning_curve.SHARES
        more["learning_curve"] = learning_curve.of_shares(measurements, shares, hardware, fitted, threads, start_from)
    if chosen:
        pairs = chosen_pairs.read(chosen)
        active = learning_curve.of_rounds(measurements, pairs, hardware, fitted, threads, start_from)
        more["active"] = active.model_copy(update=floor)
    return found.model_copy(update=more)


def summary(report: Validation) -> str:
    """One line about a validation report."""
    found, floor = report.efficiency, "perfect_model" if report.noise_floor.perfect_model else "perfect_selector"
    return (
        f"{report.n_problems} unseen problems ({report.device_kind}), efficiency mean {found.mean:.2f} %, median "
        f"{found.median:.2f} %, p10 {found.p10:.2f} %; {floor} would have mean "
        f"{report.noise_floor.best.efficiency.mean:.2f} %"
        + ("" if report.of_perfect_model is None else f", of which that is {report.of_perfect_model:.2f} %")
    )
