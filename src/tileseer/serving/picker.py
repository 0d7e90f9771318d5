"""Picks with the arrays of ``selector.npz``: the steps of the published C++ header in NumPy, with the same bits.

Neither LightGBM nor pandas is needed, nor what knows kernels: features and rules are programs (``serving.program``),
trees are tables (``serving.forest``).
"""

import io
import zipfile
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from tileseer.conv.problem import DIMS
from tileseer.core import atomic
from tileseer.core.errors import UserError
from tileseer.model.trees import UNIT
from tileseer.serving import picker_arrays
from tileseer.serving.forest import Forest, Trees
from tileseer.serving.picker_arrays import About
from tileseer.serving.program import Program, Value

ABOUT = "about"
"""Name of the array whose bytes are JSON: what is no array."""
DIMENSIONALITIES = (2, 3)
NO_CANDIDATE = -1
PARTS = (8, 64, 256)
"""Trees after which who is left goes on: first few trees of many candidates, then many of few."""
BLOCK = 1 << 16
"""Pairs ranked at a time: what a large batch costs in memory."""
Inputs = Mapping[str, Value]
_MISFITS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
"""What NumPy raises where numbers, types and places do not fit each other."""


@dataclass(frozen=True)
class _Pool:
    """The candidates of one dimensionality, or the first of them."""

    places: slice
    program: Program
    """Features, and the microseconds that scores start from."""
    rows: np.ndarray
    """Rows of the tables that belong to the features of candidates, int [features, candidates]."""

    def of_candidates(self, trees: Trees) -> np.ndarray:
        """What the features of the candidates leave over."""
        if trees not in self._known:
            self._known[trees] = trees.left_over(self.rows)
        return self._known[trees]

    @cached_property
    def _known(self) -> dict[Trees, np.ndarray]:
        return {}


class _Asked(NamedTuple):
    """Pairs of n problems and candidates, with what trees need of them."""

    problem: np.ndarray
    candidate: np.ndarray
    """Place in the pool."""
    start: np.ndarray
    single: np.ndarray
    """Rows of the tables that belong to the features of problems, int [features, problems]."""
    paired: np.ndarray
    """The same of pairs, int [features, pairs]."""


