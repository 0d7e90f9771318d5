"""Leave a network out, or a layer: how well a model does on them when it has trained on the others.

Of networks, validation proper trains on generated problems alone. Here the layers of the other networks join them.
Networks of one family (ResNet-50 and ResNet-101) are left out together, and so is every training problem that shares
a layer family with what is tested, in whatever network it stands. Where no problems were set aside, leaving layers
out is the validation itself: the published model trains on all of them, models of the same settings are judged.
"""

import math
from collections.abc import Mapping

import numpy as np

from tileseer.core.errors import UserError
from tileseer.core.progress import Progress
from tileseer.dataset import bootstrap
from tileseer.dataset.measurements import Measurements
from tileseer.gpu.hardware import Hardware
from tileseer.model import cross_validation, regression, rows, trainer
from tileseer.model.model import Model
from tileseer.model.schema import FormulaStart, Summary
from tileseer.settings.model import TrainingParameters
from tileseer.validation import ranking
from tileseer.validation.schema import LayersLeftOut, LeftOut

FOLDS = 5
"""Parts in which network families or layers are left out in turn, while the others join the training problems."""
REPEATS, ENOUGH = 5, 5000
"""Most deals of the layers to folds; no further one once that many picks are judged."""
LAYERS = (
    "no problems were set aside: layers, at all their batch sizes, are left out in turn; the published model has "
    "learnt from all of them"
)
STARTED = "; the model that training starts from may have learnt from these layers on its own device"


def by_layer(
    measurements: Measurements, model: Model, settings: TrainingParameters, threads: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, LayersLeftOut]:
    """Scores of models that have not seen a problem's layer, what they offer, the folds, and figures of all repeats.

    Scores (float64 [P, Q]), offers (bool) and folds (int [P]) are those of the first repeat, as ``ranking.score`` takes
    them. The models have the settings of ``model`` and as many trees.
    """
    used = rows.of_problems(measurements, settings)
    formula = model.spec.formula
    coefficients = None if formula is None else formula.coefficients
    start = trainer.start_of(measurements, used, model.hardware, settings, coefficients)
    data = trainer.table(measurements, used, model.hardware, settings, threads, start)
    problems, count = measurements.problems, len(measurements.candidates)
    layers, keys = problems["layer_family"].to_numpy(), problems["problem_key"].to_numpy()
    fold = np.full(len(problems), ranking.NEVER)
    scores = []
    deals = min(REPEATS, math.ceil(ENOUGH / max(len(np.unique(used.problem)), 1)))
    whole = settings.whole
    with Progress("leave layers out", deals * FOLDS * whole.cv_estimators, "trees") as progress:
        for repeat in range(deals):
            folds = cross_validation.folds_of(used.problem, layers, FOLDS, settings.seed + repeat)
            if not repeat:
                fold[used.problem] = folds.of_row
            found = np.full((len(problems), count), -np.inf)
            score = cross_validation.out_of_fold(data, folds, keys, whole, threads, progress)
            found[used.problem, used.candidate] = score
            scores.append(found)
    offered = np.isfinite(scores[0])
    picked = [ranking.score(measurements, found, offered, fold).picked for found in scores]
    repeats = [Summary.of(values) for values in picked]
    mean = {name: round(float(np.mean([getattr(s, name) for s in repeats])), 4) for name in Summary.model_fields}
    figures = LayersLeftOut(
        meaning=LAYERS + (STARTED if isinstance(start, Model) else ""),
        folds=FOLDS,
        layers=len(np.unique(layers[fold != ranking.NEVER])),
        n_problems=len(picked[0]),
        repeats=repeats,
        efficiency=Summary(**mean),
        interval=bootstrap.intervals(np.stack(picked, axis=1)),
    )
    return scores[0], offered, fold, figures


def by_network(
    measurements: Measurements, hardware: Hardware, settings: TrainingParameters, folds: int, threads: int,
    families: Mapping[str, str] | None = None, formula: FormulaStart | None = None,
) -> LeftOut:  # fmt: skip
    """Efficiency on networks left out in turn, in ``folds`` parts of whole families.

    ``families``: the family of each network; a network that it does not name is a family of its own.
    Models are those of cross-validation: ``cv_estimators`` trees on ``cv_rows_per_problem`` rows of a problem.
    """
    few = trainer.few_rows(settings)
    problems = measurements.problems
    every = rows.of_problems(measurements, few, np.ones(len(problems), bool))
    data = trainer.table(measurements, every, hardware, few, threads, formula)
    layers = problems["layer_family"].to_numpy(object)
    family = np.array([(families or {}).get(name, name) for name in problems["network"]], object)
    held_out = (problems["split"] == "validation").to_numpy()
    tested = np.flatnonzero(held_out[data.rows.problem])
    names, sizes = np.unique(family[data.rows.problem[tested]], return_counts=True)
    if len(names) < 2:
        raise UserError(
            f"{measurements.operation}: to leave a network out takes two; take leave_network_out out of "
            "validation.studies"
        )
    folds = min(folds, len(names))
    fold = dict(
        zip(names, cross_validation.assign_folds(names.tolist(), sizes.tolist(), folds, settings.seed), strict=True)
    )
    # A network on whose layers nothing ran has no fold.
    fold_of_problem = np.array([fold.get(name, -1) if out else -1 for name, out in zip(family, held_out, strict=True)])
    achieved = np.zeros(len(problems))
    with Progress("leave networks out", folds * few.cv_estimators, "trees") as progress:
        for number in range(folds):
            test = fold_of_problem == number
            used = ~test & ~np.isin(layers, layers[test])
            learnt = np.flatnonzero(data.rows.learn & used[data.rows.problem])
            booster = regression.fit(data, learnt, few, few.cv_estimators, threads, progress)
            at = np.flatnonzero(test[data.rows.problem])
            picked = at[cross_validation.picks(data.rows.problem[at], regression.predict(booster, data, at, threads))]
            achieved[data.rows.problem[picked]] = data.rows.efficiency[picked]
    values = achieved[np.unique(data.rows.problem[tested])]
    return LeftOut(folds=folds, network_families=len(names), n_problems=len(values), **ranking.learnt(values))
