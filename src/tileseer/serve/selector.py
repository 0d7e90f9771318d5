"""Selection with a published model: which of the candidates that support a problem is the fastest.

The steps are those of the published C++ header, in NumPy, with the same bits. Neither LightGBM nor pandas is needed,
nor the modules that know kernels: features and support rules are programs (``serve.program``), trees are tables of
bits.
"""

from __future__ import annotations

import io
import warnings
import zipfile
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from tileseer.core import atomic, documents
from tileseer.core.documents import Content
from tileseer.core.errors import UserError
from tileseer.core.tables import StrictModel, validate_table
from tileseer.learn import model_files
from tileseer.learn.trees import UNIT
from tileseer.measure.device import DEVICE_KINDS
from tileseer.problems.problem import DEEP_LAYOUTS, DIMS, LAYOUTS, Problem
from tileseer.problems.problem_rows import wrong_rows
from tileseer.serve import tuned as tuned_choices
from tileseer.serve.program import Inputs, Program, Step, Value
from tileseer.serve.tuned import Choice

if TYPE_CHECKING:
    from tileseer.serve.borrowing import Borrowed

ABOUT = "about"
"""Name of the array whose bytes are JSON: what is no array."""
DIMENSIONALITIES = (2, 3)
PROBLEM_COLUMNS = (*DIMS, "layout")
NO_CANDIDATE = -1
SIMULATED = "simulated"
PARTS = (8, 64, 256)
"""Trees after which the remaining candidates go on: first few trees of many candidates, then many of few."""
BLOCK = 1 << 16
"""Pairs ranked at a time: what a large batch costs in memory."""
PARSED_LATER = (model_files.SERVING, model_files.SPEC, model_files.KERNELS)
"""Files that few calls need: read with the arrays, so that all are of one version, and parsed when needed."""
BITS = 64
"""Most leaves of a tree: one bit each."""
GATHERED = 1 << 17
"""Numbers that are gathered at a time: 1 MiB stays in the second-level cache."""
Ranked = dict[str, Any]
"""A candidate of a ranking: ``rank`` (from 1), ``candidate``, ``kernel``, ``split_k``, ``score``, ``predicted_time``
(percent of the first one's) and ``predicted_efficiency`` (percent of the problem's best, 100 at most). Where a library
offers the candidates, also ``offered``: the place in its list, from 0."""


class About(StrictModel):
    """What is no array in ``selector.npz``."""

    operation: str
    arch: str
    device: str
    device_kind: str
    source: str | None
    weight: float | None
    stages: list[tuple[int, float]]
    """Cuts: after so many trees, candidates leave that are further below the best."""
    begins: tuple[int, int, int]
    single: list[int]
    paired: list[int]
    programs: dict[str, tuple[dict[str, int], list[Step], list[int]]]
    candidates: list[str]
    kernels: list[str]
    layouts: tuple[str, ...] = ("NHWC", "NDHWC")
    """Of the problems that the model is for (``problem.LAYOUTS``, ``DEEP_LAYOUTS``), the default first."""


@dataclass(frozen=True)
class Selection:
    """The answer to n problems."""

    candidate: np.ndarray
    """int64 [n], row of ``candidates.parquet``; -1 where nothing can run the problem."""
    score: np.ndarray
    """float64 [n], logarithm of the predicted relative efficiency; 0 for a measured one, -inf without a pick."""
    known: np.ndarray
    """bool [n], a tuned choice, or from the table of measured problems."""


