"""The serving stage: what a dispatcher runs of a trained model.

C++ header, arrays for Python, known problems, kernel list and figures of one operation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.conv import layers as layer_tables
from tileseer.conv.problem import DIMS
from tileseer.core import documents, parquet
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.core.stage import Settings
from tileseer.dataset import efficiency, own_choice
from tileseer.dataset import schema as datasets
from tileseer.dataset.measurements import Measurements
from tileseer.families import candidates
from tileseer.families.coefficients import Coefficients, load_coefficients
from tileseer.families.registry import of_arch
from tileseer.gpu.hardware import target
from tileseer.model import cross_validation, model_files
from tileseer.model.model import Model, read_out_of_fold
from tileseer.model.schema import Origin, Summary
from tileseer.serving import cascade, guarantee, header, kernel_set, known_problems, packing, schema, stages
from tileseer.serving.cascade import Cascade
from tileseer.serving.kernel_list import KernelEntry
from tileseer.serving.picker import Picker
from tileseer.settings.model import ServingParameters, ServingSettings
from tileseer.validation import ranking


@dataclass(frozen=True)
class Served:
    """What the stage writes."""

    header: str
    picker: Picker
    known: pa.Table
    kernels: schema.Kernels
    figures: schema.Serving
    estimates: Coefficients | schema.NoEstimates

    def save(self, folder: Path) -> None:
        """Write ``model_files.SERVING_FILES`` into ``folder``, each whole or not at all."""
        write_text(folder / model_files.SELECTOR, self.header, sealed=True)
        self.picker.save(folder / model_files.PICKER)
        documents.write(folder / model_files.KERNELS, self.kernels)
        documents.write(folder / model_files.SERVING, self.figures)
        documents.write(folder / model_files.ESTIMATES, self.estimates)
        parquet.write(self.known, folder / model_files.KNOWN)


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
    measurements = datasets.load(dataset)
    served = build(
        measurements,
        Model.read_for(training, measurements, dataset),
        read_out_of_fold(training),
        template,
        api,
        load_coefficients(coefficients),
        ServingSettings.of(settings, "serving").overrides,
        threads,
        {name: network.family for name, network in layer_tables.networks(layers).items()} if layers else {},
    )
    cost, kernels = served.figures.validation, served.kernels
    loses = (
        "all that the library offers is asked, by all trees"
        if own_choice.of(measurements) is not None
        else "no problems were set aside to judge the served model"
        if cost is None
        else (
            f"{cost.n_problems} unseen problems, served efficiency mean {cost.efficiency.served_model.mean:.2f} %, p10 "
            f"{cost.efficiency.served_model.p10:.2f} %, {cost.loss_of_mean.served_model:.2f} points of the mean below "
            "the full model"
        )
    )
    return served, (
        f"{loses} ({measurements.device_kind}); {kernels.pruned_size} of {kernels.pool_size} kernels are enough for 1 %"
    )


def build(
    measurements: Measurements,
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
    dims = measurements.problems[list(DIMS)].to_numpy(np.int64)
    scores = _scores(measurements, model, threads)
    served = _cascade(measurements, model, scores, settings, threads)
    achieved = efficiency.grid(measurements, np.arange(len(dims)))[:, ranking.positions(measurements, model)]
    origin = Origin.of(measurements)
    kernels = _kernels(measurements, origin, pool, achieved, api_table, settings)
    own = pool["kernel"].isin(kernels.pruned).to_numpy()
    known = known_problems.table(measurements, pool, achieved)
    set_aside = ranking.has_validation_split(measurements)
    unseen = ranking.validation_rows(measurements) if set_aside else np.empty(0, np.int64)
    unseen = unseen[efficiency.problem_best(measurements)[unseen] > 0]
    by_library = own_choice.of(measurements) is not None
    estimates = served.family.has("resources") and served.family.part("resources").FORMULAS
    picker = Picker(packing.packed(served, own, known, origin))
    return Served(
        header=header.render(template, served, own, known, origin),
        picker=picker,
        known=known,
        kernels=kernels,
        figures=schema.Serving(
            **origin.model_dump(),
            feature_set=model.spec.feature_set,
            trees=model.booster.num_trees(),
            finalists=np.flatnonzero(served.finalists).tolist(),
            stages=list(served.stages),
            known_problems=known.num_rows,
            validation=_cost(unseen, dims, scores, picker, achieved) if set_aside and not by_library else None,
            guarantee=_guarantee(measurements.problems, unseen, out_of_fold, networks or {}, scores, achieved),
        ),
        estimates=coefficients if estimates else schema.NoEstimates(),
    )


def header_of(measurements: Measurements, model: Model, template: Path, threads: int = 1) -> str:
    """The C++ header alone of a model, all of whose kernels are linked."""
    pool = model.pool
    served = _cascade(measurements, model, _scores(measurements, model, threads), ServingParameters(), threads)
    every = np.arange(len(measurements.problems))
    achieved = efficiency.grid(measurements, every)[:, ranking.positions(measurements, model)]
    known = known_problems.table(measurements, pool, achieved)
    return header.render(template, served, np.ones(len(pool), bool), known, Origin.of(measurements))


def _scores(measurements: Measurements, model: Model, threads: int) -> np.ndarray:
    """Scores of the pool, [P, Q]; -inf where a candidate cannot run or is not offered."""
    scores = model.scores(measurements.problems, threads)
    if own_choice.of(measurements) is None:
        return scores
    return np.where(own_choice.offered(measurements)[:, ranking.positions(measurements, model)], scores, -np.inf)


def _cascade(
    measurements: Measurements, model: Model, scores: np.ndarray, settings: ServingParameters, threads: int
) -> Cascade:
    """A model with who is asked first and who leaves when."""
    dims = measurements.problems[list(DIMS)].to_numpy(np.int64)
    runs = np.isfinite(scores)
    training = (measurements.problems["split"] == "train").to_numpy() & runs.any(axis=1)
    if not training.any():
        raise UserError(f"{measurements.operation}: no candidate can run a training problem; there is nothing to serve")
    chosen = stages.finalists(scores[training])
    whole = Cascade.of(model, chosen, ())
    asked = cascade.asked(runs[training], chosen)
    return replace(whole, stages=stages.calibrated(whole, dims[training], asked, settings.walks, threads))


def _kernels(
    measurements: Measurements, origin: Origin, pool: pd.DataFrame, achieved: np.ndarray, api_table: Path,
    settings: ServingParameters,
) -> schema.Kernels:  # fmt: skip
    """The kernels of the pool and the pruned set."""
    number, names = pd.factorize(pool["kernel"], sort=True)
    by_kernel = kernel_set.by_kernel(achieved, number, len(names))
    split = measurements.problems["split"].to_numpy()
    parts = {name: (split == name) & (by_kernel.max(axis=1) > 0) for name in ("train", "validation") if name in split}
    own = by_kernel[parts["train"]]
    chosen = kernel_set.smallest(own, np.full(len(own), 1 / len(own)), settings.pruned_loss)
    return schema.Kernels(
        **origin.model_dump(),
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
        kernels=_entries(
            list(map(str, names)), dict(zip(pool["kernel"], pool["aliases"], strict=True)), api_table, measurements.arch
        ),
    )


def _entries(names: list[str], aliases: Mapping[str, str], api_table: Path, arch: str) -> list[KernelEntry]:
    """How a dispatcher finds each kernel; ``aliases``: other names of kernels."""
    family = of_arch(arch)
    kernels = family.part("kernel")
    if family.has("emit"):
        entries = family.part("emit").entries(names, api_table, target(arch))
    else:
        parsed = map(kernels.parse, names)
        entries = [
            {"kernel": one.name, "registry_key": {field: getattr(one, field) for field in kernels.FIELDS}}
            for one in parsed
        ]
    return [
        KernelEntry(**entry, aliases=aliases.get(name, "").split(candidates.ALIASES) if aliases.get(name) else None)
        for name, entry in zip(names, entries, strict=True)
    ]


def _cost(rows: np.ndarray, dims: np.ndarray, scores: np.ndarray, picker: Picker, achieved: np.ndarray) -> schema.Cost:
    """What serving costs on the validation problems ``rows``: full model, served model, served from the pruned set."""
    everything = np.arange(len(rows))

    def reached(candidate: np.ndarray) -> np.ndarray:
        return np.where(candidate >= 0, achieved[rows][everything, candidate], 0.0)

    best = np.where(np.isfinite(scores[rows]).any(axis=1), scores[rows].argmax(axis=1), -1)
    quick, _, _ = picker.pick(dims[rows])
    few, _, _ = picker.pick(dims[rows], pruned_only=True)
    full, small, pruned = reached(best), reached(quick), reached(few)
    return schema.Cost(
        n_problems=len(rows),
        efficiency=schema.Efficiencies(
            full_model=Summary.of(full), served_model=Summary.of(small), served_from_pruned_set=Summary.of(pruned)
        ),
        loss_of_mean=schema.Losses(
            served_model=efficiency.percent(full.mean() - small.mean()),
            served_from_pruned_set=efficiency.percent(full.mean() - pruned.mean()),
        ),
        same_pick=efficiency.percent(np.mean(quick == best)),
    )


def _guarantee(
    problems: pd.DataFrame, rows: np.ndarray, out_of_fold: pd.DataFrame, networks: Mapping[str, str],
    scores: np.ndarray, achieved: np.ndarray,
) -> schema.Guarantee:  # fmt: skip
    """Calibration of ``select --confidence`` and its coverage on the validation problems ``rows``."""
    groups = guarantee.groups_of(problems[problems["split"] == "train"], networks)
    calibrating = out_of_fold[["problem_key", "ndim", "gap"]].merge(groups, on="problem_key")
    gaps = guarantee.calibrate(calibrating)
    count = int(calibrating["group"].nunique())
    unseen = problems.iloc[rows]
    families_of_networks = unseen["network"].map(lambda name: networks.get(name, name)).to_numpy()
    return schema.Guarantee(
        meaning="the set holds a candidate with at least `near` of the best efficiency; `gaps` are those of "
        "training problems with the share of the weight up to each, all groups weighing the same; `validation` is what "
        "the sets reach on networks that no model has seen, in percent, over problems and over families of networks",
        near=cross_validation.NEAR,
        groups=count,
        gaps=gaps,
        validation=guarantee.coverage(
            gaps,
            count,
            unseen["ndim"].to_numpy(),
            families_of_networks,
            scores[rows],
            achieved[rows],
            cross_validation.NEAR,
        )
        if len(rows)
        else [],
    )
