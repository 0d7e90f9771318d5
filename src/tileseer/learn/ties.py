"""Ties: candidates that noise cannot tell from the best of their problem.

Two times are a tie if the logarithm of their ratio is within ``SIGMAS`` of its standard error (``relative_error``).
"""

import numpy as np

from tileseer.learn import efficiency
from tileseer.learn import validation_report as schema
from tileseer.learn.ranking import Scored

SIGMAS = 1.96
"""Of 100 pairs of equal kernels 95 tie."""


def with_best(achieved: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Candidates that tie with the best of their problem, the best itself included, bool [R, Q].

    ``achieved`` is the efficiency, float64 [R, Q], 0 where a candidate did not run; ``error`` the relative standard
    error of its time, NaN where it is unknown: then 0.
    """
    ran = achieved > 0
    error = np.where(np.isfinite(error), error, 0.0)
    best = achieved.argmax(axis=1)[:, None]
    behind = -np.log(np.where(ran, achieved / np.take_along_axis(achieved, best, axis=1), 1.0))
    return ran & (behind <= SIGMAS * np.hypot(error, np.take_along_axis(error, best, axis=1)))


def report_ties(tied: np.ndarray, picks: np.ndarray, between_runs: float | None) -> schema.Ties:
    """How many candidates tie, and how many ``picks`` (int [R], columns of ``tied``) do."""
    count = tied.sum(axis=1)
    noise = "the scatter of the samples within one run, which is too small for another run"
    if between_runs is not None:
        noise = f"that of the samples, but at least {100 * between_runs:.2f} % from run to run"
    return schema.Ties(
        meaning=f"times that differ by less than {SIGMAS} standard errors; noise: {noise}",
        between_runs=None if between_runs is None else efficiency.percent(between_runs),
        mean_candidates=round(float(count.mean()), 4),
        problems_with_several=efficiency.percent(np.mean(count > 1)),
        picks=efficiency.percent(np.take_along_axis(tied, picks[:, None], axis=1).mean()),
    )


def every_pick(scored: Scored, tied: np.ndarray) -> dict[str, schema.Pick]:
    """The pick of every scored problem by problem key, and its ties."""
    keys = scored.problems["problem_key"].tolist()
    names = scored.dataset.candidates["candidate"].to_numpy()[scored.picks].tolist()
    among = np.take_along_axis(tied, scored.picks[:, None], axis=1)[:, 0].tolist()
    rows = zip(keys, names, scored.picked, tied.sum(axis=1).tolist(), among, strict=True)
    return {
        key: schema.Pick(candidate=name, efficiency=efficiency.percent(value), ties=ties, tied=is_tied)
        for key, name, value, ties, is_tied in sorted(rows)
    }
