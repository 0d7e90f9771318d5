"""Leave a network out, or a layer: how well a model does on them when it has trained on the others.

Of networks, validation proper trains on generated problems alone. Here the layers of the other networks join them.
Networks of one family (ResNet-50 and ResNet-101) are left out together, and so is every training problem that shares
a layer family with what is tested, in whatever network it occurs. Where no problems were set aside, leaving layers
out is the validation itself: the published model trains on all of them, models of the same settings are judged.
"""

import math
from collections.abc import Mapping

import numpy as np

from tileseer.config.model import TrainingParameters
from tileseer.core.errors import UserError
from tileseer.core.progress import Progress
from tileseer.costmodel.coefficients import Coefficients
from tileseer.dataset import bootstrap
from tileseer.dataset.dataset import Dataset
from tileseer.learn import cross_validation, fit, ranking
from tileseer.learn.model import Model
from tileseer.learn.model_schema import Summary
from tileseer.learn.prior import Prior
from tileseer.learn.ranking import Scored
from tileseer.learn.validation import Context, report_of
from tileseer.learn.validation_report import LayersLeftOut, LeftOut, Validation

FOLDS = 5
"""Parts in which network families or layers are left out in turn, while the others join the training problems."""
REPEATS, ENOUGH = 5, 5000
"""Most deals of the layers to folds; no further one once that many picks are judged."""
LAYERS = (
    "no problems were set aside: layers, at all their batch sizes, are left out in turn; the published model has "
    "learnt from all of them"
)
STARTED = "; the model that training starts from may have learnt from these layers on its own device"


def validate_by_layer(
    model: Model, dataset: Dataset, settings: TrainingParameters, simulated: Coefficients | None, threads: int
) -> Validation:
    """Validation report of models that have not seen a problem's layer, with the settings of ``model``.

    Its figures are those of the first deal of layers to folds.
    """
    coefficients = None if model.spec.formula is None else model.spec.formula.coefficients
    prior = Prior.of(settings, dataset.operation, coefficients)
    deals = by_layer(model, dataset, settings, prior, threads)
    report = report_of(deals[0], model.hardware, Context(simulated))
    repeats = [Summary.of(scored.picked) for scored in deals]
    mean = {name: round(float(np.mean([getattr(s, name) for s in repeats])), 4) for name in Summary.model_fields}
    layers = dataset.problems["layer_family"].to_numpy()[deals[0].fold != ranking.NEVER]
    figures = LayersLeftOut(
        meaning=LAYERS + (STARTED if settings.prior_folder else ""),
        folds=FOLDS,
        layers=len(np.unique(layers)),
        n_problems=len(deals[0].picked),
        repeats=repeats,
        efficiency=Summary(**mean),
        interval=bootstrap.intervals(np.stack([scored.picked for scored in deals], axis=1)),
    )
    return report.model_copy(update={"leave_layer_out": figures})


def by_layer(
    model: Model, dataset: Dataset, settings: TrainingParameters, prior: Prior | None, threads: int
) -> list[Scored]:
    """The picks of models that have not seen a problem's layer, of each deal of the layers to folds."""
    samples = fit.samples_of(dataset, model.features, settings, prior, threads)
    problem = samples.pairs.problem
    deals = min(REPEATS, math.ceil(ENOUGH / max(len(np.unique(problem)), 1)))
    scored = []
    with Progress("leave layers out", deals * FOLDS * settings.n_estimators, "trees") as progress:
        for repeat in range(deals):
            of_fold = cross_validation.deal(samples, "layer_family", FOLDS, settings.seed + repeat)
            score = cross_validation.out_of_fold(samples, of_fold, settings.whole, threads, progress)
            fold = np.full(len(dataset.problems), ranking.NEVER)
            fold[problem] = of_fold
            scores = cross_validation.spread(samples, score)
            scored.append(ranking.score(dataset, scores, np.isfinite(scores), fold))
    return scored


def by_network(
    model: Model, dataset: Dataset, settings: TrainingParameters, families: Mapping[str, str], threads: int,
    folds: int = FOLDS,
) -> LeftOut:  # fmt: skip
    """Efficiency on networks left out in turn, in ``folds`` parts of whole families, by small models.

    ``families``: the family of each network; a network that it does not name is a family of its own.
    """
    few = fit.small(settings)
    samples = fit.samples_of(dataset, model.features, few, Prior.of_formula(model.spec.formula), threads, every=True)
    pairs = samples.pairs
    layers = dataset.problems["layer_family"].to_numpy(object)
    family = np.array([families.get(name, name) for name in dataset.problems["network"]], object)
    tested = pairs.problem[dataset.held_out[pairs.problem]]
    names, sizes = np.unique(family[tested], return_counts=True)
    if len(names) < 2:
        raise UserError(
            f"{dataset.operation}: to leave a network out takes two; take leave_network_out out of validation.studies"
        )
    folds = min(folds, len(names))
    assigned = cross_validation.assign_folds(names.tolist(), sizes.tolist(), folds, settings.seed)
    of_family = dict(zip(names, assigned, strict=True))
    # A network on whose layers nothing ran has no fold.
    of_problem = np.where(dataset.held_out, [of_family.get(name, -1) for name in family], -1)
    achieved = np.zeros(len(layers))
    with Progress("leave networks out", folds * few.n_estimators, "trees") as progress:
        for fold in range(folds):
            held_out = of_problem == fold
            used = ~held_out & ~np.isin(layers, layers[held_out])
            booster = fit.grow(samples, samples.learn & used[pairs.problem], few, few.n_estimators, threads, progress)
            at = np.flatnonzero(held_out[pairs.problem])
            picked = at[cross_validation.picks(pairs.problem[at], fit.scores_of(booster, samples, at, threads))]
            achieved[pairs.problem[picked]] = pairs.efficiency[picked]
    values = achieved[np.unique(tested)]
    return LeftOut(folds=folds, network_families=len(names), n_problems=len(values), **ranking.learnt(values))
