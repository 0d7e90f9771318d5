"""Learning curves: the picks of models of a part of the measurements.

The parts are shares of the training problems, the first rounds of active measuring, or, where a model starts from a
prior, shares of the training pairs. A curve has a point a part, each with the efficiency on validation problems.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.benchmark import chosen_pairs
from tileseer.conv.problem import from_frame
from tileseer.core import draws
from tileseer.core.errors import UserError
from tileseer.dataset import efficiency
from tileseer.dataset.measurements import Measurements
from tileseer.families.coefficients import Coefficients
from tileseer.gpu.hardware import Hardware
from tileseer.model import cross_validation, prior, regression, rows, trainer
from tileseer.model.model import Model, read_out_of_fold
from tileseer.model.regression import Table
from tileseer.model.schema import Origin
from tileseer.settings.model import TrainingParameters
from tileseer.validation import leave_out, ranking
from tileseer.validation.schema import ActiveMeasuring, ActiveRound, LearningShare, Learnt, Transfer, TransferShare

SHARES = (0.1, 0.3, 1.0)
"""Shares of the training problems whose models the learning curve shows."""
PRIOR_SHARES = (0.0, 0.01, 0.05, 0.15)
"""Shares of the training pairs, drawn by the names of problem and candidate."""


def of_rounds(
    measurements: Measurements, chosen: pa.Table, hardware: Hardware, settings: TrainingParameters, threads: int,
    formula: Coefficients | None = None,
) -> ActiveMeasuring:  # fmt: skip
    """One point a round of active measuring: a model of the pairs so far.

    The models have ``cv_estimators`` trees, so their figures are below that of the published one.
    """
    record = chosen_pairs.record(chosen)
    round_of_row = _rounds(measurements, chosen)
    total = record.supported_training_pairs
    rounds, pairs = [], 0
    for number, entry in enumerate(record.rounds):
        pairs += entry.pairs
        known = (round_of_row >= 0) & (round_of_row <= number)
        model = trainer.small(measurements.only(known), hardware, settings, threads, formula)
        changed = entry.picks_changed
        rounds.append(
            ActiveRound(
                round=number + 1,
                pairs=pairs,
                share=efficiency.percent(pairs / total),
                picks_changed=None if changed is None else efficiency.percent(changed),
                **_judged(measurements, model, threads),
            )
        )
    return ActiveMeasuring(supported_training_pairs=total, rounds=rounds)


def of_shares(
    measurements: Measurements, shares: Sequence[float], hardware: Hardware, settings: TrainingParameters, threads: int,
    formula: Coefficients | None = None,
) -> list[LearningShare]:  # fmt: skip
    """One point a share of the training problems.

    Layer families are drawn by their names, so a larger share holds a smaller one; a layer's batch sizes stay together.
    A share of fewer families than cross-validation has folds is left out. The models have ``cv_estimators`` trees, as
    those of ``of_rounds``.
    """
    problems = measurements.problems
    train = (problems["split"] == "train").to_numpy()
    drawn = draws.shares(draws.of_names(problems["layer_family"].astype(str)))
    points = []
    for share in sorted(shares):
        known = train & (drawn < share)
        rows = known[measurements.problem]
        ran = np.unique(measurements.problem[rows & (measurements.status == efficiency.OK)])
        if problems["layer_family"].iloc[ran].nunique() < settings.folds:
            continue
        model = trainer.small(measurements.only(rows), hardware, settings, threads, formula)
        points.append(
            LearningShare(
                share=efficiency.percent(share),
                problems=int(known.sum()),
                pairs=int(rows.sum()),
                **_judged(measurements, model, threads),
            )
        )
    return points


def of_prior(measurements: Measurements, hardware: Hardware, settings: TrainingParameters, threads: int) -> Transfer:
    """One point a share of the training pairs: a model that starts from the prior, and one without it.

    All models are trained as the published one is. A share whose rows are of
    fewer groups than cross-validation has folds is left out.
    """
    folder = settings.prior_folder
    assert folder is not None
    without = settings.model_copy(update={"prior": "none"})
    train_problems = (measurements.problems["split"] == "train").to_numpy()
    train = train_problems[measurements.problem]
    problem = draws.of_names(measurements.problems["problem_key"])[measurements.problem]
    candidate = draws.of_names(measurements.candidates["candidate"])[measurements.candidate]
    drawn = draws.shares(draws.of_pairs(problem, candidate))
    known = prior.load(folder, settings.features, measurements.operation.rpartition("_")[0])

    def learnt(few: Measurements, settings: TrainingParameters) -> Learnt:
        return Learnt(**_judged(measurements, trainer.train(few, hardware, settings, threads).model, threads))

    points = []
    for share in PRIOR_SHARES:
        keep = ~train | (drawn < share)
        few = measurements.only(keep)
        ran = few.problem[train[keep] & (few.status == efficiency.OK)]
        if share and few.problems[settings.cv_group].iloc[ran].nunique() < settings.folds:
            continue
        if share == 0:
            alone = _prior_alone(measurements, known, hardware)
            models = {"with_prior": Learnt(**_judged(measurements, alone, threads))}
        else:
            models = {"with_prior": learnt(few, settings), "without_prior": learnt(few, without)}
        pairs = int(np.count_nonzero(keep & train))
        points.append(TransferShare(share=efficiency.percent(share), pairs=pairs, **models))
    judges = measurements.problems[~train_problems & (efficiency.problem_best(measurements) > 0)]
    seen = int(_seen(judges, known, folder).sum())
    return Transfer(prior=Origin.of(known.spec), n_problems=len(judges), seen_by_prior=seen, shares=points)


def of_prior_by_layer(
    measurements: Measurements, hardware: Hardware, settings: TrainingParameters, threads: int
) -> Transfer | None:
    """``of_prior`` where no problems were set aside: layers are left out in turn, those new to the prior judge.

    Shares are of the other layers' problems: a problem of which one pair is known teaches nothing without a prior.
    None where the prior was trained on every layer.
    """
    folder = settings.prior_folder
    assert folder is not None
    problems = measurements.problems
    known = prior.load(folder, settings.features, measurements.operation.rpartition("_")[0])
    used = rows.of_problems(measurements, settings)
    judged = ~_seen(problems, known, folder)[used.problem]
    if not judged.any():
        return None
    layers, names = problems["layer_family"].to_numpy(), problems["problem_key"]
    folds = cross_validation.folds_of(used.problem, layers, leave_out.FOLDS, settings.seed).of_row
    drawn = draws.shares(draws.of_names(names))[used.problem]
    starts = {"with_prior": known, "without_prior": None}
    data = {way: trainer.table(measurements, used, hardware, settings, threads, one) for way, one in starts.items()}
    at = np.flatnonzero(judged)

    def learnt(score: np.ndarray) -> Learnt:
        picked = at[cross_validation.picks(used.problem[at], score[at])]
        return Learnt(**ranking.learnt(used.efficiency[picked]))

    def left_out(of: Table, few: np.ndarray) -> np.ndarray:
        score = np.empty(len(few))
        for fold in range(leave_out.FOLDS):
            held_out = np.flatnonzero(folds == fold)
            booster = regression.fit(
                of, np.flatnonzero(few & (folds != fold)), settings, settings.n_estimators, threads
            )
            score[held_out] = regression.predict(booster, of, held_out, threads)
        return score

    alone = np.asarray(known.booster.predict(data["with_prior"].matrix, num_threads=threads))
    points = [TransferShare(share=0.0, pairs=0, with_prior=learnt(alone))]
    for share in PRIOR_SHARES:
        few = used.learn & (drawn < share)
        if all((few & (folds != fold)).any() for fold in range(leave_out.FOLDS)):
            models = {way: learnt(left_out(of, few)) for way, of in data.items()}
            points.append(TransferShare(share=efficiency.percent(share), pairs=int(few.sum()), **models))
    return Transfer(
        prior=Origin.of(known.spec), n_problems=len(np.unique(used.problem[at])), seen_by_prior=0, shares=points
    )


def _rounds(measurements: Measurements, chosen: pa.Table) -> np.ndarray:
    """The round in which each row was chosen, int [n]; -1 for rows that were not."""
    problems, candidates = measurements.problems, measurements.candidates
    rows = pd.DataFrame(
        {
            "kernel_id": candidates["kernel_id"].to_numpy(str)[measurements.candidate],
            "split_k": candidates["split_k"].to_numpy()[measurements.candidate],
            "problem_key": problems["problem_key"].to_numpy(str)[measurements.problem],
        }
    )
    return rows.merge(chosen.to_pandas(), "left")["round"].fillna(-1).to_numpy(int)


def _seen(problems: pd.DataFrame, known: Model, folder: Path) -> np.ndarray:
    """Which problems are layers, at any batch size, that the prior was trained on in its own data type, bool [P].

    Such a problem is not unseen to what starts from the prior.
    """
    families = set(read_out_of_fold(folder)["layer_family"])
    dtype = known.spec.operation.rpartition("_")[2]
    return np.array([one.layer_family in families for one in from_frame(problems.assign(dtype=dtype))], bool)


def _prior_alone(measurements: Measurements, known: Model, hardware: Hardware) -> Model:
    candidates = measurements.candidates[prior.knows(known, measurements.candidates)]
    if candidates.empty:
        raise UserError(f"{measurements.operation}: the prior knows none of its candidates; take one of the same pool")
    return prior.on(known, candidates, hardware)


def _judged(measurements: Measurements, model: Model, threads: int) -> dict[str, Any]:
    """Fields of ``schema.Learnt``: efficiency of the picks of a model on the validation problems."""
    return ranking.learnt(ranking.score(measurements, *ranking.rank_pool(measurements, model, threads)).picked)
