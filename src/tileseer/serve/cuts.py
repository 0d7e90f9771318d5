"""Where candidates leave the running: what a selector runs is all trees of the model, but not for every candidate.

At a *cut*, after a few trees, candidates leave that are too far below the best sum; the rest goes through all trees, so
the score of a pick is the model's own.

Trees of a boosted model matter less and less, so a few of them tell which candidates cannot win. What the others can
still change is seen on the training problems: the spread of what is missing from a sum, over the near-best candidates
of a problem. The margin of a cut is ``MARGIN_IN_SPREADS`` of them.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tileseer.learn import trees
from tileseer.learn.model import PAIRS_AT_A_TIME, Model
from tileseer.serve.selector import first_of
from tileseer.serve.serving_files import Cut

TREES_AT_CUTS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
NEAR_BEST_SCORE = 0.15
"""Distance below the best final score up to which candidates count for the spread."""
MARGIN_IN_SPREADS = 10
"""Margin of a cut in spreads. On the unseen layers of a simulated gfx950 6 lose 0.03 to 0.11 points of the mean, 10 at
most 0.02, for 1.3 to 1.5 times the walks; 16 change nothing."""


def calibrated_cuts(model: Model, problems: pd.DataFrame, scores: np.ndarray, threads: int) -> Sequence[Cut]:
    """Return where candidates leave the running of a model.

    ``problems`` are P training problems, ``scores`` [P, Q] the model's, -inf where a candidate cannot run.
    """
    problem, candidate = np.nonzero(scores >= scores.max(axis=1, keepdims=True) - NEAR_BEST_SCORE)
    final = scores[problem, candidate]
    ends = [count for count in TREES_AT_CUTS if count < model.tree_count]
    missing = np.empty((len(ends), len(problem)))
    pairs = model.pairs(problems)
    for start in range(0, len(problem), PAIRS_AT_A_TIME):
        part = slice(start, start + PAIRS_AT_A_TIME)
        (matrix, total), done = pairs(problem[part], candidate[part]), 0
        for number, end in enumerate(ends):
            total = total + model.sum_trees(matrix, done, end, threads)
            missing[number, part], done = final[part] - total, end
    return [
        Cut(trees=end, margin=trees.rounded(MARGIN_IN_SPREADS * _spread(problem, values)))
        for end, values in zip(ends, missing, strict=True)
    ]


def _spread(problem: np.ndarray, missing: np.ndarray) -> float:
    """Return the root mean square of what is missing from sums less its problem's mean; ``problem`` is sorted."""
    number = np.cumsum(first_of(problem)) - 1
    mean = np.bincount(number, missing) / np.bincount(number)
    return float(np.sqrt(np.mean((missing - mean[number]) ** 2)))
