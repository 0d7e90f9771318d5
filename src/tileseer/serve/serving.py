"""The serving stage: what a dispatcher runs of a trained model.

C++ header, arrays for Python, known problems, kernel list and figures of one operation.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.config.model import ServingParameters, ServingSettings
from tileseer.core import documents, parquet
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.core.script import Settings
from tileseer.costmodel.coefficients import Coefficients, load_coefficients
from tileseer.costmodel.resources import REGISTERS
from tileseer.dataset import efficiency, own_choice
from tileseer.dataset.dataset import Dataset
from tileseer.gpus.hardware import target
from tileseer.kernels import candidates
from tileseer.kernels.emission import EMITTERS
from tileseer.kernels.registry import of_arch
from tileseer.learn import cross_validation, model_files, ranking
from tileseer.learn.model import Model, read_out_of_fold
from tileseer.learn.model_schema import Origin, Summary
from tileseer.problems import layers as layer_tables
from tileseer.problems.problem import DIMS
from tileseer.serve import guarantee, header, kernel_set, known_problems, packing, serving_files
from tileseer.serve.cascade import Cascade
from tileseer.serve.selector import Selector
from tileseer.serve.serving_files import KernelEntry


@dataclass(frozen=True)
class Served:
    """What the stage writes."""

    header: str
    selector: Selector
    known: pa.Table
    kernels: serving_files.Kernels
    figures: serving_files.Serving
    estimates: Coefficients | serving_files.NoEstimates

    def save(self, folder: Path) -> None:
        """Write ``model_files.SERVING_FILES`` into ``folder``, each whole or not at all."""
        write_text(folder / model_files.SELECTOR, self.header, sealed=True)
        self.selector.save(folder / model_files.PICKER)
        documents.write_document(folder / model_files.KERNELS, self.kernels)
        documents.write_document(folder / model_files.SERVING, self.figures)
        documents.write_document(folder / model_files.ESTIMATES, self.estimates)
        parquet.write_table(self.known, folder / model_files.KNOWN)


def serve(
    dataset: Path,
    training: Path,
    template: Path,
    api: Path,
    coefficients: Path,
    layers: Path | None,
    threads: int,
    settings: Settings,
) -> tuple[Served, str]:
    """C++ header, known problems, kernel list and figures of a trained model; and a line about them."""
    measurements = Dataset.read(dataset)
    served = build(
        measurements,
        Model.read_for(training, measurements, dataset),
        read_out_of_fold(training),
        template,
        api,
        load_coefficients(coefficients),
        ServingSettings.of(settings, "serving").overrides,
        threads,
        {name: network.family for name, network in layer_tables.read_networks(layers).items()} if layers else {},
    )
    return served, summary(served, own_choice.of(measurements) is not None)


def summary(served: Served, by_library: bool) -> str:
    """A line about what was made; ``by_library``: a library offers the candidates."""
    cost, kernels = served.figures.validation, served.kernels
    if by_library:
        loss = "all that the library offers is scored, by all trees"
    elif cost is None:
        loss = "no problems were set aside to judge the served model"
    else:
        reached = cost.efficiency.served_model
        loss = (
            f"{cost.n_problems} unseen problems, served efficiency mean {reached.mean:.2f} %, p10 {reached.p10:.2f} %, "
            f"{cost.loss_of_mean.served_model:.2f} points of the mean below the full model"
        )
    return (
        f"{loss} ({kernels.device_kind}); {kernels.pruned_size} of {kernels.pool_size} kernels are enough for a loss "
        f"of {100 * kernels.allowed_loss:g} %"
    )


def build(
    measurements: Dataset,
    model: Model,
    out_of_fold: pd.DataFrame,
    template: Path,
    api_table: Path,
    coefficients: Coefficients,
    settings: ServingParameters,
    threads: int = 1,
    networks: Mapping[str, str] | None = None,
) -> Served:
    """Make what serves ``model``; ``template`` is that of the C++ header.

    ``out_of_fold`` calibrates the guarantee, by family of ``networks`` (network to family); ``coefficients`` are
    published: kernels outside the pool can be scored.
    """
    pool = model.pool
    scores = _scores(measurements, model, threads)
    cascade = _cascade(measurements, model, scores, settings, threads)
    achieved = _achieved(measurements, model)
    origin = Origin.of(measurements)
    kernels = _kernels(measurements, pool, achieved, api_table, settings)
    pruned = pool["kernel"].isin(kernels.pruned).to_numpy()
    known = known_problems.known_problems_table(measurements, pool, achieved)
    selector = Selector(packing.selector_arrays(cascade, pruned, known, origin))
    set_aside = ranking.has_validation_split(measurements)
    unseen = ranking.validation_rows(measurements) if set_aside else np.empty(0, np.int64)
    unseen = unseen[measurements.best_tflops[unseen] > 0]
    judged = set_aside and own_choice.of(measurements) is None
    return Served(
        header=header.render_header(template, cascade, pruned, known, origin),
        selector=selector,
        known=known,
        kernels=kernels,
        figures=serving_files.Serving(
            **origin.model_dump(),
            feature_set=model.spec.feature_set,
            trees=model.booster.num_trees(),
            finalists=np.flatnonzero(cascade.finalists).tolist(),
            stages=list(cascade.cuts),
            known_problems=known.num_rows,
            validation=_cost(measurements, unseen, scores, selector, achieved) if judged else None,
            guarantee=_guarantee(measurements.problems, unseen, out_of_fold, networks or {}, scores, achieved),
        ),
        estimates=coefficients if cascade.family.name in REGISTERS else serving_files.NoEstimates(),
    )


def header_of(measurements: Dataset, model: Model, template: Path, threads: int = 1) -> str:
    """The C++ header alone of a model, all of whose kernels are linked."""
    scores = _scores(measurements, model, threads)
    cascade = _cascade(measurements, model, scores, ServingParameters(), threads)
    known = known_problems.known_problems_table(measurements, model.pool, _achieved(measurements, model))
    return header.render_header(template, cascade, np.ones(len(model.pool), bool), known, Origin.of(measurements))


def _achieved(measurements: Dataset, model: Model) -> np.ndarray:
    """Measured efficiency of the pool's candidates on all problems, [P, Q]; 0 where there is none."""
    return measurements.grid(np.arange(len(measurements.problems)))[:, ranking.positions(measurements, model)]


