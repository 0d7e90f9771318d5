"""Who leaves the cascade when: found on the training problems, so that a pick costs what it may cost.

Trees of a boosted model matter less and less, so a few of them tell who cannot win. What the others can still change is
seen on the training problems: the spread of what is missing from a sum, over the near-best candidates of a problem. A
stage's margin is so many spreads, as many as the allowed number of walks down a tree leaves room for.
"""

from collections.abc import Sequence

import numpy as np

from tileseer.model import trees
from tileseer.serving.cascade import Cascade, best_of
from tileseer.serving.picker import first_of
from tileseer.serving.schema import Stage

TREES = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Trees after which candidates leave."""
FINALIST = 0.01
"""Who is within this of the best predicted ln(efficiency) of a training problem is a finalist."""
NEAR = 0.15
"""Distance below the best final score up to which candidates count for the spread."""
SPREADS = (2.0, 6.0)
"""The least and the largest margin: less would lose more than it saves, more would change no pick."""
BLOCK = 1 << 15
"""Pairs predicted at a time."""


def finalists(scores: np.ndarray) -> np.ndarray:
    """The candidates near the best of some problem, bool [Q]; ``scores`` [P, Q] are -inf where one cannot run."""
    best = scores.max(axis=1, keepdims=True)
    return np.asarray((np.isfinite(scores) & (scores >= best - FINALIST)).any(axis=0))


def calibrated(cascade: Cascade, dims: np.ndarray, asked: np.ndarray, walks: float, threads: int) -> tuple[Stage, ...]:
    """The stages of a cascade, of whose trees the candidates of a problem walk ``walks`` on the mean.

    ``dims`` [P, 19] are training problems, ``asked`` (bool [P, Q]) the candidates that the cascade asks of them.
    """
    problem, candidate = np.nonzero(asked)
    ends = [*(count for count in TREES if count < cascade.model.booster.num_trees()), cascade.model.booster.num_trees()]
    sums = np.empty((len(ends), len(problem)))
    for start in range(0, len(problem), BLOCK):
        part = slice(start, start + BLOCK)
        matrix, done = cascade.features(dims, problem[part], candidate[part]), 0
        total = cascade.start(dims, problem[part], candidate[part])
        for number, end in enumerate(ends):
            total = sums[number, part] = total + cascade.trees(matrix, done, end, threads)
            done = end
    spreads = [_spread(problem, sums[-1], partial) for partial in sums[:-1]]
    low, high = SPREADS
    for _ in range(12):
        middle = (low + high) / 2
        enough = _walks(problem, sums, ends, [middle * spread for spread in spreads]) <= walks
        low, high = (middle, high) if enough else (low, middle)
    return tuple(
        Stage(trees=end, margin=trees.rounded(low * spread))
        for end, spread in zip(ends[:-1], spreads, strict=True)
    )  # fmt: skip


def _spread(problem: np.ndarray, final: np.ndarray, partial: np.ndarray) -> float:
    """Root mean square of what is missing from ``partial``, less its mean in the problem, over near-best candidates."""
    near = final >= best_of(problem, final) - NEAR
    missing, number = (final - partial)[near], np.cumsum(first_of(problem[near])) - 1
    mean = np.bincount(number, missing) / np.bincount(number)
    return float(np.sqrt(np.mean((missing - mean[number]) ** 2)))


def _walks(problem: np.ndarray, sums: np.ndarray, ends: Sequence[int], margins: Sequence[float]) -> float:
    """Trees that the candidates of a problem walk together, on the mean."""
    problems = first_of(problem).sum()
    total, done = 0, 0
    for number, end in enumerate(ends):
        total += len(problem) * (end - done)
        if number < len(margins):
            stays = sums[number] >= best_of(problem, sums[number]) - margins[number]
            problem, sums = problem[stays], sums[:, stays]
        done = end
    return float(total / problems)