@dataclass(frozen=True)
class _Pool:
    """The candidates of one dimensionality."""

    ndim: int
    places: slice
    program: Program
    """Features, and the microseconds that scores start from."""
    rows: np.ndarray
    """Rows of the tables that belong to the features of candidates, int [features, candidates]."""
    _left_over: dict[TreeTable, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def left_over(self, trees: TreeTable, candidates: np.ndarray) -> np.ndarray:
        """What the features of candidates leave over, uint64 [candidates, trees]; kept for the next call."""
        if trees not in self._left_over:
            count = self.rows.shape[1]
            self._left_over[trees] = np.zeros(count, bool), np.empty((count, trees.count), np.uint64)
        ready, values = self._left_over[trees]
        if not ready.all():
            missing = np.unique(candidates[~ready[candidates]])
            if len(missing):
                values[missing] = trees.left_over(self.rows[:, missing])
            ready[missing] = True
        return values.take(candidates, axis=0)


class _Pairs(NamedTuple):
    """Pairs of n problems and candidates, with what trees need of them."""

    problem: np.ndarray
    candidate: np.ndarray
    """Place in the pool."""
    start: np.ndarray
    single: np.ndarray
    """Rows of the tables that belong to the features of problems, int [features, problems]."""
    paired: np.ndarray
    """The same of pairs, int [features, pairs]."""


class Selector:
    """The candidates of one operation, and how to select one of them.

    Its times may be ``simulated`` (``about.device_kind``): such choices are not advice for a real GPU.
    """

    def __init__(
        self, arrays: Mapping[str, np.ndarray], folder: Path = Path(), files: Mapping[str, bytes] | None = None
    ) -> None:
        """``arrays`` are those of ``serve.packing``; ``folder`` has the other files of the operation.

        ``files``: contents of ``PARSED_LATER``, which belong to the arrays whatever is published meanwhile.
        """
        self._tuned: dict[tuple[int, ...], Choice] = {}
        self.borrowed: Borrowed | None = None
        """Of which GPU the model is, if it is used for another one."""
        self._arrays = arrays
        self.folder = folder
        self._files = files or {}
        self.about = about = About.model_validate_json(arrays[ABOUT].tobytes())
        """Where the model comes from, and what the arrays mean."""
        self.candidates, self.kernels = about.candidates, about.kernels
        """Names, and those of the kernels, in the order of the places."""
        self.row = arrays["row"].astype(np.int64)
        """int [Q]: rows of ``candidates.parquet``."""
        self.split_k = arrays["split_k"]
        self._measured_dims = arrays["known_dims"]
        self.columns = PROBLEM_COLUMNS[: self._measured_dims.shape[1]]
        """Of a problem: the dimensions, and the layout if the model was trained with it."""
        self._pruned = arrays["pruned"]
        self._weight = about.weight
        self._programs = {
            name: Program(inputs, _constants(arrays, name), steps, results)
            for name, (inputs, steps, results) in about.programs.items()
        }

    @classmethod
    def read(
        cls,
        models: Path,
        operation: str,
        arch: str | None = None,
        device: str | None = None,
        like: str | None = None,
    ) -> Self:
        """Read one operation of a model directory; ``UserError`` unless every file has the hash of the index.

        ``arch``: the arch that the models have to be for; None: any. Choices that were tuned (``serve.tuned``) are
        read with it: those of ``device``, by the name that its driver reports, or of the model's own product.
        ``like``: the arch of the GPU's sibling, whose models ``models`` borrows (``serve.borrowing``).
        """
        source, borrowed = models, None
        if like is not None:
            from tileseer.serve.borrowing import borrow

            source, borrowed = borrow(models, like)
        selector = model_files.of_one_version(
            source, lambda: cls._read_folder(model_files.operation_folder(source, operation, arch))
        )
        selector.borrowed = borrowed
        selector.use_tuned(tuned_choices.usable_choices(tuned_choices.tuned_path(models, operation)), device)
        return selector

    @classmethod
    def _read_folder(cls, folder: Path) -> Self:
        path = folder / model_files.PICKER
        try:
            files = {name: (folder / name).read_bytes() for name in PARSED_LATER}
            with np.load(path, allow_pickle=False) as arrays:
                return cls(dict(arrays), folder, files)
        except FileNotFoundError as error:
            raise UserError(f"{error.filename}: there is no such file; publish the models again") from error
        except (ValueError, LookupError, OSError, zipfile.BadZipFile) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise UserError(f"{path}: cannot be read by this release ({reason}); publish the models again") from error

    def save(self, path: Path) -> None:
        """Write the file that ``read`` reads, whole or not at all."""
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **self._arrays)
        atomic.write_bytes(path, content.getvalue())

    def use_tuned(self, choices: Sequence[Choice], device: str | None = None) -> None:
        """Use these choices before the model; ``device`` as for ``read``.

        Those of other devices, and of candidates that the model has not, are ignored. Choices of a simulated device
        are for models of simulated times alone. What was measured goes first, then what was recorded.
        """
        simulated = self.about.device_kind == SIMULATED
        product = self.borrowed.by if self.borrowed else self.about.device
        for choice in sorted(choices, key=lambda choice: -DEVICE_KINDS.index(choice.device_kind)):
            own = choice.device == device if device else tuned_choices.is_device(choice.device, product)
            if own and (choice.device_kind != SIMULATED or simulated) and choice.candidate in self._places:
                # A choice says no layout: it is of the first.
                key = (*choice.dims, LAYOUTS.index(self.about.layouts[0]))[: len(self.columns)]
                self._tuned.setdefault(key, choice)

    def tuned(self, problem: Problem) -> Choice | None:
        """The choice that was tuned for exactly this problem."""
        return self._tuned.get(tuple(self._dims_of(problem)[0].tolist()))

    def select(self, dims: np.ndarray, *, use_known: bool = True, pruned_only: bool = False) -> Selection:
        """The pick of each of n problems; ``dims`` [n, 19] are integers in the order of ``problem.DIMS``.

        A model that was trained with layouts also takes [n, 20], whose last column is a place in ``problem.LAYOUTS``.
        ``use_known``: a problem that was tuned gets that choice, one that was measured its fastest measured candidate.
        ``pruned_only``: candidates of the pruned kernel set only. Of equal scores the earlier candidate goes first.
        ``UserError`` names the first row that is no convolution.
        """
        dims = self._with_layouts(dims)
        place = np.full(len(dims), NO_CANDIDATE)
        score = np.full(len(dims), -np.inf)
        for fastest in (self._fastest_tuned(dims), self._fastest_measured(dims)) if use_known else ():
            usable = (place < 0) & (fastest >= 0) & (self._pruned[fastest] | (not pruned_only))
            place[usable], score[usable] = fastest[usable], 0.0
        measured = place >= 0
        ndim = ndims(dims)
        for pool, size in zip(self._pools, np.diff(self.about.begins).tolist(), strict=True):
            rows = np.flatnonzero(~measured & (ndim == pool.ndim))
            step = max(1, BLOCK // max(1, size))
            for start in range(0, len(rows), step):
                block = rows[start : start + step]
                place[block], score[block] = self._best(pool, dims[block], pruned_only)
        return Selection(np.where(place >= 0, self.row[place], NO_CANDIDATE), score, measured)

    def rank(self, problem: Problem) -> list[Ranked]:
        """The candidates that support a problem, best first."""
        self._check_operation(problem)
        pool = self._pools[DIMENSIONALITIES.index(problem.ndim)]
        pairs = self._supported_pairs(pool, self._dims_of(problem), False)
        return self._ranked(pairs.candidate + pool.places.start, self._score(pool, pairs))

    def shortlist(
        self, problem: Problem, count: int, offered: Sequence[str] = (), library: str = "", *, use_known: bool = True
    ) -> list[Ranked]:
        """The candidates that are worth timing: the first ``count`` of the order of all trees, best first.

        What would run without timing is always among them, one more than ``count`` where it comes later in the order:
        the pick of ``select``, or of a library that offers the candidates its own choice. ``offered`` and ``library``
        are then those of ``choose``; nothing else is in the list, and the own choice alone where it, or the version, is
        not the model's. Kernels with the same machine code are one candidate. The header's ``shortlist`` gives the
        same.
        """
        if len(offered):
            self._check_operation(problem)
            ranked = self._ranked_offers(problem, offered, library)
            return [row for row in ranked if row["rank"] <= count or row["offered"] == 0]
        ranked = self.rank(problem)
        own = int(self.select(self._dims_of(problem), use_known=use_known).candidate[0])
        names = {self.candidates[place] for place in np.flatnonzero(self.row == own)}
        return [row for row in ranked if row["rank"] <= count or row["candidate"] in names]

    def _check_operation(self, problem: Problem) -> None:
        operation = f"{problem.variant}_{problem.dtype}"
        if operation != self.about.operation:
            raise UserError(f"the problem is {operation}, but the model is for {self.about.operation}")

    def _ranked(self, places: np.ndarray, score: np.ndarray) -> list[Ranked]:
        """Candidates with their scores as a ranking."""
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
                "predicted_time": float(100 * np.exp(score.max() - score[number])),
                "predicted_efficiency": float(share[number]),
            }
            for rank, (number, place) in enumerate(zip(order, places[order], strict=True), start=1)
        ]

    def _ranked_offers(self, problem: Problem, offered: Sequence[str], library: str) -> list[Ranked]:
        """Ranking of what a library offers."""
        pool, prefix = self._pools[DIMENSIONALITIES.index(problem.ndim)], self._prefix(problem.ndim)
        own = f"{prefix}{offered[0]}"
        if not self._is_of(library) or own not in self._places:
            unknown = {"score": -np.inf, "predicted_time": np.nan, "predicted_efficiency": np.nan}
            return [{"rank": 1, "candidate": own, "kernel": own, "split_k": 1, **unknown, "offered": 0}]
        first: dict[str, int] = {}
        for number, name in enumerate(offered):
            first.setdefault(f"{prefix}{name}", number)
        places = np.array([self._places[name] for name in first if name in self._places], np.int64)
        score = self._offer_scores(pool, problem, places)
        return [row | {"offered": first[row["candidate"]]} for row in self._ranked(places, score)]

    def fastest_measured(self, problem: Problem) -> str | None:
        """The candidate that was fastest when exactly this problem was measured."""
        place = int(self._fastest_measured(self._dims_of(problem))[0])
        return None if place == NO_CANDIDATE else self.candidates[place]

    def choose(self, problem: Problem, offered: Sequence[str], library: str) -> int:
        """The row of the candidate to run of those that the library offers, by its own names in its own order.

        ``NO_CANDIDATE``: the library's own choice, the first that runs, because no other is sure to be faster.
        ``library`` is what offers them, with its version (``cudnn 91900``); another than was measured keeps its own
        choice, with a warning. A tuned choice that is offered goes first. The header's ``choose`` gives the same.
        """
        # Imported here: pandas takes half a second, and a selection does without.
        from tileseer.learn.model_schema import FeatureSpec
        from tileseer.learn.own_choice import deviations, grouping

        if not len(offered) or not self._is_of(library):
            return NO_CANDIDATE
        spec = self._document(model_files.SPEC, FeatureSpec)
        assert spec.own_margins is not None
        pool, prefix = self._pools[DIMENSIONALITIES.index(problem.ndim)], self._prefix(problem.ndim)
        names = list(dict.fromkeys(f"{prefix}{name}" for name in offered))
        if (tuned := self.tuned(problem)) and tuned.candidate in names:
            return int(self.row[self._places[tuned.candidate]])
        if names[0] not in self._places:
            return NO_CANDIDATE
        places = np.array([self._places[name] for name in names if name in self._places], np.int64)
        score = self._offer_scores(pool, problem, places)
        best = int(score.argmax())
        margin = spec.own_margins[int(grouping(np.array(problem.G), np.array(problem.C)))]
        sure = score[best] - score[0] > margin * deviations(score[None])[0]
        return int(self.row[places[best]]) if sure else NO_CANDIDATE

    @property
    def library(self) -> str | None:
        """What offers the candidates, with the version that was measured (``cudnn 91900``); None if no library does."""
        spec = self._parsed(model_files.SPEC)
        return None if spec.get("own_margins") is None else str(spec["library"])

    def _is_of(self, library: str) -> bool:
        """Whether the candidates are those of a library with this version; ``UserError`` if no library offers them."""
        measured = self.library
        if measured is None:
            raise UserError(f"{self.folder}: its candidates are offered by no library; use select")
        if library != measured:
            message = f"{self.folder}: measured with {measured}, not with {library}: its own choice is kept"
            warnings.warn(message, stacklevel=3)
        return library == measured

    def _prefix(self, ndim: int) -> str:
        """What comes before a library's own name in the names of its candidates."""
        places = self._pools[DIMENSIONALITIES.index(ndim)].places
        kernel = next(iter(self.kernels[places]), "")
        return "".join(kernel.partition(f"_{ndim}d_")[:2])

    def _offer_scores(self, pool: _Pool, problem: Problem, places: np.ndarray) -> np.ndarray:
        """Scores of the candidates at ``places``, offered for one problem; whether they can run is not checked."""
        inputs, first = _inputs(self._dims_of(problem), problem.ndim), np.zeros(len(places), np.int64)
        return self._score(pool, self._pairs(pool, inputs, first, places - pool.places.start))

    def _dims_of(self, problem: Problem) -> np.ndarray:
        """A problem as a row of ``columns``, int64 [1, n]; ``UserError`` for a layout that the model is not for."""
        layout = problem.layout or LAYOUTS[self._default_layout]
        if (problem.layout or len(self.columns) > len(DIMS)) and not self.knows(problem.ndim, layout):
            raise UserError(
                f"the problem's layout is {DEEP_LAYOUTS[layout] if problem.ndim == 3 else layout}, but the model of "
                f"{self.about.operation} on {self.about.arch} knows {', '.join(self.about.layouts)} only"
            )
        return np.array([[*problem.dims, LAYOUTS.index(layout)][: len(self.columns)]])

    def _with_layouts(self, dims: np.ndarray) -> np.ndarray:
        """``dims`` as int64 [n, columns] after ``checked_dims``; rows without a layout have the first."""
        if len(self.columns) == len(DIMS):
            return checked_dims(dims)
        values = np.asarray(dims)
        if values.ndim != 2 or values.shape[1] != len(self.columns):
            values = checked_dims(values)
            values = np.column_stack([values, np.full(len(values), self._default_layout)])
        else:
            values = np.column_stack([checked_dims(values[:, :-1]), values[:, -1].astype(np.int64)])
        pairs = np.stack([ndims(values), values[:, -1]])
        allowed = [(ndim, code) for ndim in DIMENSIONALITIES for code in (0, 1) if self.knows(ndim, LAYOUTS[code])]
        wrong = ~np.any([(pairs == np.array([pair]).T).all(axis=0) for pair in allowed], axis=0)
        if wrong.any():
            row = int(wrong.argmax())
            names = ", ".join(f"{code} in {ndim}D ({LAYOUTS[code]})" for ndim, code in allowed)
            raise UserError(f"problems, row {row}: {pairs[0, row]}D of layout {pairs[1, row]}; the model knows {names}")
        return values

    def knows(self, ndim: int, layout: str) -> bool:
        """Whether the model is for this layout of ``problem.LAYOUTS``, or has no candidate for any."""
        own = set(self.about.layouts).intersection(DEEP_LAYOUTS.values() if ndim == 3 else LAYOUTS)
        return not own or (DEEP_LAYOUTS[layout] if ndim == 3 else layout) in own

    @property
    def _default_layout(self) -> int:
        """Its place in ``problem.LAYOUTS``."""
        return LAYOUTS.index(self.about.layouts[0].replace("D", ""))

    @cached_property
    def aliases(self) -> dict[str, list[str]]:
        """The other names of kernels that have some: kernels with the same machine code."""
        entries = self._parsed(model_files.KERNELS)["kernels"]
        return {entry["kernel"]: entry["aliases"] for entry in entries if entry.get("aliases")}

    def _document(self, name: str, kind: type[Content]) -> Content:
        return validate_table(self._parsed(name), kind, str(self.folder / name))

    def _parsed(self, name: str) -> Any:
        path = self.folder / name
        return documents.parse_json(self._files.get(name) or path.read_bytes(), path)

    def _fastest_measured(self, dims: np.ndarray) -> np.ndarray:
        """Place of the candidate that was fastest when exactly this problem was measured, or -1, [n]."""
        rows = np.ascontiguousarray(dims, np.int32)
        return np.array([self._measured.get(row.tobytes(), NO_CANDIDATE) for row in rows], np.int64)

    def _fastest_tuned(self, dims: np.ndarray) -> np.ndarray:
        """Place of the tuned choice of each problem, or -1, [n]."""
        if not self._tuned:
            return np.full(len(dims), NO_CANDIDATE)
        tuned = (self._tuned.get(tuple(row)) for row in dims.tolist())
        return np.array([self._places[choice.candidate] if choice else NO_CANDIDATE for choice in tuned], np.int64)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.candidates)}

    @cached_property
    def _measured(self) -> dict[bytes, int]:
        places = self._arrays["known_place"].tolist()
        return {row.tobytes(): place for row, place in zip(self._measured_dims, places, strict=True)}

    @cached_property
    def _forest(self) -> tuple[TreeTable, ...]:
        nodes = [self._arrays[f"node_{name}"] for name in ("tree", "row", "begin", "end")]
        leaves = self._arrays["leaf"] * UNIT
        ends = [*(trees for trees, _ in self.about.stages), len(leaves)]
        return self._features.trees(nodes, leaves, ends, [*(end for end in ends[:-1] if end in PARTS), len(leaves)])

    @cached_property
    def _features(self) -> Forest:
        return Forest(np.split(self._arrays["threshold"], np.cumsum(self._arrays["thresholds"])[:-1]))

    @cached_property
    def _pools(self) -> list[_Pool]:
        """The candidates of each dimensionality."""
        parts = zip(DIMENSIONALITIES, starmap(slice, pairwise(self.about.begins)), strict=True)
        features, fixed = self._programs["features"], self._arrays["fixed"]
        return [_Pool(ndim, places, features.of_rows(places), fixed[:, places]) for ndim, places in parts]

    def _best(self, pool: _Pool, dims: np.ndarray, pruned_only: bool) -> tuple[np.ndarray, np.ndarray]:
        """Place and score of the best candidate of each of n problems."""
        place, best = np.full(len(dims), NO_CANDIDATE), np.full(len(dims), -np.inf)
        pairs = self._supported_pairs(pool, dims, pruned_only)
        cuts = iter([*self.about.stages, (None, 0.0)])
        for trees in self._forest if len(pairs.problem) else ():
            best_score, score = _best_score(pairs.problem, len(dims)), pairs.start
            for column, (_, margin) in zip(_sums(pool, trees, pairs).T, cuts, strict=False):
                score = score + column
                score[score < best_score(score) - margin] = -np.inf
            keep = np.flatnonzero(score > -np.inf)
            kept = pairs.problem[keep], pairs.candidate[keep], score[keep]
            pairs = _Pairs(*kept, pairs.single, pairs.paired.take(keep, axis=1))
        # All that are left of a problem have its best score.
        first = first_of(pairs.problem)
        place[pairs.problem[first]] = pairs.candidate[first] + pool.places.start
        best[pairs.problem[first]] = pairs.start[first]
        return place, best

    def _supported_pairs(self, pool: _Pool, dims: np.ndarray, pruned_only: bool) -> _Pairs:
        """The pairs of n problems and the candidates of the pool that support them."""
        inputs = _inputs(dims, pool.ndim)
        runs = self._arrays["always"]
        for holds in self._programs["rules"].run(inputs):
            runs = runs & holds
        runs = runs.take(self._arrays["class"][pool.places], axis=-1)
        if pruned_only:
            runs = runs & self._pruned[pool.places]
        problem, candidate = np.nonzero(np.broadcast_to(runs, (len(dims), runs.shape[-1])))
        return self._pairs(pool, inputs, problem, candidate)

    def _pairs(self, pool: _Pool, inputs: Inputs, problem: np.ndarray, candidate: np.ndarray) -> _Pairs:
        if not len(problem):
            none = np.empty((0, 0), np.intp)
            return _Pairs(problem, candidate, np.empty(0), none, none)
        values = pool.program.run(inputs)
        singles, pairs = self.about.single, self.about.paired
        single = self._features.rows(singles, values[: len(singles)], np.size(inputs["N"]))
        of_pairs = [_of_pairs(value, problem, candidate) for value in values[len(singles) :]]
        start = np.zeros(len(problem))
        if self._weight is not None:
            start = np.rint(-self._weight * np.log(of_pairs[-1].astype(np.float64)) / UNIT) * UNIT
        paired = self._features.rows(pairs, of_pairs[: len(pairs)], len(problem))
        return _Pairs(problem, candidate, start, single, paired)

    def _score(self, pool: _Pool, pairs: _Pairs) -> np.ndarray:
        """Scores of pairs by all trees, float64."""
        score = pairs.start
        for trees in self._forest if len(score) else ():
            score = score + _sums(pool, trees, pairs).sum(axis=1)
        return score