def _scores(measurements: Dataset, model: Model, threads: int) -> np.ndarray:
    """Scores of the pool, [P, Q]; -inf where a candidate cannot run or is not offered."""
    scores = model.predict(measurements.problems, threads=threads)
    if own_choice.of(measurements) is None:
        return scores
    return np.where(own_choice.offered(measurements)[:, ranking.positions(measurements, model)], scores, -np.inf)


def _cascade(
    measurements: Dataset, model: Model, scores: np.ndarray, settings: ServingParameters, threads: int
) -> Cascade:
    dims = measurements.problems[list(DIMS)].to_numpy(np.int64)
    training = measurements.trains & np.isfinite(scores).any(axis=1)
    if not training.any():
        raise UserError(f"{measurements.operation}: no candidate can run a training problem; there is nothing to serve")
    return Cascade.calibrated(model, dims[training], scores[training], settings.walks, threads)


def _kernels(
    measurements: Dataset, pool: pd.DataFrame, achieved: np.ndarray, api_table: Path, settings: ServingParameters
) -> serving_files.Kernels:
    """The kernels of the pool and the pruned set."""
    number, names = pd.factorize(pool["kernel"], sort=True)
    by_kernel = kernel_set.best_by_kernel(achieved, number, len(names))
    split = measurements.problems["split"].to_numpy()
    parts = {name: (split == name) & (by_kernel.max(axis=1) > 0) for name in ("train", "validation") if name in split}
    own = by_kernel[parts["train"]]
    chosen = kernel_set.smallest_set(own, np.full(len(own), 1 / len(own)), settings.pruned_loss)
    aliases = dict(zip(pool["kernel"], pool["aliases"], strict=True))
    return serving_files.Kernels(
        **Origin.of(measurements).model_dump(),
        meaning="`pruned` alone loses at most `allowed_loss` of the mean efficiency on the training problems, "
        "measured best against measured best; `oracle_within_pruned` is that share, in percent",
        allowed_loss=settings.pruned_loss,
        pool_size=len(names),
        pruned_size=len(chosen),
        oracle_within_pruned={
            name: Summary.of(by_kernel[rows][:, chosen].max(axis=1) / by_kernel[rows].max(axis=1))
            for name, rows in parts.items()
        },
        pruned=[str(names[number]) for number in chosen],
        kernels=_entries(list(map(str, names)), aliases, api_table, measurements.arch),
    )


