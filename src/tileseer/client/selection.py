"""Selection with a published model: which supported candidate is fastest for a problem.

``select`` answers many problems at once, with the cascade and the table of measured problems, exactly as the published
C++ header does; ``rank`` lists every candidate of one problem.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd

from tileseer.conv.problem import DIMS, INT32_MAX, Problem
from tileseer.core import documents
from tileseer.core.errors import UserError
from tileseer.model import index, model_files
from tileseer.model.model import Model, read_table, units
from tileseer.model.schema import Origin, same_origin
from tileseer.serving import guarantee, known_problems
from tileseer.serving.cascade import Cascade
from tileseer.serving.schema import Gaps, Kernels, Serving

NO_CANDIDATE = -1


@dataclass(frozen=True)
class Picks:
    """The answer to n problems."""

    candidate: np.ndarray
    """int64 [n], row of the pool; -1 where nothing can run the problem."""
    score: np.ndarray
    """float64 [n], logarithm of the predicted relative efficiency; 0 for a measured one, -inf without a pick."""
    known: np.ndarray
    """bool [n], taken from the table of measured problems."""


@dataclass(frozen=True)
class Selector(Model):
    """A published model of one operation, with what serves it.

    Its times may be ``simulated`` (``spec.device_kind``): such choices are not advice for a real GPU.
    """

    folder: Path
    served: Cascade
    pruned: np.ndarray
    """bool [Q], candidates whose kernel is in the pruned set."""
    known: pd.DataFrame
    """Measured problems with their fastest candidate, columns of ``known_problems.SCHEMA``."""
    gaps: dict[str, Gaps]
    groups: int
    """Calibration of ``guaranteed``; see ``serving.guarantee``."""

    @classmethod
    def load(cls, models: Path, operation: str, arch: str | None = None) -> Self:
        """Read one operation of a model directory; ``UserError`` in one line if anything in it does not fit.

        Checked are every hash, that the files belong to one operation and arch (``arch``, if it is given), that this
        release has the features that the models ask for, and the columns of the tables.
        """
        listed = index.verify(models)
        if operation not in listed.operations:
            told = f"there is no model of operation {operation!r}; it has {', '.join(listed.operations)}"
            raise UserError(f"{models / model_files.INDEX}: {told}")
        folder = models / listed.operations[operation].folder
        if arch is not None and arch != listed.arch:
            raise UserError(f"{models}: the models are for {listed.arch}, not for {arch}; give the directory of {arch}")
        serving = documents.read(folder / model_files.SERVING, Serving)
        kernels = documents.read(folder / model_files.KERNELS, Kernels)
        model = Model.read(folder)
        wanted = Origin(operation=operation, arch=listed.arch, device=listed.device, device_kind=listed.device_kind)
        parts = {model_files.SPEC: model.spec, model_files.SERVING: serving, model_files.KERNELS: kernels}
        for name, part in parts.items():
            same_origin(folder / name, part, wanted, model_files.INDEX, "publish them again", Origin.model_fields)
        finalists = np.zeros(len(model.pool), bool)
        finalists[[row for row in serving.finalists if row < len(finalists)]] = True
        return cls(
            **vars(model),
            folder=folder,
            served=Cascade.of(model, finalists, tuple(serving.stages)),
            pruned=model.pool["kernel"].isin(kernels.pruned).to_numpy(),
            known=_known(folder / model_files.KNOWN, model.pool),
            gaps=serving.guarantee.gaps,
            groups=serving.guarantee.groups,
        )

    def select(self, dims: np.ndarray, *, use_known: bool = True, pruned_only: bool = False) -> Picks:
        """The pick of each of n problems; ``dims`` [n, 19] are integers in the order of ``problem.DIMS``.

        ``use_known``: a problem that was measured gets its fastest measured candidate. ``pruned_only``: choose among
        the kernels of the pruned set. ``UserError`` names the first row that is no convolution.
        """
        wanted = checked_dims(dims)
        allowed = self.pruned if pruned_only else None
        candidate, score = np.full(len(wanted), NO_CANDIDATE), np.full(len(wanted), -np.inf)
        known = np.zeros(len(wanted), bool)
        if use_known:
            found = self._known_rows(wanted)
            known = (found >= 0) & (True if allowed is None else allowed[found])
            candidate[known], score[known] = found[known], 0.0
        candidate[~known], score[~known] = self.served.pick(wanted[~known], allowed)
        return Picks(candidate, score, known)

    def known_row(self, wanted: Problem) -> int:
        """The row of the candidate that was fastest when exactly this problem was measured, or -1."""
        return int(self._known_rows(np.array([[getattr(wanted, name) for name in DIMS]]))[0])

    def _known_rows(self, dims: np.ndarray) -> np.ndarray:
        found = (self._known_index.get(row.tobytes(), NO_CANDIDATE) for row in np.ascontiguousarray(dims, np.int64))
        return np.fromiter(found, np.int64, len(dims))

    @cached_property
    def _known_index(self) -> dict[bytes, int]:
        dims = np.ascontiguousarray(self.known[list(DIMS)].to_numpy(np.int64))
        return {row.tobytes(): candidate for row, candidate in zip(dims, self.known["row"].tolist(), strict=True)}

    def guaranteed(self, wanted: Problem, confidence: float) -> pd.DataFrame:
        """The first rows of ``rank``: the smallest set that holds a near-best candidate with ``confidence``.

        Near-best, and under which assumption: ``serving.guarantee``. All rows where the calibration cannot promise it.
        """
        if not 0 < confidence < 1:
            raise UserError(f"confidence is {confidence}; it must lie between 0 and 1")
        ranked = self.rank(wanted)
        if ranked.empty:
            return ranked
        score = ranked["score"].to_numpy()
        unit = units(np.zeros(len(score), np.int64), score)[0]
        asked = guarantee.level(confidence, self.groups)
        return ranked[score >= score.max() - unit * guarantee.threshold(self.gaps, wanted.ndim, asked)]


def checked_dims(dims: np.ndarray) -> np.ndarray:
    """``dims`` as int64 [n, 19] after making sure that each row is a convolution; see ``Problem``."""
    values = np.asarray(dims)
    if values.ndim != 2 or values.shape[1] != len(DIMS) or values.dtype.kind not in "iu":
        raise UserError(
            f"problems: an array of {values.dtype} with shape {values.shape}; give integers of shape (n, {len(DIMS)}): "
            f"{', '.join(DIMS)}"
        )
    least = np.array([0 if name.startswith("pad") else 1 for name in DIMS])
    wrong = ((values < least) | (values > INT32_MAX)).any(axis=1)
    p = {name: values[:, i].astype(np.int64) for i, name in enumerate(DIMS)}
    groups = np.maximum(p["G"], 1)
    wrong |= (p["C"] % groups != 0) | (p["K"] % groups != 0)
    for image, extent, axis in (("Di", "Z", "d"), ("Hi", "Y", "h"), ("Wi", "X", "w")):
        wrong |= p[image] + 2 * p[f"pad_{axis}"] - p[f"dilation_{axis}"] * (p[extent] - 1) - 1 < 0
    if wrong.any():
        row = int(wrong.argmax())
        given = dict(zip(DIMS, values[row].tolist(), strict=True))
        try:
            Problem.from_dims("forward", "bf16", **given)
        except UserError as error:
            raise UserError(f"problems, row {row}: {error}") from error
    return values.astype(np.int64)


def _known(path: Path, pool: pd.DataFrame) -> pd.DataFrame:
    """The fastest candidate of the measured problems; they are rows of the pool."""
    known = read_table(path, known_problems.SCHEMA.names)
    names = pool["candidate"].to_numpy(object)
    row = known["row"].to_numpy()
    rows = row.dtype.kind in "iu" and ((row >= 0) & (row < len(names))).all()
    if not rows or (names[row] != known["candidate"]).any():
        raise UserError(
            f"{path}: its rows are not those of {model_files.CANDIDATES} beside it; publish the models again"
        )
    return known
