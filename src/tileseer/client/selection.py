"""Selection with a published model: which supported candidate is fastest for a problem.

``select`` answers many problems at once, with the small served model and the table of measured problems, exactly as
the published C++ header does; ``rank`` lists every candidate of one problem by the full model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

import lightgbm
import numpy as np
import pandas as pd
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tileseer.conv import problem
from tileseer.conv.operation import Operation
from tileseer.conv.problem import DIMS, INT32_MAX, Problem
from tileseer.core import parquet, seal
from tileseer.core.errors import UserError
from tileseer.core.tables import checked
from tileseer.families import learning
from tileseer.gpu.hardware import Hardware
from tileseer.model import cross_validation, features, model_files, trainer
from tileseer.model.prior import OFFSET
from tileseer.serving import guarantee, known_problems
from tileseer.serving.cascade import Cascade

NO_CANDIDATE = -1
_POOL_COLUMNS = ("candidate", "kernel", "split_k", OFFSET)


class _Document(BaseModel):
    """What the loader needs of a JSON document of a model directory; the rest of it is for readers."""

    model_config = ConfigDict(strict=True)


def _known_feature_set(name: str) -> str:
    if name not in features.FEATURE_SETS:
        raise ValueError(f"this release knows {', '.join(features.FEATURE_SETS)}; use the release that made the models")
    return name


_FeatureSet = Annotated[str, AfterValidator(_known_feature_set)]
_Positive = Annotated[int, Field(ge=1, le=INT32_MAX)]


class _Features(_Document):
    feature_names: list[str]
    feature_set: _FeatureSet


class _Guarantee(_Document):
    gaps: guarantee.Gaps


class _Serving(_Document):
    feature_set: _FeatureSet
    short_lists: list[Annotated[list[_Positive], Field(min_length=2, max_length=2)]]
    guarantee: _Guarantee


class _Kernels(_Document):
    pruned: list[str]


_NEEDED: dict[str, type[_Document]] = {
    model_files.SPEC: _Features,
    model_files.SERVING: _Serving,
    model_files.KERNELS: _Kernels,
}


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
class Selector:
    """A loaded model of one operation with the pool of candidates that it was published with."""

    operation: str
    arch: str
    device: str
    device_kind: str
    """Where the times came from that the model learnt: ``simulated`` choices are not advice for a real GPU."""
    booster: lightgbm.Booster
    spec: dict[str, Any]
    candidates: pd.DataFrame
    hardware: Hardware
    served: Cascade
    pruned: np.ndarray
    """bool [Q], candidates whose kernel is in the pruned set."""
    known: pd.DataFrame
    """Measured problems with their fastest candidate, columns of ``known_problems.SCHEMA``."""
    gaps: guarantee.Gaps
    """Calibration of ``guaranteed``; see ``serving.guarantee``."""

    @classmethod
    def load(cls, models: Path, operation: str, arch: str | None = None) -> Self:
        """Read one operation of a model directory; ``UserError`` in one line if anything in it does not fit.

        Checked are every hash, that the files belong to one operation and arch (``arch``, if it is given), that this
        release has the features that the models ask for, and the columns of the tables.
        """
        index = model_files.verify(models)
        if arch is not None and arch != index["arch"]:
            raise UserError(
                f"{models}: the models are for {index['arch']}, not for {arch}; give the directory of {arch}"
            )
        if operation not in index["operations"]:
            known = ", ".join(index["operations"])
            raise UserError(f"{models}: there is no model of operation {operation!r}; it has {known}")
        folder = models / index["operations"][operation]["folder"]
        spec = _of_operation(folder / model_files.SPEC, operation, index)
        hardware = read_hardware(folder / model_files.HARDWARE, index["arch"])
        serving = _of_operation(folder / model_files.SERVING, operation, index)
        kernels = _of_operation(folder / model_files.KERNELS, operation, index)
        pool = _pool(folder / model_files.CANDIDATES, index["arch"])
        own = features.feature_set(serving["feature_set"]).names
        served = load_booster(folder / model_files.SERVED_MODEL, {**serving, "feature_names": list(own)})
        return cls(
            operation=operation,
            arch=index["arch"],
            device=index["device"],
            device_kind=index["device_kind"],
            booster=load_booster(folder / model_files.MODEL, spec),
            spec=spec,
            candidates=pool,
            hardware=hardware,
            served=Cascade.of(Operation.parse(operation), hardware, served, serving["short_lists"], pool),
            pruned=pool["kernel"].isin(kernels["pruned"]).to_numpy(),
            known=_known(folder / model_files.KNOWN, pool),
            gaps=serving["guarantee"]["gaps"],
        )

    def select(self, dims: np.ndarray, *, use_known: bool = True, pruned_only: bool = False) -> Picks:
        """Return the pick of each of n problems; ``dims`` [n, 19] are integers in the order of ``problem.DIMS``.

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
        """Return the row of the candidate that was fastest when exactly this problem was measured, or -1."""
        return int(self._known_rows(np.array([[getattr(wanted, name) for name in DIMS]]))[0])

    def _known_rows(self, dims: np.ndarray) -> np.ndarray:
        found = (self._known_index.get(row.tobytes(), NO_CANDIDATE) for row in np.ascontiguousarray(dims, np.int64))
        return np.fromiter(found, np.int64, len(dims))

    @cached_property
    def _known_index(self) -> dict[bytes, int]:
        if self.known is None:
            return {}
        dims = np.ascontiguousarray(self.known[list(DIMS)].to_numpy(np.int64))
        return {row.tobytes(): candidate for row, candidate in zip(dims, self.known["row"].tolist(), strict=True)}

    def rank(self, wanted: Problem, top: int | None = None) -> pd.DataFrame:
        """Return the supported candidates, best first by the full model, at most ``top``; empty if there is none.

        Columns: ``rank`` (from 1), ``candidate``, ``kernel``, ``split_k``, ``score`` (space of the target) and, for a
        model of relative efficiency, ``predicted_efficiency`` (percent of the problem's best).
        """
        if f"{wanted.variant}_{wanted.dtype}" != self.operation:
            raise UserError(f"the problem is {wanted.variant}_{wanted.dtype}, but the model is for {self.operation}")
        problems = problem.frame([wanted])
        verdicts = learning.check(problems, self.candidates, wanted.variant, self.hardware.wave_size)
        pool = self.candidates[verdicts[0] == 0]
        pairs = np.zeros(len(pool), np.int64), np.arange(len(pool))
        score = trainer.predict(self.booster, self.spec, problems, pool, *pairs, self.hardware)
        order = np.argsort(-score, kind="stable")[:top]
        ranked = pool.iloc[order][["candidate", "kernel", "split_k"]].reset_index(drop=True)
        ranked.insert(0, "rank", np.arange(1, len(ranked) + 1))
        ranked["score"] = score[order]
        if self.spec["target"] == "relative":
            # The regression may score slightly above the best.
            ranked["predicted_efficiency"] = np.minimum(100 * np.exp(score[order]), 100.0)
        return ranked

    def guaranteed(self, wanted: Problem, confidence: float) -> pd.DataFrame:
        """Return the first rows of ``rank``: the smallest set that holds a near-best candidate with ``confidence``.

        Near-best, and under which assumption: ``serving.guarantee``. All rows where the calibration cannot promise it.
        """
        if not 0 < confidence < 1:
            raise UserError(f"confidence is {confidence}; it must lie between 0 and 1")
        ranked = self.rank(wanted)
        if ranked.empty:
            return ranked
        score = ranked["score"].to_numpy()
        unit = cross_validation.units(np.zeros(len(score), np.int64), score)[0]
        return ranked[score >= score.max() - unit * guarantee.threshold(self.gaps, wanted.ndim, confidence)]