def _sums(pool: _Pool, trees: TreeTable, pairs: _Pairs) -> np.ndarray:
    """What the trees add to the scores of pairs, float64 [pairs, ends]."""
    left_over = trees.left_over(pairs.paired)
    left_over &= pool.left_over(trees, pairs.candidate)
    of_problems = trees.left_over(pairs.single)
    left_over &= of_problems if len(of_problems) == 1 else of_problems.take(pairs.problem, axis=0)
    return trees.sums(left_over)


def _constants(arrays: Mapping[str, np.ndarray], name: str) -> dict[int, np.ndarray]:
    return {int(key.removeprefix(f"{name}_")): value for key, value in arrays.items() if key.startswith(f"{name}_")}


def first_of(problem: np.ndarray) -> np.ndarray:
    """Which pairs are the first of their problem, bool; ``problem`` is sorted."""
    first = np.ones(len(problem), bool)
    np.not_equal(problem[1:], problem[:-1], out=first[1:])
    return first


def _best_score(problem: np.ndarray, count: int) -> Callable[[np.ndarray], Any]:
    """A function that gives the best of the scores of each pair's problem, one of ``count``; ``problem`` is sorted."""
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


_DEPTH = [DIMS.index(name) for name in ("Di", "Z", "stride_d", "pad_d", "dilation_d")]


