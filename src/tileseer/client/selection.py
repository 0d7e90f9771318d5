"""Selection with a published model: which supported candidate is fastest for a problem.

``select`` answers many problems at once, exactly as the published C++ header does; ``rank`` lists every candidate of
one problem.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd

from tileseer.client.published import published, read_picker
from tileseer.conv.problem import DIMS, INT32_MAX, Problem, frame
from tileseer.core import documents
from tileseer.core.errors import UserError
from tileseer.dataset import own_choice
from tileseer.families.grammar import SPELLED
from tileseer.families.registry import of_arch
from tileseer.families.support_rules import check
from tileseer.model import model_files
from tileseer.model.model import Model, read_table, units
from tileseer.model.schema import Origin, same_origin
from tileseer.serving import guarantee, known_problems
from tileseer.serving.picker import NO_CANDIDATE, Picker
from tileseer.serving.schema import Gaps, Kernels, Serving


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
    served: Picker
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
        listed, folder = published(models, operation, arch)
        serving = documents.read(folder / model_files.SERVING, Serving)
        kernels = documents.read(folder / model_files.KERNELS, Kernels)
        model = Model.read(folder)
        wanted = Origin(operation=operation, arch=listed.arch, device=listed.device, device_kind=listed.device_kind)
        parts = {model_files.SPEC: model.spec, model_files.SERVING: serving, model_files.KERNELS: kernels}
        for name, part in parts.items():
            same_origin(folder / name, part, wanted, model_files.INDEX, "publish them again", Origin.model_fields)
        served = read_picker(folder, listed, operation)
        if [served.candidates[place] for place in np.argsort(served.row)] != model.pool["candidate"].tolist():
            raise UserError(
                f"{folder / model_files.PICKER}: its candidates are not those of {model_files.CANDIDATES} beside it; "
                "publish the models again"
            )
        return cls(
            **vars(model),
            folder=folder,
            served=served,
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
        return Picks(*self.served.pick(checked_dims(dims), use_known=use_known, pruned_only=pruned_only))

    def choose(self, wanted: Problem, offered: Sequence[str], library: str) -> int:
        """The row of the candidate to run of those that the library offers, by its own names in its own order.

        ``NO_CANDIDATE``: the library's own choice, the first that runs, because no other is sure to be faster.
        ``library`` is what offers them, with its version (``cudnn 91900``); of another than was measured nothing is
        known, which is a warning. The header's ``choose`` gives the same.
        """
        if self.spec.own_margins is None:
            raise UserError(f"{self.folder}: its candidates are offered by no library; use select")
        if library != self.spec.library:
            told = f"{self.folder}: measured with {self.spec.library}, not with {library}: its own choice is kept"
            warnings.warn(told, stacklevel=2)
            return NO_CANDIDATE
        spelled = SPELLED.get(self.spec.variant, self.spec.variant)
        prefix = f"{of_arch(self.spec.arch).prefix}{spelled}_{self.spec.dtype}_{wanted.ndim}d_"
        rows = pd.Index(self.pool["kernel"]).get_indexer([prefix + name for name in offered])
        if not len(rows) or rows[0] < 0:
            return NO_CANDIDATE
        rows = rows[rows >= 0]
        score = self.predict(frame([wanted]), np.zeros(len(rows), np.int64), rows)
        best = int(score.argmax())
        margin = self.spec.own_margins[int(own_choice.grouping(np.array(wanted.G), np.array(wanted.C)))]
        return int(rows[best]) if score[best] - score[0] > margin else NO_CANDIDATE

    def refusals(self, wanted: Problem) -> dict[str, int]:
        """How many candidates each support rule refuses for a problem, by its reason, the most first."""
        table, rules = frame([wanted]), of_arch(self.spec.arch).part("support").RULES
        verdicts = check(table, self.pool, self.spec.variant, self.hardware.wave_size)[0]
        counts = Counter(rules[verdict - 1].reason for verdict in verdicts.tolist() if verdict)
        return dict(counts.most_common())

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


def _from_to(first: str, last: str) -> slice:
    return slice(DIMS.index(first), DIMS.index(last) + 1)


_LEAST = np.array([0 if name.startswith("pad") else 1 for name in DIMS])
_GROUPS, _CHANNELS = _from_to("G", "G"), _from_to("C", "K")
_AXES = [
    _from_to(f"{first}{depth}", f"{first}{width}")
    for first, depth, width in (("", "Di", "Wi"), ("", "Z", "X"), ("pad_", "d", "w"), ("dilation_", "d", "w"))
]
"""Slices, which are views: of one problem an array of positions takes ten times as long."""


def checked_dims(dims: np.ndarray) -> np.ndarray:
    """``dims`` as int64 [n, 19] after making sure that each row is a convolution; see ``Problem``."""
    values = np.asarray(dims)
    if values.ndim != 2 or values.shape[1] != len(DIMS) or values.dtype.kind not in "iu":
        raise UserError(
            f"problems: an array of {values.dtype} with shape {values.shape}; give integers of shape (n, {len(DIMS)}): "
            f"{', '.join(DIMS)}"
        )
    wrong = ((values < _LEAST) | (values > INT32_MAX)).any(axis=1)
    wide = values.astype(np.int64)
    wrong |= (wide[:, _CHANNELS] % np.maximum(wide[:, _GROUPS], 1) != 0).any(axis=1)
    image, extent, padding, dilation = (wide[:, axes] for axes in _AXES)
    wrong |= (image + 2 * padding - dilation * (extent - 1) - 1 < 0).any(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        given = dict(zip(DIMS, values[row].tolist(), strict=True))
        try:
            Problem.from_dims("forward", "bf16", **given)
        except UserError as error:
            raise UserError(f"problems, row {row}: {error}") from error
    return wide


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
