"""Selection with a published model: which of the candidates that support a problem is the fastest.

Features, support rules and scores are those of training, and the published C++ header has them to the last bit.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.core import documents, parquet
from tileseer.core.documents import read_json
from tileseer.core.errors import UserError, listed, require, shown
from tileseer.core.reading import ReadFromFolder, path_of
from tileseer.learn import model_files, own_choice
from tileseer.learn.evidence import EVIDENCE_CLASSES, TIMED, Evidence, EvidenceClass, Expected
from tileseer.learn.model import Model
from tileseer.libraries import candidates
from tileseer.measure.device import DEVICE_KINDS
from tileseer.problems.problem import DEEP_LAYOUTS, DIMS, LAYOUTS, Problem, meant, wrong_rows
from tileseer.serve import tuned as tuned_choices
from tileseer.serve.serving_files import KNOWN_PROBLEMS, Kernels
from tileseer.serve.tuned import Choice

NO_CANDIDATE = -1
SIMULATED = "simulated"
PROBLEM = "Problem.from_dims('forward', 'bf16', N=8, C=64)"
PAIRS_AT_A_TIME = 1 << 16
"""What a large batch costs in memory."""
Ranked = dict[str, Any]
"""A candidate of a ranking: ``rank`` (from 1), ``candidate``, ``kernel``, ``split_k``, ``score``, ``predicted_time``
(percent of the first one's) and ``predicted_efficiency`` (percent of the problem's best, 100 at most). Where a library
offers the candidates, also ``offered``: the place in its list, from 0."""


@dataclass(frozen=True)
class Selection:
    """The answer to n problems."""

    candidate: np.ndarray
    """int64 [n], row of ``candidates.parquet``; -1 where nothing can run the problem."""
    score: np.ndarray
    """float64 [n], as the model's scorer gives it; 0 for a measured one, -inf without a pick."""
    known: np.ndarray
    """bool [n], a tuned choice, or from the table of measured problems."""
    kernels: list[str]
    """Names, by row of ``candidates.parquet``."""

    @property
    def kernel(self) -> list[str | None]:
        """The name of each pick's kernel; None where nothing can run the problem."""
        return [self.kernels[row] if row != NO_CANDIDATE else None for row in self.candidate.tolist()]


@dataclass(frozen=True)
class Outlook:
    """What is expected of the pick for one problem, by left-out layers of its kind at its distance."""

    evidence: EvidenceClass
    """How the problem stands to what was measured; a pick from outside is a guess."""
    gains: bool
    """Whether the pick is expected to be faster than what runs without the model."""
    kind: str
    """The kind of layers that says the rest (``kinds.LEAVES``); "" is all."""
    cases: int
    """Layers of this kind that were measured; some of them were left out of training in turn."""
    loss: float
    """Time of the pick over that of the fastest candidate, mean; NaN where nothing is known."""
    own_loss: float
    """The same of what runs without the model: the library's own choice, or else the first of a fixed order."""
    below_half: float
    """Share of picks with less than half of the speed of the fastest."""
    timed: dict[int, float]
    """Mean loss of the fastest of so many candidates of the model and an own choice of the library, timed once."""


@dataclass(frozen=True)
class Answer:
    """What is known of one problem."""

    ranked: list[Ranked]
    """The candidates that support it, best first."""
    fastest_measured: str | None
    """The candidate that was fastest when exactly this problem was measured."""
    tuned: Choice | None
    """The choice that was tuned for exactly this problem."""
    outlook: Outlook
    """How it stands to what was measured, and what is expected of the pick."""


