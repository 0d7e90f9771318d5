"""Leave layers out in turn: validation of a dataset in which no problems were set aside.

The published model trains on all layers; models of the same settings that have not seen a layer are judged on it.
"""

import math

import numpy as np

from tileseer.core.progress import Progress
from tileseer.costmodel.coefficients import Coefficients
from tileseer.dataset.dataset import Dataset
from tileseer.learn import cross_validation, efficiency, ranking
from tileseer.learn.fit import Recipe, Samples, samples_of
from tileseer.learn.model_schema import Summary
from tileseer.learn.ranking import Scored
from tileseer.learn.validation import Context, report_of
from tileseer.learn.validation_report import LayersLeftOut, Validation

FOLDS = 5
"""Parts in which layers are left out in turn, while the others train."""
REPEATS, ENOUGH = 5, 5000
"""Most deals of the layers to folds; no further one once that many picks are judged."""
LAYERS = (
    "no problems were set aside: layers, at all their batch sizes, are left out in turn; the published model has "
    "learnt from all of them"
)
STARTED = "; the model that training starts from may have learnt from these layers on its own device"


def validate_by_layer(dataset: Dataset, recipe: Recipe, simulated: Coefficients | None) -> Validation:
    """Validation report of models that have not seen a problem's layer; its figures are of the first deal."""
    deals = by_layer(dataset, samples_of(dataset, recipe))
    report = report_of(deals[0], recipe.features.gpu, Context(simulated))
    repeats = [Summary.of(scored.picked) for scored in deals]
    mean = {name: round(float(np.mean([getattr(s, name) for s in repeats])), 4) for name in Summary.model_fields}
    layers = dataset.problems["layer_family"].to_numpy()[deals[0].fold != ranking.NEVER]
    figures = LayersLeftOut(
        meaning=LAYERS + (STARTED if recipe.settings.prior_folder else ""),
        folds=FOLDS,
        layers=len(np.unique(layers)),
        n_problems=len(deals[0].picked),
        repeats=repeats,
        efficiency=Summary(**mean),
        interval=efficiency.intervals(np.stack([scored.picked for scored in deals], axis=1)),
    )
    return report.model_copy(update={"leave_layer_out": figures})


def by_layer(dataset: Dataset, samples: Samples) -> list[Scored]:
    """The picks of models that have not seen a problem's layer, of each deal of the layers to folds."""
    problem, settings = samples.pairs.problem, samples.recipe.settings
    deals = min(REPEATS, math.ceil(ENOUGH / max(len(np.unique(problem)), 1)))
    scored = []
    with Progress("leave layers out", deals * FOLDS * settings.n_estimators, "trees") as progress:
        for repeat in range(deals):
            of_fold = cross_validation.deal(samples, "layer_family", FOLDS, settings.seed + repeat)
            score = cross_validation.out_of_fold(samples, of_fold, settings.whole, progress)
            fold = np.full(len(dataset.problems), ranking.NEVER)
            fold[problem] = of_fold
            scores = cross_validation.spread(samples, score)
            scored.append(ranking.score_ranking(dataset, scores, np.isfinite(scores), fold))
    return scored