def _entries(names: list[str], aliases: Mapping[str, str], api_table: Path, arch: str) -> list[KernelEntry]:
    """How a dispatcher finds each kernel; ``aliases``: other names of kernels."""
    family = of_arch(arch)
    if family.name in EMITTERS:
        entries = EMITTERS[family.name].entries(names, api_table, target(arch))
    else:
        entries = [{"kernel": name, "registry_key": asdict(family.kernel.parse(name))} for name in names]
    return [
        KernelEntry(**entry, aliases=aliases.get(name, "").split(candidates.ALIASES) if aliases.get(name) else None)
        for name, entry in zip(names, entries, strict=True)
    ]


def _cost(
    measurements: Dataset, rows: np.ndarray, scores: np.ndarray, selector: Selector, achieved: np.ndarray
) -> serving_files.Cost:
    """What serving costs on the validation problems ``rows``: full model, served model, served from the pruned set."""
    dims = measurements.problems[list(DIMS)].to_numpy(np.int64)[rows]

    def reached(candidate: np.ndarray) -> np.ndarray:
        return np.where(candidate >= 0, achieved[rows, candidate], 0.0)

    best = np.where(np.isfinite(scores[rows]).any(axis=1), scores[rows].argmax(axis=1), -1)
    served = selector.select(dims, use_known=False).candidate
    full, small = reached(best), reached(served)
    pruned = reached(selector.select(dims, use_known=False, pruned_only=True).candidate)
    return serving_files.Cost(
        n_problems=len(rows),
        efficiency=serving_files.Efficiencies(
            full_model=Summary.of(full), served_model=Summary.of(small), served_from_pruned_set=Summary.of(pruned)
        ),
        loss_of_mean=serving_files.Losses(
            served_model=efficiency.percent(full.mean() - small.mean()),
            served_from_pruned_set=efficiency.percent(full.mean() - pruned.mean()),
        ),
        same_pick=efficiency.percent(np.mean(served == best)),
    )


def _guarantee(
    problems: pd.DataFrame,
    rows: np.ndarray,
    out_of_fold: pd.DataFrame,
    networks: Mapping[str, str],
    scores: np.ndarray,
    achieved: np.ndarray,
) -> serving_files.Guarantee:
    """Calibration of ``select --confidence`` and its coverage on the validation problems ``rows``."""
    groups = guarantee.groups_of(problems[problems["split"] == "train"], networks)
    calibrating = out_of_fold[["problem_key", "ndim", "gap"]].merge(groups, on="problem_key")
    gaps = guarantee.calibrate_gaps(calibrating)
    count = int(calibrating["group"].nunique())
    unseen = problems.iloc[rows]
    families = unseen["network"].map(lambda name: networks.get(name, name)).to_numpy()
    near = cross_validation.NEAR
    return serving_files.Guarantee(
        meaning="the set holds a candidate with at least `near` of the best efficiency; `gaps` are those of "
        "training problems with the share of the weight up to each, all groups weighing the same; `validation` is what "
        "the sets reach on networks that no model has seen, in percent, over problems and over families of networks",
        near=near,
        groups=count,
        gaps=gaps,
        validation=guarantee.coverage(
            gaps, count, unseen["ndim"].to_numpy(), families, scores[rows], achieved[rows], near
        )
        if len(rows)
        else [],
    )