class Selector(ReadFromFolder):
    """The candidates of one operation, and how to select one of them.

    Its times may be ``simulated`` (``spec.device_kind``): such choices are not advice for a real GPU.
    """

    def __init__(self, model: Model, pruned: np.ndarray, known: pa.Table, folder: Path = Path()) -> None:
        """Select among the Q candidates of ``model``.

        ``pruned`` (bool [Q]): candidates of the pruned kernel set. ``known``: rows of ``serving_files.KNOWN_PROBLEMS``.
        ``folder`` has the files of the operation.
        """
        self.model, self.pruned, self.known, self.folder = model, pruned, known, folder
        self.spec = model.spec
        """Where the model comes from, and what it was trained for."""
        self.candidates: list[str] = model.pool["candidate"].tolist()
        """Names, in the order of ``candidates.parquet``."""
        self.kernels: list[str] = model.pool["kernel"].tolist()
        """Those of the candidates' kernels."""
        self._row = {name: row for row, name in enumerate(self.candidates)}
        dims = zip(*(known[name].to_pylist() for name in model.columns), strict=True)
        self._measured = dict(zip(dims, known["row"].to_pylist(), strict=True))
        self._tuned: dict[tuple[int, ...], Choice] = {}
        self.sibling = ""
        """Name of the device that picks are for, where that of the times is another one; empty where it is the same."""

    @classmethod
    def read(
        cls,
        models: Path | str,
        operation: str,
        arch: str | None = None,
        device: str | None = None,
        *,
        is_here: bool = False,
    ) -> Self:
        """Read one operation of a model directory; ``UserError`` unless every file has the hash of the index.

        ``arch``: the arch that the models have to be for; None: any. Choices that were tuned (``serve.tuned``) are
        read with it: those of ``device``, by the name that its driver reports, or of the model's own product. Picks
        for another device than that of the times are those of a sibling, and count as outside of what was measured.
        ``UserError`` for a device that has no choices and is in no table of products, unless it ``is_here``.
        """
        models = path_of("models", models, "a folder of models")
        selector = model_files.of_one_version(
            models, lambda: cls._read_folder(model_files.operation_folder(models, operation, arch))
        )
        if device is not None:
            require("device", device, str, f"its name, such as {selector.spec.device}")
        found = {
            layout: tuned_choices.usable_choices(tuned_choices.tuned_path(models, operation, layout))
            for layout in ("", *LAYOUTS)
        }
        if device is not None and not tuned_choices.is_device(device, selector.spec.device):
            if not is_here and device not in {choice.device for choices in found.values() for choice in choices}:
                tuned_choices.refuse_unknown(device, selector.spec.device)
            selector.sibling = device
        for layout, choices in found.items():
            tuned_choices.warn_of_unknown(tuned_choices.tuned_path(models, operation, layout), choices, selector._row)
            selector.use_tuned(choices, device, layout)
        return selector

    @classmethod
    def _read_folder(cls, folder: Path) -> Self:
        return cls.of_serving(Model.read_checked(folder), folder)

    @classmethod
    def of_serving(cls, model: Model, folder: Path) -> Self:
        """Read what serves ``model`` from its serving folder, or from the folder of a published operation."""
        kernels = documents.read_document(folder / model_files.KERNELS, Kernels)
        pruned = model.pool["kernel"].isin(kernels.pruned).to_numpy()
        known = parquet.read_table(folder / model_files.KNOWN, KNOWN_PROBLEMS)
        return cls(model, pruned, known, folder)

    def use_tuned(self, choices: Sequence[Choice], device: str | None = None, layout: str = "") -> None:
        """Use these choices of tensors in a layout before the model; ``device`` as for ``read``.

        Those of other devices, and of candidates that the model has not, are ignored. Choices of a simulated device
        are for models of simulated times alone. What was measured goes first, then what was recorded.
        """
        simulated = self.spec.device_kind == SIMULATED
        choices = listed("choices", choices, Choice, "what tileseer.serve.tuned.read_choices(PATH) returns")
        for choice in sorted(choices, key=lambda choice: -DEVICE_KINDS.index(choice.device_kind)):
            own = choice.device == device if device else tuned_choices.is_device(choice.device, self.spec.device)
            if own and (choice.device_kind != SIMULATED or simulated) and choice.candidate in self._row:
                code = LAYOUTS.index(layout) if layout else self._default_layout
                key = (*choice.dims, code)[: len(self.model.columns)]
                self._tuned.setdefault(key, choice)

    def other_layout(self, problem: Problem) -> str:
        """Return the layout of a problem, empty for the model's first one."""
        return "" if problem.layout == LAYOUTS[self._default_layout] else problem.layout

    def tuned(self, problem: Problem) -> Choice | None:
        """Return the choice that was tuned for exactly this problem."""
        return self._tuned.get(tuple(self.dims_of(problem)[0].tolist()))

    @property
    def known_dims(self) -> np.ndarray:
        """The measured problems as ``select`` takes them, int64 [m, columns]."""
        return np.stack([self.known[name].to_numpy() for name in self.model.columns], axis=1).astype(np.int64)

    @cached_property
    def evidence(self) -> Evidence:
        """The measured problems that say something of a choice."""
        dims = self.known_dims
        compared = self.known["timed"].to_numpy()
        return Evidence.from_problems(evidence_columns(dims), compared, self.spec.evidence)

    def expected(self, problems: Sequence[Problem]) -> Expected:
        """Return what is known of n problems; ``UserError`` for a layout that the model does not know."""
        return self.evidence.of(self.evidence_columns(problems))

    def outlooks(self, problems: Sequence[Problem]) -> list[Outlook]:
        """Return the same for each problem. The header's ``outlook`` gives the same."""
        found = self.expected(problems)
        return [
            Outlook(
                evidence="outside" if self.sibling else EVIDENCE_CLASSES[found.classes[at]],
                gains=bool(found.gains[at]) and not self.sibling,
                kind=str(found.kind[at]),
                cases=int(found.cases[at]),
                loss=float(found.loss[at]),
                own_loss=float(found.own_loss[at]),
                below_half=float(found.below_half[at]),
                timed=dict(zip(TIMED, found.timed[at].tolist(), strict=True)),
            )
            for at in range(len(found.gains))
        ]

    @cached_property
    def evaluated(self) -> dict[str, Any]:
        """The published evaluation (``judge.evaluation.Evaluation``), empty where there is none."""
        # Read without its schema, which takes longer to import than a pick takes.
        path = self.folder / model_files.EVALUATION
        return read_json(path) if path.is_file() else {}

    def evidence_columns(self, problems: Sequence[Problem]) -> dict[str, np.ndarray]:
        """Return problems as the columns that evidence reads."""
        return evidence_columns(self._rows_of(problems))

    def _rows_of(self, problems: Sequence[Problem]) -> np.ndarray:
        """Return problems as rows of ``Model.columns``, int64 [P, n]; ``UserError`` unless they are some."""
        such = f"a list of problems; make each one: {PROBLEM}"
        rows = [self.dims_of(problem) for problem in listed("problems", problems, object, such)]
        if not rows:
            raise UserError(f"problems is {shown(problems)}; give {such}")
        return np.concatenate(rows)

    def fastest_measured(self, problem: Problem) -> str | None:
        """Return the candidate that was fastest when exactly this problem was measured."""
        row = self._measured.get(tuple(self.dims_of(problem)[0].tolist()))
        return None if row is None else self.candidates[row]

    def select(
        self, dims: np.ndarray | pd.DataFrame, *, use_known: bool = True, pruned_only: bool = False
    ) -> Selection:
        """Return the pick of each of n problems; ``dims`` [n, 19] are integers in the order of ``problem.DIMS``.

        A model that was trained with layouts also takes [n, 20], whose last column is a place in ``problem.LAYOUTS``.
        Of a table the columns of these names are read, in whatever order; it needs all 19.
        ``use_known``: a problem that was tuned gets that choice, one that was measured its fastest measured candidate.
        ``pruned_only``: candidates of the pruned kernel set only. Of equal scores the earlier candidate goes first.
        ``UserError`` names the first row that is no convolution.
        """
        for name, flag in (("use_known", use_known), ("pruned_only", pruned_only)):
            require(name, flag, bool | np.bool_, "True or False")
        dims = self._with_layouts(self._dims_of_table(dims) if isinstance(dims, pd.DataFrame) else dims)
        picked, score = np.full(len(dims), NO_CANDIDATE), np.full(len(dims), -np.inf)
        for at, key in enumerate(map(tuple, dims.tolist())) if use_known else ():
            tuned = self._tuned.get(key)
            for row in (self._row[tuned.candidate] if tuned else None, self._measured.get(key)):
                if row is not None and picked[at] < 0 and (self.pruned[row] or not pruned_only):
                    picked[at], score[at] = row, 0.0
        known = picked >= 0
        rows = np.flatnonzero(~known)
        step = max(1, PAIRS_AT_A_TIME // max(1, len(self.candidates)))
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            picked[block], score[block] = self._best(dims[block], pruned_only)
        return Selection(picked, score, known, self.kernels)

    def _best(self, dims: np.ndarray, pruned_only: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the best candidate of each of n problems, and its score."""
        problems = self.frame(dims)
        runs = self.model.supported(problems) & (self.pruned | (not pruned_only))
        scores = self.model.scorer.leading(problems, self.model.pool, runs)
        picked, best = scores.argmax(axis=1), scores.max(axis=1)
        return np.where(np.isfinite(best), picked, NO_CANDIDATE), best

    def answer(self, problem: Problem) -> Answer:
        """Return what is known of one problem; ``UserError`` for one of another operation or layout."""
        ranked, (outlook,) = self.rank(problem), self.outlooks([problem])
        return Answer(
            ranked=ranked,
            fastest_measured=self.fastest_measured(problem),
            tuned=self.tuned(problem),
            outlook=outlook,
        )

    def rank(self, problem: Problem) -> list[Ranked]:
        """Return the candidates that support a problem, best first."""
        (scores,) = self.scores([problem])
        rows = np.flatnonzero(np.isfinite(scores))
        return self._ranked(rows, scores[rows])

    def scores(self, problems: Sequence[Problem]) -> np.ndarray:
        """Return the scores of all candidates on P problems, float64 [P, Q]; -inf where one does not support it.

        Of equal scores the earlier candidate goes first. ``UserError`` for a problem of another operation or layout.
        """
        table = self.frame(self._rows_of(problems))
        return self.model.scorer.score(table, self.model.pool, self.model.supported(table))

    def shortlist(
        self, problem: Problem, count: int, offered: Sequence[str] = (), library: str = "", *, use_known: bool = True
    ) -> list[Ranked]:
        """Return the candidates that are worth timing: the first ``count`` of the order of scores, best first.

        What would run without timing is always among them, one more than ``count`` where it comes later in the order:
        the pick of ``select``. Of a library that offers the candidates it is the own choice, and ``count`` others stand
        beside it. ``offered`` and ``library`` are then those of ``choose``; nothing else is in the list, and the own
        choice alone where it, or the version, is not the model's. Kernels with the same machine code are one candidate.
        The header's ``shortlist`` gives the same.
        """
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise UserError(f"shortlist: count is {shown(count)}; give a whole number from 1")
        if offered := listed("offered", offered, str, "a list of names, as the library has them"):
            offers = self._offers(problem, offered, library)
            if 0 not in offers.values():
                first = f"{self._prefix(problem.ndim)}{offered[0]}"
                unknown = {"score": -np.inf, "predicted_time": np.nan, "predicted_efficiency": np.nan}
                return [{"rank": 1, "candidate": first, "kernel": first, "split_k": 1, **unknown, "offered": 0}]
            rows = np.array([*offers])
            ranked = self._ranked(rows, self._scores(self.frame(self.dims_of(problem)), rows))
            ranked = [row | {"offered": offers[self._row[row["candidate"]]]} for row in ranked]
            others = [row["rank"] for row in ranked if row["offered"] != 0][:count]
            return [row for row in ranked if row["offered"] == 0 or row["rank"] in others]
        ranked = self.rank(problem)
        own = int(self.select(self.dims_of(problem), use_known=use_known).candidate[0])
        name = self.candidates[own] if own != NO_CANDIDATE else None
        return [row for row in ranked if row["rank"] <= count or row["candidate"] == name]

    def _check_operation(self, problem: Problem) -> None:
        if not isinstance(problem, Problem):
            are_several = isinstance(problem, list) and all(isinstance(each, Problem) for each in problem)
            way = "give one at a time" if are_several else f"make one: {PROBLEM}"
            raise UserError(f"the problem is {shown(problem)}; {way}")
        operation = f"{problem.variant}_{problem.dtype}"
        if operation != self.spec.operation:
            models = self.folder.parent
            has_both = (models / f"grouped_conv_{operation}_{self.spec.arch}").is_dir()
            read = f", or take Selector.read({str(models)!r}, {operation!r})" if has_both else ""
            raise UserError(
                f"the problem is {operation}, but the model is for {self.spec.operation}; give Problem.from_dims"
                f"({self.spec.variant!r}, {self.spec.dtype!r}, ...){read}"
            )

    def _scores(self, problems: pd.DataFrame, rows: np.ndarray) -> np.ndarray:
        """Return the scores of candidates on one problem; whether they can run is not checked."""
        return self.model.score_pairs(problems, np.zeros(len(rows), np.int64), rows)

    def predicted_times(self, scores: np.ndarray) -> np.ndarray:
        """Return the times that scores on one problem predict, percent of that of the best score, float64 [n]."""
        values = np.asarray(scores)
        if values.dtype.kind not in "iuf":
            raise UserError(f"scores is {shown(scores)}; give a row of what scores returns")
        log = self.model.scorer.log_efficiency(values.astype(float))
        return np.asarray(100 * np.exp(log.max(initial=-np.inf) - log))

    def _ranked(self, rows: np.ndarray, score: np.ndarray) -> list[Ranked]:
        """Return candidates with their scores as a ranking."""
        order = np.lexsort((rows, -score))
        # On top of a formula the level is unknown: the pick stands for the best. Without, it may score above the best.
        log, times = self.model.scorer.log_efficiency(score), self.predicted_times(score)
        best = 0.0 if self.spec.formula is None else log.max(initial=-np.inf)
        share = np.minimum(100 * np.exp(log - best), 100.0)
        split_k = self.model.pool["split_k"].to_numpy()
        return [
            {
                "rank": rank,
                "candidate": self.candidates[row],
                "kernel": self.kernels[row],
                "split_k": int(split_k[row]),
                "score": float(score[number]),
                "predicted_time": float(times[number]),
                "predicted_efficiency": float(share[number]),
            }
            for rank, (number, row) in enumerate(zip(order, rows[order], strict=True), start=1)
        ]

    def _offers(self, problem: Problem, offered: Sequence[str], library: str) -> dict[int, int]:
        """Return the rows of the candidates that a library offers, in its order, each with its first place there.

        None where the library is not the model's; without 0 the model does not know the own choice.
        """
        self._check_operation(problem)
        names = listed("offered", offered, str, f"a list of names, as {library or 'the library'} has them")
        offers: dict[int, int] = {}
        if self._is_of(library):
            prefix = self._prefix(problem.ndim)
            for place, name in enumerate(names):
                if (row := self._row.get(f"{prefix}{name}")) is not None:
                    offers.setdefault(row, place)
            if not offers and (own := next((name for name in names if name in self._row), None)):
                short = own.partition(f"_{problem.ndim}d_")[2]
                raise UserError(f"offered has {own}, a name of the model; give the library's own, as in {short}")
        return offers

    def choose(self, problem: Problem, offered: Sequence[str], library: str) -> int:
        """Return the row of the candidate to run of those that the library offers, by its own names in its order.

        ``NO_CANDIDATE``: the library's own choice, the first that runs, because no other is sure to be faster, or
        the model is not known to gain on problems of its kind at its distance (``own_choice.chosen``).
        ``library`` is what offers them, with its version (``NAME VERSION``); another than was measured keeps its own
        choice, with a warning. A tuned choice that is offered goes first. The header's ``choose`` gives the same.
        """
        offers = self._offers(problem, offered, library)
        tuned = self.tuned(problem)
        if tuned and self._row[tuned.candidate] in offers:
            return self._row[tuned.candidate]
        if 0 not in offers.values():
            return NO_CANDIDATE
        rows, problems = np.array([*offers]), self.frame(self.dims_of(problem))
        gains, margins = self.expected([problem]).gains, self.spec.own_margins or []
        (best,) = own_choice.chosen(problems, self._scores(problems, rows)[None], np.array([0]), gains, margins)
        return NO_CANDIDATE if best == 0 else int(rows[best])

    @property
    def library(self) -> str | None:
        """What offers the candidates, with the version that was measured; None if no library does."""
        return None if self.spec.own_margins is None else self.spec.library

    def _is_of(self, library: str) -> bool:
        """Return whether the candidates are of a library in this version; ``UserError`` if no library offers them."""
        measured = self.library
        if measured is None:
            raise UserError(f"{self.folder}: its candidates are offered by no library; use select")
        require("library", library, str, f"its name and version, such as {measured!r}")
        if measured.split()[-1].isdigit() and not re.fullmatch(r"\S+ \d+", library):
            # Another form of the same version would pass for another version.
            raise UserError(f"library is {shown(library)}; write its name and the number it reports, as {measured!r}")
        if library != measured:
            message = f"{self.folder}: measured with {measured!r}, not with {library!r}: its own choice is kept"
            warnings.warn(message, stacklevel=4)
        return library == measured

    def _prefix(self, ndim: int) -> str:
        """Return what comes before a library's own name in the names of its candidates."""
        kernel = next((name for name in self.kernels if f"_{ndim}d_" in name), "")
        return "".join(kernel.partition(f"_{ndim}d_")[:2])

    def dims_of(self, problem: Problem) -> np.ndarray:
        """Return a problem as a row of ``Model.columns``, int64 [1, n].

        ``UserError`` for one of another operation, or of a layout that the model does not know.
        """
        self._check_operation(problem)
        layout = problem.layout or LAYOUTS[self._default_layout]
        if (problem.layout or len(self.model.columns) > len(DIMS)) and not self.knows(problem.ndim, layout):
            name = _in_axes(layout, problem.ndim)
            raise UserError(
                f"the problem's layout is {name}, but {self._known_layouts}; no layer of another layout was measured"
            )
        return np.array([[*problem.dims, LAYOUTS.index(layout)][: len(self.model.columns)]])

    def _with_layouts(self, dims: np.ndarray) -> np.ndarray:
        """Return ``dims`` as int64 [n, columns] after ``checked_dims``; rows without a layout have the first."""
        columns = len(self.model.columns)
        if columns == len(DIMS):
            return checked_dims(dims)
        values = np.asarray(dims)
        if values.ndim != 2 or values.shape[1] != columns:
            values = checked_dims(values)
            values = np.column_stack([values, np.full(len(values), self._default_layout)])
        else:
            values = np.column_stack([checked_dims(values[:, :-1]), values[:, -1].astype(np.int64)])
        pairs = np.stack([ndims(values), values[:, -1]])
        allowed = [(ndim, LAYOUTS.index(layout)) for ndim, layout in self._layouts]
        wrong = ~np.any([(pairs == np.array([pair]).T).all(axis=0) for pair in allowed], axis=0)
        if wrong.any():
            row = int(wrong.argmax())
            names = ", ".join(f"{code} in {ndim}D ({LAYOUTS[code]})" for ndim, code in allowed)
            raise UserError(f"problems, row {row}: {pairs[0, row]}D of layout {pairs[1, row]}; the model knows {names}")
        return values

    def _dims_of_table(self, table: pd.DataFrame) -> np.ndarray:
        """Return a table's columns of dimensions, and its layouts, as ``select`` takes them."""
        for name in DIMS:
            if name not in table:
                near = next((each for each in table if each not in DIMS and meant(str(each), 0.6, [name])), None)
                advice = f"is it {near}? Rename it to {name}" if near else f"a table of problems has {', '.join(DIMS)}"
                raise UserError(f"problems: there is no column {name!r}; {advice}")
        for name, own in (("variant", self.spec.variant), ("dtype", self.spec.dtype)):
            if name in table and not (table[name] == own).all():
                raise UserError(
                    f"problems: column {name} has others than {own}; the model is for {self.spec.operation}: give the "
                    f"rows with {own}, or drop the column to have all as if of {own}"
                )
        dims = table[[*DIMS]].to_numpy()
        if dims.dtype.kind not in "iu":
            for name in DIMS:
                # Other tools make floats of whole numbers; no size is as large as 2**53.
                values = table[name].tolist()
                whole = [
                    isinstance(each, int | float) and not isinstance(each, bool) and abs(each) < 2**53 and each % 1 == 0
                    for each in values
                ]
                if False in whole:
                    row = whole.index(False)
                    raise UserError(f"problems: row {row}, {name} is {shown(values[row])}; give a whole number")
            dims = table[[*DIMS]].astype(np.int64).to_numpy()
        if "layout" not in table:
            return dims
        codes = {(ndim, ""): self._default_layout for ndim in (2, 3)}
        for ndim, layout in self._layouts:
            codes |= dict.fromkeys([(ndim, layout), (ndim, _in_axes(layout, ndim))], LAYOUTS.index(layout))
        found = [codes.get(pair) for pair in zip(ndims(dims).tolist(), table["layout"], strict=True)]
        if None in found:
            row = found.index(None)
            wrong = f"layout is {shown(table['layout'].iloc[row])}, but {self._known_layouts}"
            raise UserError(f"problems: row {row}, {wrong}; write these, or drop the column to take that of the model")
        return np.column_stack([dims, np.array(found, np.int64)])[:, : len(self.model.columns)]

    def frame(self, dims: np.ndarray) -> pd.DataFrame:
        """Return the rows of ``Model.columns`` as the problems that features and rules read."""
        if not isinstance(dims, np.ndarray) or dims.ndim != 2 or dims.shape[1] < len(DIMS):
            raise UserError(f"dims is {shown(dims)}; give rows such as dims_of(problem)")
        # At once: of one problem, pandas takes longer for each column than all that follows.
        columns: dict[str, Any] = dict(zip(DIMS, dims.T, strict=False))
        if dims.shape[1] > len(DIMS):
            columns["layout"] = np.array(LAYOUTS, object)[dims[:, -1]]
        columns |= {"variant": self.spec.variant, "dtype": self.spec.dtype, "ndim": ndims(dims)}
        return pd.DataFrame(columns)

    def knows(self, ndim: int, layout: str) -> bool:
        """Return whether the model is for this layout of ``problem.LAYOUTS``, or has no candidate for any."""
        own = set(self.model.layouts).intersection(DEEP_LAYOUTS.values() if ndim == 3 else LAYOUTS)
        return not own or _in_axes(layout, ndim) in own

    @property
    def _layouts(self) -> list[tuple[int, str]]:
        """The pairs of 2 or 3 dimensions and a layout that it knows."""
        return [(ndim, layout) for ndim in (2, 3) for layout in LAYOUTS if self.knows(ndim, layout)]

    @property
    def _known_layouts(self) -> str:
        """The same in words."""
        names = ", ".join(f"{_in_axes(layout, ndim)} in {ndim}D" for ndim, layout in self._layouts)
        return f"the model of {self.spec.operation} on {self.spec.arch} knows {names} only"

    @property
    def _default_layout(self) -> int:
        """Its place in ``problem.LAYOUTS``."""
        return LAYOUTS.index(self.model.layouts[0].replace("D", ""))

    @cached_property
    def aliases(self) -> dict[str, list[str]]:
        """The other names of kernels that have some: kernels with the same machine code."""
        pairs = zip(self.kernels, self.model.pool["aliases"], strict=True)
        return {kernel: names.split(candidates.ALIASES) for kernel, names in pairs if names}


_DEPTH = [DIMS.index(name) for name in ("Di", "Z", "stride_d", "pad_d", "dilation_d")]


def ndims(dims: np.ndarray) -> np.ndarray:
    """Return 2 or 3 of each problem: 3 where one of the depth fields says so."""
    return np.where((dims[:, _DEPTH] == (1, 1, 1, 0, 1)).all(axis=1), 2, 3)


def _in_axes(layout: str, ndim: int) -> str:
    """Return what a layout is called of tensors with so many spatial axes."""
    return DEEP_LAYOUTS[layout] if ndim == 3 else layout


def evidence_columns(dims: np.ndarray) -> dict[str, np.ndarray]:
    """Return rows of dimensions, with a layout or without, as the columns that evidence reads."""
    columns = dict(zip((*DIMS, "layout"), dims.T, strict=False))
    return {"layout": np.zeros(len(dims), np.int64), **columns, "ndim": ndims(dims)}


def checked_dims(dims: np.ndarray) -> np.ndarray:
    """Return ``dims`` as int64 [n, 19] after making sure that each row is a convolution; see ``Problem``."""
    values = np.asarray(dims)
    if values.ndim != 2 or values.shape[1] != len(DIMS) or values.dtype.kind not in "iu":
        given = f"an array of {values.dtype} with shape {values.shape}" if values.ndim else shown(dims)
        raise UserError(
            f"problems: {given}; give integers of shape (n, {len(DIMS)}), such as selector.dims_of({PROBLEM}), or "
            f"a table with the columns {', '.join(DIMS)}: tileseer.problems.problem.problem_frame([PROBLEM, ...])"
        )
    wrong = wrong_rows(values)
    if wrong.any():
        row = int(wrong.argmax())
        try:
            Problem.from_dims("forward", "bf16", **dict(zip(DIMS, values[row].tolist(), strict=True)))
        except UserError as error:
            raise UserError(f"problems, row {row}: {error}") from error
    return values.astype(np.int64)
