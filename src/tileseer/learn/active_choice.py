"""Active measuring: the choice of training pairs that are worth the device's time.

Most of the first half of the budget goes to the candidates that the device's formula finds fastest, in pairs, for one
candidate of a problem teaches no difference. The rest of that half is a draw, which shows where the formula is wrong.
Then rounds follow: a model of what was measured so far says how near the best of their problem the candidates are, and
the nearest are measured next. Without a formula, as on the simulated device, which is the formula, a small draw starts
it, and rounds give each problem an equal share. It ends when the budget is spent or when the picks stop changing.

Every choice is a function of the pairs, the settings and the times of earlier rounds. So a run that was interrupted
and finds those times in the journal chooses the same pairs again.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tileseer.config.model import TrainingParameters
from tileseer.core import draws
from tileseer.costmodel.coefficients import Coefficients
from tileseer.costmodel.formula import Formula, FormulaPrior
from tileseer.dataset.dataset import OK, Dataset
from tileseer.gpus.hardware import Hardware
from tileseer.kernels.registry import family_of_arch
from tileseer.learn import cross_validation, fit
from tileseer.learn.features.features import Features
from tileseer.learn.fit import Recipe, Samples

UNMEASURED = -1
AS_GOOD = 0.02
"""Logarithm of a ratio of times below which two candidates are as good as each other."""
TOGETHER = 2
"""Candidates of a problem that the formula's order is measured by at a time."""
DRAWN, LED = 0.1, 0.4
"""Shares of the budget that a draw and the formula spend in the first round."""
MODEL = TrainingParameters(rows_per_problem=0, num_leaves=31, n_estimators=150)
"""Of a round's model; it is thrown away after the round."""


@dataclass(frozen=True)
class ActivePlan:
    """How many pairs are measured, and in how many rounds."""

    budget: float
    """Largest share of the pool's pairs to measure."""
    first: float = 0.02
    """Share that is drawn first without a formula: what a draw measures is mostly slow, so it is small."""
    rounds: int = 4
    """Rounds, the first included."""
    stable: float = 0.02
    """Measuring ends early when the picks of no more than this share of the problems changed in a round."""
    seed: int = 1
    """Seed of the first draw and of the rounds' models."""


@dataclass(frozen=True)
class Round:
    """One round: which pairs it chose, and whether the model's picks still changed with what they taught."""

    pairs: np.ndarray
    """Rows of the pool, rising."""
    picks_changed: float | None
    """Share of problems whose pick of a round before is now predicted to be slower than the new one by more than
    ``AS_GOOD``; None in the first two rounds, which have nothing to compare with."""


Measure = Callable[[np.ndarray], np.ndarray]
"""From rows of the pool to their TFLOPS, NaN where a pair failed."""


def choose_rounds(
    pool: Dataset, hardware: Hardware, settings: ActivePlan, measure: Measure, coefficients: Coefficients | None = None
) -> list[Round]:
    """Measure in rounds and return them; the last has the model's verdict on the pairs of the one before.

    With ``coefficients`` the device's formula leads.
    """
    tflops = np.full(len(pool.problem), np.nan)
    round_of = np.full(len(pool.problem), UNMEASURED)
    features = Features.of(family_of_arch(hardware.arch).features, hardware)
    matrix = features.matrix(pool.problems, pool.candidates, pool.problem, pool.candidate)
    budget = int(settings.budget * len(pool.problem))
    start = None
    if coefficients is None:
        chosen = design(pool, min(settings.first / settings.budget, 1.0) * budget, settings.seed)
    else:
        whole = FormulaPrior(weight=1.0, coefficients=coefficients)
        start = Formula(pool.problems, pool.candidates, hardware, whole).score(pool.problem, pool.candidate)
        drawn = design(pool, DRAWN * budget, settings.seed)
        round_of[drawn] = 0
        chosen = np.sort(np.append(drawn, led(pool, start, round_of >= 0, int(LED * budget), settings.seed)))
    rounds: list[Round] = []
    changed, picks = None, None
    for number in range(settings.rounds):
        rounds.append(Round(chosen, changed))
        round_of[chosen] = number
        tflops[chosen] = measure(chosen)
        left = budget - int(np.count_nonzero(round_of >= 0))
        if number + 1 == settings.rounds or left <= 0:
            break
        score = _scores(pool, matrix, features, tflops, settings.seed, start)
        failed = np.isnan(tflops) & (round_of >= 0)
        before, picks = picks, cross_validation.picks(pool.problem, np.where(failed, -np.inf, score))
        if before is not None:
            changed = float(np.mean(score[picks] - score[before] > AS_GOOD))
            # A model of too few rows tells no pairs apart: that its picks stay says nothing.
            if changed <= settings.stable and np.ptp(score) > 0:
                break
        pairs = left // (settings.rounds - number - 1)
        if start is None:
            unmeasured = np.flatnonzero(round_of == UNMEASURED)
            chosen = unmeasured[_first_of_each(pool.problem[unmeasured], -score[unmeasured], pairs)]
        else:
            chosen = _promising(pool, score, round_of >= 0, pairs, settings.seed)
        if not len(chosen):
            break
    return rounds


