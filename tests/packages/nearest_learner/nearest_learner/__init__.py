"""A learner: a kernel is as good as it was on the measured problem that is nearest.

Sizes are compared by their logarithms, as ``tileseer.learn.evidence`` does it: in whole steps, so that C++ agrees.
"""

from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.core.atomic import write_bytes
from tileseer.core.errors import UserError
from tileseer.learn.evidence import places_of
from tileseer.learn.formula import UNIT, whole_units
from tileseer.learn.learner import CppPart, Learner, Scorer
from tileseer.problems.problem import columns_of_frame

LEAST_EFFICIENCY = 0.05


class NearestScorer(Scorer):
    """The logarithms of the efficiencies that were measured."""

    FILES = ("places.npy", "scores.npy", "names.npy")

    def __init__(self, places, scores, names):
        """Take m problems (places [m, axes]) and Q candidates (names [Q]) with their scores, [m, Q]."""
        self.places, self.scores, self.names = places, scores, names

    def score(self, problems, candidates, offered=None):
        """Return the scores of the nearest problem, [P, Q]."""
        away = places_of(columns_of_frame(problems))[:, None] - self.places
        scores = self._of(candidates)[(away**2).sum(axis=2).argmin(axis=1)]
        return scores if offered is None else np.where(offered, scores, -np.inf)

    def _of(self, candidates):
        """Return the scores of candidates, [m, Q]; the worst of one that was never measured."""
        column = pd.Index(self.names).get_indexer(candidates["candidate"])
        return np.where(column >= 0, self.scores[:, column], whole_units(np.log(LEAST_EFFICIENCY)))

    def save(self, folder):
        """Write three arrays."""
        for name, values in zip(self.FILES, (self.places, self.scores, self.names), strict=True):
            content = BytesIO()
            np.save(content, values, allow_pickle=False)
            write_bytes(folder / name, content.getvalue())

    @classmethod
    def read(cls, folder):
        """Read three arrays; nothing in them is code."""
        try:
            return cls(*(np.load(folder / name, allow_pickle=False) for name in cls.FILES))
        except (OSError, ValueError) as error:
            raise UserError(f"{folder}: the arrays of the model cannot be read ({error})") from error

    def cpp(self, operation, candidates, problem):
        """Return the same arrays for ``nearest.hpp.j2``."""
        scores = np.rint(self._of(candidates) / UNIT).astype(int).tolist()
        return CppPart(Path(__file__).with_name("nearest.hpp.j2"), {"places": self.places.tolist(), "scores": scores})


class ScorerInPython(NearestScorer):
    """The same without a header."""

    cpp = Scorer.cpp


class Nearest(Learner):
    """Keeps what was measured."""

    scorer = NearestScorer

    def prepare(self, dataset):
        """Take the dataset as it is."""
        return dataset

    def fit(self, prepared, rows):
        """Return the scorer of some rows, bool [n]."""
        taught = prepared.only(rows)
        problems = np.unique(taught.problem)
        places = places_of(columns_of_frame(taught.problems.iloc[problems]))
        scores = whole_units(np.log(np.maximum(taught.grid(problems), LEAST_EFFICIENCY)))
        return self.scorer(places, scores, taught.candidates["candidate"].to_numpy(str))


class NearestInPython(Nearest):
    """The same without a header."""

    scorer = ScorerInPython