def ndims(dims: np.ndarray) -> np.ndarray:
    """2 or 3 of each problem: 3 where one of the depth fields says so."""
    return np.where((dims[:, _DEPTH] == (1, 1, 1, 0, 1)).all(axis=1), 2, 3)


def _inputs(dims: np.ndarray, ndim: int) -> Inputs:
    """What programs read: numbers of one problem, which are quicker, or columns of several."""
    if len(dims) == 1:
        return {**dict(zip(PROBLEM_COLUMNS, dims[0], strict=False)), "ndim": np.int64(ndim)}
    columns = {name: dims[:, [position]] for position, name in enumerate(PROBLEM_COLUMNS[: dims.shape[1]])}
    return {**columns, "ndim": np.full((len(dims), 1), ndim)}


def checked_dims(dims: np.ndarray) -> np.ndarray:
    """``dims`` as int64 [n, 19] after making sure that each row is a convolution; see ``Problem``."""
    values = np.asarray(dims)
    if values.ndim != 2 or values.shape[1] != len(DIMS) or values.dtype.kind not in "iu":
        raise UserError(
            f"problems: an array of {values.dtype} with shape {values.shape}; give integers of shape (n, {len(DIMS)}): "
            f"{', '.join(DIMS)}"
        )
    wrong = wrong_rows(values)
    if wrong.any():
        row = int(wrong.argmax())
        try:
            Problem.from_dims("forward", "bf16", **dict(zip(DIMS, values[row].tolist(), strict=True)))
        except UserError as error:
            raise UserError(f"problems, row {row}: {error}") from error
    return values.astype(np.int64)


