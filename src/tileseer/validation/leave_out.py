"""Leave a network out: how well a model does on networks when it has trained on the others.

Validation proper trains on generated problems alone. Here the layers of the other networks join them. Networks of one
family (ResNet-50 and ResNet-101) are left out together, and so is every training problem that shares a layer family
with what is tested, in whatever network it stands.
"""

from collections.abc import Mapping

import numpy as np

from tileseer.core.errors import UserError
from tileseer.dataset.measurements import Measurements
from tileseer.gpu.hardware import Hardware
from tileseer.model import cross_validation, regression, rows, trainer
from tileseer.settings.model import TrainingParameters
from tileseer.validation import ranking
from tileseer.validation.schema import LeftOut

FOLDS = 5
"""Parts in which network families are left out in turn, while the others join the training problems."""


def by_network(
    measurements: Measurements, hardware: Hardware, settings: TrainingParameters, folds: int, threads: int,
    families: Mapping[str, str] | None = None,
) -> LeftOut:  # fmt: skip
    """Efficiency on networks left out in turn, in ``folds`` parts of whole families.

    ``families``: the family of each network; a network that it does not name is a family of its own.
    Models are those of cross-validation: ``cv_estimators`` trees on ``cv_rows_per_problem`` rows of a problem.
    """
    few = settings.model_copy(
        update={"rows_per_problem": settings.cv_rows_per_problem, "top_rows": settings.cv_rows_per_problem // 2}
    )
    problems = measurements.problems
    every = rows.of_problems(measurements, few, np.ones(len(problems), bool))
    data = trainer.table(measurements, every, hardware, few, threads)
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
    for number in range(folds):
        test = fold_of_problem == number
        used = ~test & ~np.isin(layers, layers[test])
        learnt = np.flatnonzero(data.rows.learn & used[data.rows.problem])
        booster = regression.fit(data, learnt, few, few.cv_estimators, threads)
        at = np.flatnonzero(test[data.rows.problem])
        picked = at[cross_validation.picks(data.rows.problem[at], regression.predict(booster, data, at, threads))]
        achieved[data.rows.problem[picked]] = data.rows.efficiency[picked]
    values = achieved[np.unique(data.rows.problem[tested])]
    return LeftOut(folds=folds, network_families=len(names), n_problems=len(values), **ranking.learnt(values))