def checked_dims(dims: np.ndarray) -> np.ndarray:
    """Return ``dims`` as int64 [n, 19] after making sure that each row is a convolution; see ``Problem``."""
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


def load_booster(path: Path, spec: dict[str, Any]) -> lightgbm.Booster:
    """Read a model text; ``UserError`` if it is damaged or its features are not those of ``spec`` or this release."""
    seal.check(path)
    try:
        booster = lightgbm.Booster(model_str=path.read_text(encoding="utf-8"))
    except (lightgbm.basic.LightGBMError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is no LightGBM model ({error}); train it again") from error
    if booster.feature_name() != spec["feature_names"]:
        raise UserError(f"{path}: its features are not those of {model_files.SPEC} beside it; publish the model again")
    unknown = sorted(set(spec["feature_names"]) - set(features.feature_set(spec["feature_set"]).names))
    if unknown:
        raise UserError(
            f"{path}: this release's feature set {spec['feature_set']!r} has no {unknown[0]!r}; train the model again"
        )
    return booster


def read_hardware(path: Path, arch: str) -> Hardware:
    """Read the product that a model was trained for; ``UserError`` if it is damaged or of another ``arch``."""
    hardware = checked(model_files.read_json(path), Hardware, str(path))
    if hardware.arch != arch:
        raise UserError(f"{path}: arch is {hardware.arch}, but the models are for {arch}; publish them again")
    return hardware


def _of_operation(path: Path, operation: str, index: dict[str, Any]) -> dict[str, Any]:
    content = model_files.read_json(path)
    checked(content, _NEEDED[path.name], str(path))
    for field, wanted in (
        ("operation", operation),
        *((name, index[name]) for name in ("arch", "device", "device_kind")),
    ):
        if content.get(field) != wanted:
            raise UserError(
                f"{path}: {field} is {content.get(field)!r}, but {model_files.INDEX} says {wanted!r}; "
                "publish them again"
            )
    return content


def _pool(path: Path, arch: str) -> pd.DataFrame:
    """Read the candidates that a model chooses from: kernels of the arch's family, as their names say."""
    family = learning.of_arch(arch)
    pool = _table(path, (*_POOL_COLUMNS, *family.fields))
    names = pool["kernel"].astype(str).tolist()
    foreign = next((name for name in names if not name.startswith(family.family.prefix)), None)
    if foreign is not None:
        raise UserError(f"{path}: {foreign} is no kernel of {arch}; publish the models again")
    said = family.frame(names)
    for field in family.fields:
        wrong = pool[field].to_numpy() != said[field].to_numpy()
        if wrong.any():
            row = int(wrong.argmax())
            raise UserError(
                f"{path}: {field} of {names[row]} is {pool[field].iloc[row]!r}, its name says "
                f"{said[field].iloc[row]!r}; publish the models again"
            )
    if pool[OFFSET].dtype.kind != "f" or not np.isfinite(pool[OFFSET]).all():
        raise UserError(f"{path}: column {OFFSET} has to be finite numbers; publish the models again")
    return pool


def _known(path: Path, pool: pd.DataFrame) -> pd.DataFrame:
    """Read the fastest candidate of the measured problems; they are rows of the pool."""
    known = _table(path, known_problems.SCHEMA.names)
    names = pool["candidate"].to_numpy(object)
    row = known["row"].to_numpy()
    if (
        row.dtype.kind not in "iu"
        or ((row < 0) | (row >= len(names))).any()
        or (names[row] != known["candidate"]).any()
    ):
        raise UserError(
            f"{path}: its rows are not those of {model_files.CANDIDATES} beside it; publish the models again"
        )
    return known


def _table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    table = parquet.read(path)
    missing = [name for name in columns if name not in table.schema.names]
    if missing:
        raise UserError(f"{path}: column {missing[0]} is missing; publish the models again")
    return table.to_pandas()