class TreeTable:
    """Consecutive trees, and how far to add them up."""

    def __init__(self, table: np.ndarray, leaves: np.ndarray, ends: Sequence[int]) -> None:
        """``table`` uint64 [rows, trees], ``leaves`` float64 [trees, BITS]; ``ends``: trees after which a sum ends."""
        self._table = np.ascontiguousarray(table)
        self._leaves = leaves.ravel()
        self._first = np.arange(len(leaves)) * leaves.shape[1]
        self.count = len(leaves)
        self._begins = np.array([0, *ends[:-1]])

    def left_over(self, rows: np.ndarray) -> np.ndarray:
        """The leaves that the features of n candidates leave over, uint64 [n, trees]; ``rows`` int [features, n]."""
        step = max(1, GATHERED // max(1, len(rows) * len(self._first)))
        parts = [
            np.bitwise_and.reduce(self._table.take(rows[:, start : start + step], axis=0), axis=0)
            for start in range(0, rows.shape[1], step)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def sums(self, left_over: np.ndarray) -> np.ndarray:
        """What the trees add from one end to the next, float64 [n, ends]."""
        first = left_over & -left_over
        leaf = np.bitwise_count(first - np.uint64(1)) + self._first
        return np.add.reduceat(self._leaves.take(leaf), self._begins, axis=1)


class Forest:
    """All trees of a model as tables of bits, which NumPy walks down for many candidates at once.

    A split that sends a candidate right rules out the leaves on its left. For each feature and each interval between
    its thresholds, one number a tree says which leaves that feature leaves over. A walk ends at the first leaf that all
    features leave over (QuickScorer, with a row of a table in the place of its lists).
    """

    def __init__(self, thresholds: Sequence[np.ndarray]) -> None:
        """``thresholds``: those of each feature that a tree reads, rising."""
        self._thresholds = thresholds
        self._lists = [values.tolist() for values in thresholds]
        self._begins = np.cumsum([0, *(len(values) + 1 for values in thresholds)])

    def rows(self, features: Sequence[int], values: Sequence[Value], count: int) -> np.ndarray:
        """Rows of the tables that belong to values of features, int [features, count]: arrays, or numbers of one."""
        # A value is sent right by the thresholds below it. For one value a list is much quicker.
        parts = [
            self._thresholds[feature].searchsorted(value) if value.ndim else bisect_left(self._lists[feature], value)
            for feature, value in zip(features, values, strict=True)
        ]
        begins = self._begins.take(features)[:, None]
        return np.array(parts, np.intp).reshape(len(features), count) + begins

    def trees(
        self, nodes: Sequence[np.ndarray], leaves: np.ndarray, ends: Sequence[int], parts: Sequence[int]
    ) -> tuple[TreeTable, ...]:
        """The trees, cut into parts.

        ``nodes``: tree, first row that is sent right, and first and last + 1 of the leaves on the left, int [nodes]
        each. ``leaves`` float64 [trees, BITS]. ``ends``: trees after which sums end, the last being their
        number; ``parts``: those of them after which a part ends.
        """
        tree, row, begin, end = (values.astype(np.int64) for values in nodes)
        table = np.full((self._begins[-1], len(leaves)), ~np.uint64(0))
        left = ((np.uint64(1) << (end - begin).astype(np.uint64)) - np.uint64(1)) << begin.astype(np.uint64)
        np.bitwise_and.at(table, (row, tree), ~left)
        for first, last in pairwise(self._begins):
            np.bitwise_and.accumulate(table[first:last], axis=0, out=table[first:last])
        return tuple(
            TreeTable(table[:, first:last], leaves[first:last], [stop - first for stop in ends if first < stop <= last])
            for first, last in pairwise([0, *parts])
        )