class Picker:
    """The candidates of one operation, and how to pick one of them."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        """``arrays`` are those of ``serving.packing``."""
        self._arrays = arrays
        self.about = about = About.model_validate_json(arrays[ABOUT].tobytes())
        """Where the model comes from, and what the arrays mean."""
        picker_arrays.check(arrays, about)
        self.candidates, self.kernels = about.candidates, about.kernels
        """Names, and those of the kernels, in the order of the places."""
        self.row = arrays["row"].astype(np.int64)
        """int [Q]: rows of ``candidates.parquet``."""
        self.split_k = arrays["split_k"]
        self._pruned = arrays["pruned"]
        self._weight = about.weight
        self._programs = {
            name: Program(inputs, _constants(arrays, name), steps, results)
            for name, (inputs, steps, results) in about.programs.items()
        }

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a ``selector.npz``; ``UserError`` if it is none."""
        try:
            picker = cls(picker_arrays.read(path))
            picker._try()
            return picker
        except FileNotFoundError as error:
            raise UserError(f"{path}: there is no such file; publish the models again") from error
        except (*_MISFITS, OSError, zipfile.BadZipFile) as error:
            why = str(error).splitlines()[:1] or [type(error).__name__]
            raise UserError(f"{path}: is not what a selection reads ({why[0]}); publish the models again") from error

    def _try(self) -> None:
        """Run the programs once, for a problem of each dimensionality: an error in them is not one of the problem."""
        ones = np.ones((1, len(DIMS)), np.int64)
        for position, ndim in enumerate(DIMENSIONALITIES):
            inputs, pool = _inputs(ones, ndim), self._pools[position][1]
            for holds in self._programs["rules"].run(inputs):
                np.broadcast_to(holds, self._arrays["always"].shape)
            values = pool.program.run(inputs)
            if len(values) != len(self.about.single) + len(self.about.paired) + (self._weight is not None):
                raise ValueError("the program of features has other results")
            size = len(range(*pool.places.indices(len(self.candidates))))
            for value in values:
                np.broadcast_to(value, size)
            for trees in self._forest if size else ():
                # One candidate: the rows of all are known to be rows of the tables.
                trees.left_over(pool.rows[:, :1])

    def save(self, path: Path) -> None:
        """Write the file that ``read`` reads, whole or not at all."""
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **self._arrays)
        atomic.write_bytes(path, content.getvalue(), sealed=True)

    def pick(
        self, dims: np.ndarray, *, use_known: bool = False, pruned_only: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row of the pick of each of n problems, its score, and whether it was measured; -1 and -inf where none runs.

        ``dims`` int64 [n, 19], columns ``DIMS``. Of equal scores the earlier candidate goes first.
        """
        place = np.full(len(dims), NO_CANDIDATE)
        score = np.full(len(dims), -np.inf)
        if use_known:
            found = self.known(dims)
            place = np.where((found >= 0) & (self._pruned[found] | (not pruned_only)), found, NO_CANDIDATE)
            score[place >= 0] = 0.0
        known = place >= 0
        deep = ndims(dims)
        for position, ndim in enumerate(DIMENSIONALITIES):
            wanted = np.flatnonzero(~known & (deep == ndim))
            size = max(1, self.about.begins[position + 1] - self.about.begins[position])
            step = max(1, BLOCK // size)
            for start in range(0, len(wanted), step):
                block = wanted[start : start + step]
                place[block], score[block] = self._best(dims[block], position, pruned_only)
        return np.where(place >= 0, self.row[place], NO_CANDIDATE), score, known

    def known(self, dims: np.ndarray) -> np.ndarray:
        """Place of the candidate that was fastest when exactly this problem was measured, or -1, [n]."""
        rows = np.ascontiguousarray(dims, np.int32)
        return np.array([self._measured.get(row.tobytes(), NO_CANDIDATE) for row in rows], np.int64)

    @cached_property
    def _measured(self) -> dict[bytes, int]:
        places = self._arrays["known_place"].tolist()
        return {row.tobytes(): place for row, place in zip(self._arrays["known_dims"], places, strict=True)}

    def ranked(self, dims: np.ndarray) -> list[dict[Hashable, Any]]:
        """The candidates that can run one problem (int64 [19]), best first; fields as ``Model.rank`` has columns."""
        position = DIMENSIONALITIES.index(int(ndims(dims[None])[0]))
        pool = self._pools[position][1]
        asked = self._asked(pool, dims[None], DIMENSIONALITIES[position], False)
        score = asked.start
        for trees in self._forest if len(score) else ():
            score = score + self._sums(pool, trees, asked).sum(axis=1)
        places = asked.candidate + pool.places.start
        order = np.lexsort((self.row[places], -score))
        # On top of a formula the level is unknown: the pick stands for the best. Without, it may score above the best.
        best = 0.0 if self._weight is None else score.max(initial=-np.inf)
        share = np.minimum(100 * np.exp(score - best), 100.0)
        return [
            {
                "rank": rank,
                "candidate": self.candidates[place],
                "kernel": self.kernels[place],
                "split_k": int(self.split_k[place]),
                "score": float(score[number]),
                "predicted_efficiency": float(share[number]),
            }
            for rank, (number, place) in enumerate(zip(order, places[order], strict=True), start=1)
        ]

    @cached_property
    def _forest(self) -> tuple[Trees, ...]:
        nodes = [self._arrays[f"node_{name}"] for name in ("tree", "row", "begin", "end")]
        leaves = self._arrays["leaf"] * UNIT
        ends = [*(trees for trees, _ in self.about.stages), len(leaves)]
        return self._features.trees(nodes, leaves, ends, [*(end for end in ends[:-1] if end in PARTS), len(leaves)])

    @cached_property
    def _features(self) -> Forest:
        return Forest(np.split(self._arrays["threshold"], np.cumsum(self._arrays["thresholds"])[:-1]))

    @cached_property
    def _pools(self) -> list[tuple[_Pool, _Pool]]:
        """For each dimensionality those that are asked first, and all."""
        begins = self.about.begins
        return [
            (self._pool(begin, begin + finalists), self._pool(begin, end))
            for begin, finalists, end in zip(begins[:-1], self.about.finalists, begins[1:], strict=True)
        ]

    def _pool(self, begin: int, end: int) -> _Pool:
        places = slice(begin, end)
        return _Pool(places, self._programs["features"].of_rows(places), self._arrays["fixed"][:, places])

    def _best(self, dims: np.ndarray, position: int, pruned_only: bool) -> tuple[np.ndarray, np.ndarray]:
        """Place and score of the best candidate of each of n problems."""
        first, every = self._pools[position]
        place, score = self._narrowed(first, dims, DIMENSIONALITIES[position], pruned_only)
        none = np.flatnonzero(place < 0)
        if len(none):
            place[none], score[none] = self._narrowed(every, dims[none], DIMENSIONALITIES[position], pruned_only)
        return place, score

    def _narrowed(self, pool: _Pool, dims: np.ndarray, ndim: int, pruned_only: bool) -> tuple[np.ndarray, np.ndarray]:
        place, best = np.full(len(dims), NO_CANDIDATE), np.full(len(dims), -np.inf)
        asked = self._asked(pool, dims, ndim, pruned_only)
        stages = iter([*self.about.stages, (None, 0.0)])
        for trees in self._forest if len(asked.problem) else ():
            best_score, score = _best_score(asked.problem, len(dims)), asked.start
            for column, (_, margin) in zip(self._sums(pool, trees, asked).T, stages, strict=False):
                score = score + column
                score[score < best_score(score) - margin] = -np.inf
            keep = np.flatnonzero(score > -np.inf)
            asked = _Asked(
                asked.problem[keep], asked.candidate[keep], score[keep], asked.single, asked.paired.take(keep, axis=1)
            )
        # All that are left of a problem have its best score.
        first = first_of(asked.problem)
        place[asked.problem[first]] = asked.candidate[first] + pool.places.start
        best[asked.problem[first]] = asked.start[first]
        return place, best

    def _asked(self, pool: _Pool, dims: np.ndarray, ndim: int, pruned_only: bool) -> _Asked:
        inputs = _inputs(dims, ndim)
        runs = self._arrays["always"]
        for holds in self._programs["rules"].run(inputs):
            runs = runs & holds
        runs = runs.take(self._arrays["class"][pool.places], axis=-1)
        if pruned_only:
            runs = runs & self._pruned[pool.places]
        shape = len(dims), runs.shape[-1]
        runs = np.broadcast_to(runs, shape)
        problem, candidate = np.nonzero(runs)
        if not len(problem):
            none = np.empty((0, 0), np.intp)
            return _Asked(problem, candidate, np.empty(0), none, none)
        values = pool.program.run(inputs)
        singles, pairs = self.about.single, self.about.paired
        single = self._features.rows(singles, values[: len(singles)], len(dims))
        of_pairs = [_of_pairs(value, problem, candidate) for value in values[len(singles) :]]
        start = np.zeros(len(problem))
        if self._weight is not None:
            start = np.rint(-self._weight * np.log(of_pairs[-1].astype(np.float64)) / UNIT) * UNIT
        paired = self._features.rows(pairs, of_pairs[: len(pairs)], len(problem))
        return _Asked(problem, candidate, start, single, paired)

    def _sums(self, pool: _Pool, trees: Trees, asked: _Asked) -> np.ndarray:
        left_over = trees.left_over(asked.paired)
        left_over &= pool.of_candidates(trees).take(asked.candidate, axis=0)
        of_problems = trees.left_over(asked.single)
        left_over &= of_problems if len(of_problems) == 1 else of_problems.take(asked.problem, axis=0)
        return trees.sums(left_over)


def _constants(arrays: Mapping[str, np.ndarray], name: str) -> dict[int, np.ndarray]:
    return {int(key.removeprefix(f"{name}_")): value for key, value in arrays.items() if key.startswith(f"{name}_")}


def first_of(problem: np.ndarray) -> np.ndarray:
    """Which pairs are the first of their problem, bool; ``problem`` is sorted."""
    first = np.ones(len(problem), bool)
    np.not_equal(problem[1:], problem[:-1], out=first[1:])
    return first


def _best_score(problem: np.ndarray, count: int) -> Callable[[np.ndarray], Any]:
    """What gives the best of the scores of each pair's problem, one of ``count``; ``problem`` is sorted."""
    if count == 1:
        return np.maximum.reduce
    first = first_of(problem)
    begins, number = np.flatnonzero(first), np.cumsum(first) - 1
    return lambda score: np.maximum.reduceat(score, begins).take(number)


def _of_pairs(values: Value, problem: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Values of pairs from what a program gives: a number, or an array of candidates, of problems, or of both."""
    if not values.ndim:
        return np.full(len(problem), values)
    if values.ndim == 1:
        return values.take(candidate)
    return values[problem, candidate if values.shape[1] > 1 else 0]


_FLAT = np.array([1, 1, 1, 0, 1])
_DEPTH = np.array([DIMS.index(name) for name in ("Di", "Z", "stride_d", "pad_d", "dilation_d")])


def ndims(dims: np.ndarray) -> np.ndarray:
    """2 or 3 of each problem: 3 where one of the depth fields says so."""
    return np.where((dims[:, _DEPTH] == _FLAT).all(axis=1), 2, 3)


def _inputs(dims: np.ndarray, ndim: int) -> Inputs:
    """What programs read: numbers of one problem, which are quicker, or columns of several."""
    if len(dims) == 1:
        return {**dict(zip(DIMS, dims[0], strict=True)), "ndim": np.int64(ndim)}
    columns = {name: dims[:, [position]] for position, name in enumerate(DIMS)}
    return {**columns, "ndim": np.full((len(dims), 1), ndim)}