def design(pool: Dataset, pairs: float, seed: int) -> np.ndarray:
    """The first pairs, rising: a share of each problem's, drawn by the names of problem and candidate.

    Every problem has some, or the model knows nothing of its level; the draw spreads them over the candidates.
    """
    return _first_of_each(pool.problem, _draw(pool, seed), pairs)


def led(pool: Dataset, score: np.ndarray, measured: np.ndarray, pairs: int, seed: int) -> np.ndarray:
    """The next pairs, rising: those with the highest scores of each problem, ``TOGETHER`` at a time.

    Problems with fewer ``measured`` pairs (bool [n]) come first, then in an order that is drawn by their names: of few
    pairs some problems have ``TOGETHER``, others none.
    """
    order = np.lexsort((-score, measured == 0, pool.problem))
    begin = np.flatnonzero(np.diff(pool.problem[order], prepend=-1))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - np.repeat(begin, np.diff(begin, append=len(order)))
    turn = draws.of_names(f"{seed},{name}" for name in pool.problems["problem_key"])[pool.problem]
    by_turn = np.lexsort((place, turn, place // TOGETHER))
    return np.sort(by_turn[~measured[by_turn]][:pairs])


def _promising(pool: Dataset, score: np.ndarray, measured: np.ndarray, pairs: int, seed: int) -> np.ndarray:
    """The next pairs, rising: those of all problems that a model sees nearest to their problem's best.

    A problem has as many as it has candidates of like speed: one with a clear winner needs few. Equal ones are drawn.
    """
    best = np.full(len(pool.problems), -np.inf)
    np.maximum.at(best, pool.problem, score)
    order = np.lexsort((_draw(pool, seed), best[pool.problem] - score))
    return np.sort(order[~measured[order]][:pairs])


def _first_of_each(problem: np.ndarray, rank: np.ndarray, pairs: float) -> np.ndarray:
    """The rows with the lowest rank of each problem, rising; about the same share of each, ``pairs`` at most.

    Every problem has one row at least, as long as there are so many.
    """
    order = np.lexsort((rank, problem))
    begin = np.flatnonzero(np.diff(problem[order], prepend=-1))
    count = np.diff(np.append(begin, len(order)))
    place = np.arange(len(order)) - np.repeat(begin, count)
    share = np.repeat(np.maximum(np.rint(count * pairs / len(order)), 1), count)
    kept_places = np.flatnonzero(place < share)
    # Rounding up may have exceeded the number: first to go is what stands last within its problem.
    kept = kept_places[np.argsort(place[kept_places], kind="stable")][: int(pairs)]
    return np.sort(order[kept])


def _draw(pool: Dataset, seed: int) -> np.ndarray:
    """A number of each pair that looks drawn and depends on the names of problem and candidate only."""
    tables = (pool.problems["problem_key"], pool.candidates["candidate"])
    problem, candidate = (draws.of_names(f"{seed},{name}" for name in table) for table in tables)
    return draws.of_pairs(problem[pool.problem], candidate[pool.candidate])


def _scores(
    pool: Dataset, matrix: np.ndarray, features: Features, tflops: np.ndarray, seed: int, start: np.ndarray | None
) -> np.ndarray:
    """How fast a model of the measured pairs predicts all to be within their problem, float64 [n].

    With scores ``start`` of a formula it learns what they miss. As long as no pair has a time, since a small pool's
    first share is none or all of it failed, it is a draw.
    """
    measured = ~np.isnan(tflops)
    if not measured.any():
        return _draw(pool, seed).astype(float)
    count = int(measured.sum())
    pairs = replace(pool.only(measured), status=np.full(count, OK, np.uint8), tflops=tflops[measured])
    recipe = Recipe(features, MODEL.model_copy(update={"seed": seed}))
    learn = np.ones(count, bool)
    scores = np.zeros(len(tflops)) if start is None else fit.slope(pairs, learn, start[measured]) * start
    binned = fit.binned_rows(matrix[measured], recipe)
    samples = Samples(recipe, pairs, matrix[measured], learn, binned, None if start is None else scores[measured])
    booster = fit.grow(samples, learn, recipe.settings)
    return scores + np.asarray(booster.predict(matrix, num_threads=1))
