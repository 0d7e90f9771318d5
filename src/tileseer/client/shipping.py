"""Which kernels to ship: the smallest set that loses nothing that matters, with its price and its proof.

The set is chosen on the training problems (``serving.kernel_set``) and judged on networks that it was not chosen for.
The loss of a set is that of its best kernel against the pool's best, both as measured: what the model loses on top of
it is judged apart.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from tileseer.compile.cost import ESTIMATED_BYTES, ESTIMATED_SECONDS
from tileseer.conv import layers
from tileseer.conv.operation import Operation
from tileseer.conv.problem import DIMS
from tileseer.core import parquet, places
from tileseer.core.errors import UserError
from tileseer.dataset import efficiency
from tileseer.dataset.measurements import Measurements
from tileseer.families.registry import of_arch
from tileseer.gpu.arch import ArchSpecs
from tileseer.gpu.hardware import target
from tileseer.model.model import Model
from tileseer.model.schema import Summary
from tileseer.problems import foreign_problems, problem_table
from tileseer.reference import rule_sets
from tileseer.serving import kernel_set
from tileseer.validation import ranking

NEAR = 0.05
"""A set covers a problem well with a kernel this close to the pool's best."""
REFERENCE = ("tiny", "default")
"""Sets of the reference that a chosen set is compared with."""


@dataclass(frozen=True)
class Limits:
    """What a set may cost; None: no limit."""

    loss: float
    """Of the weighted mean efficiency; the set is the smallest one within it."""
    kernels: int | None = None
    bytes: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Pool:
    """The kernels of one operation to choose from, and what is known of them."""

    measurements: Measurements
    names: list[str]
    """K kernels, sorted."""
    weight: np.ndarray
    """[P], how much each problem counts for the choice; 0 where it is not chosen on. They sum to 1."""
    judged: np.ndarray
    """bool [P], problems that the set is judged on."""
    uses: pd.DataFrame
    """``problem_table.USES``: which network needs which problem; empty where nobody knows."""
    bytes: np.ndarray
    seconds: np.ndarray
    """[K], cost of each kernel."""
    costs: str | None
    """``measured``, or ``estimated`` where some are; None: the kernels come with their library, nothing is compiled."""

    @classmethod
    def of(cls, measurements: Measurements, results: Path, weight: "Weights | None" = None) -> Self:
        """The kernels of a dataset; below ``results`` may lie its builds and the layers of networks."""
        names = sorted(set(measurements.candidates["kernel"]))
        build = results / "build" / measurements.arch / measurements.operation
        uses = results / "problems" / f"{measurements.operation}.uses.parquet"
        code = measurements.candidates.groupby("kernel")["code_bytes"].max().reindex(names).to_numpy(np.float64)
        taken = _seconds(build).reindex(names).to_numpy(np.float64)
        known = (code > 0) & (taken > 0)
        runs = efficiency.problem_best(measurements) > 0
        if weight is None:
            counted = (measurements.problems["split"] == "train").to_numpy() & runs
            weights = counted.astype(np.float64)
        else:
            weights = np.where(runs, weight.of(measurements), 0.0)
        if not weights.sum() > 0:
            raise UserError(
                f"{measurements.operation}: no problem that was measured has a weight; there is nothing to choose on"
            )
        return cls(
            measurements,
            names,
            weights / weights.sum(),
            runs & (weights == 0) & (measurements.problems["split"] == "validation").to_numpy(),
            parquet.read(uses, problem_table.USES).to_pandas() if uses.is_file() else pd.DataFrame(),
            np.where(known, code, ESTIMATED_BYTES),
            np.where(known, taken, ESTIMATED_SECONDS),
            ("measured" if known.all() else "estimated") if of_arch(measurements.arch).has("emit") else None,
        )

    @cached_property
    def efficiency(self) -> np.ndarray:
        """Of the best candidate of each kernel, [P, K]; 0 where it cannot run the problem."""
        every = efficiency.grid(self.measurements, np.arange(len(self.measurements.problems)))
        return kernel_set.by_kernel(every, np.searchsorted(self.names, self.measurements.candidates["kernel"]),
                                    len(self.names))  # fmt: skip

    @cached_property
    def best_ms(self) -> np.ndarray:
        """Time of the fastest kernel of each problem, [P]."""
        return _best_ms(self.measurements)

    @cached_property
    def own(self) -> np.ndarray:
        """Rows of ``efficiency`` that the set is chosen on, [W, K]: those with a weight."""
        return self.efficiency[self.weight > 0]

    @cached_property
    def own_weight(self) -> np.ndarray:
        """Weights of these rows, [W]."""
        return self.weight[self.weight > 0]

    @cached_property
    def value(self) -> np.ndarray:
        """What each kernel adds to the weighted mean efficiency if it alone runs a problem, [W, K]."""
        return self.own * self.own_weight[:, None]

    @cached_property
    def whole(self) -> float:
        """The weighted mean efficiency of all kernels together."""
        return float(self.value.max(axis=1).sum())

    @cached_property
    def covering(self) -> np.ndarray:
        """The value of kernels by which running every problem comes first, [W, K]."""
        return kernel_set.covering(self.own, self.own_weight)

    def smallest(self, limits: Limits) -> list[int]:
        """The set within the limits, best kernel first; ``UserError`` where none of it can run every problem."""
        if self.costs is None and (limits.bytes is not None or limits.seconds is not None):
            raise UserError(
                f"--max-bytes, --max-compile: kernels of {self.measurements.arch} come with their library, and nothing "
                "is compiled; use --max-kernels"
            )
        own, weight = self.own, self.own_weight
        chosen = kernel_set.smallest(own, weight, limits.loss, limits.kernels)
        fits, over = 0, len(chosen) + 1
        if not self._affordable(chosen, limits):
            while over - fits > 1:
                most = (fits + over) // 2
                chosen = kernel_set.smallest(own, weight, limits.loss, most)
                fits, over = (most, over) if self._affordable(chosen, limits) else (fits, most)
            chosen = kernel_set.smallest(own, weight, limits.loss, fits) if fits else []
        lost = int((own[:, chosen].max(axis=1, initial=0.0) == 0).sum())
        if lost:
            raise UserError(
                f"{self.measurements.operation}: {len(chosen)} kernels are within the limits, and {lost} of "
                f"{len(own)} problems would have none; allow more kernels, bytes or compile time"
            )
        return chosen

    def _affordable(self, chosen: Sequence[int], limits: Limits) -> bool:
        costs = ((self.bytes, limits.bytes), (self.seconds, limits.seconds))
        return all(limit is None or cost[list(chosen)].sum() <= limit for cost, limit in costs)

    def figures(self, chosen: Sequence[int], *, proof: bool = True) -> dict[str, Any]:
        """Loss and cost of a set; losses in percent.

        ``least_loss`` is a bound: no set of so many kernels loses less on the problems that it is chosen on.
        """
        columns = list(chosen)
        reached = float(self.value[:, columns].max(axis=1, initial=0.0).sum())
        figures: dict[str, Any] = {
            "kernels": len(columns),
            "loss": efficiency.percent(1 - reached / self.whole),
        }
        if self.costs:
            figures |= {
                "bytes": int(self.bytes[columns].sum()),
                "compile_seconds": round(float(self.seconds[columns].sum()), 1),
                "costs": self.costs,
            }
        if proof:
            least = kernel_set.bound(self.value, max(len(columns), 1), reached)
            figures["least_loss"] = efficiency.percent(max(0.0, 1 - least / self.whole))
        return figures | self._unseen(columns)

    def _unseen(self, columns: list[int]) -> dict[str, Any]:
        """What the set loses on networks that it was not chosen for."""
        rows = np.flatnonzero(self.judged)
        if not len(rows):
            return {}
        own = self.efficiency[rows]
        picked = own[:, columns].max(axis=1, initial=0.0) / own.max(axis=1)
        summary = Summary.of(picked)
        found: dict[str, Any] = {
            "unseen_problems": len(rows),
            "unseen_without_kernel": int((picked == 0).sum()),
            "unseen_loss": round(100 - summary.mean, 4),
            "unseen_p10_loss": round(100 - summary.p10, 4),
            "unseen_well_covered": efficiency.percent(float((picked >= 1 - NEAR).mean())),
        }
        if len(self.uses):
            keys = self.measurements.problems["problem_key"].iloc[rows]
            found["networks"] = _of_networks(self.uses, keys, self.best_ms[rows], picked)
            if found["networks"]:
                found["worst_network"] = max(found["networks"].values())
        return found

    def curve(self, size: int) -> list[dict[str, Any]]:
        """Figures of the sets of 1, 2, 4, ... kernels and of ``size``, the problems' coverage first."""
        order = kernel_set.order(self.covering)
        sizes = sorted({size, len(order), *(2**power for power in range(len(order).bit_length()))})
        return [self.figures(kernel_set.exchanged(self.covering, order[:n])) for n in sizes]

    def baselines(self, size: int) -> dict[str, dict[str, Any]]:
        """Figures of sets of ``size`` kernels that were chosen in simpler ways."""
        own, weight = self.own, self.own_weight
        near = own >= (1 - NEAR) * own.max(axis=1, keepdims=True)
        wins = np.bincount(own.argmax(axis=1), weight, len(self.names))
        rules = {
            "one by one": kernel_set.order(self.covering),
            "cover of near-best": kernel_set.order(near * weight[:, None]),
            "most often fastest": np.argsort(-wins, kind="stable").tolist(),
            "best on average": np.argsort(-(weight @ own), kind="stable").tolist(),
        }
        found = {name: self.figures(columns[:size], proof=False) for name, columns in rules.items()}
        return found | self._of_reference()

    def _of_reference(self) -> dict[str, dict[str, Any]]:
        """Figures of the reference's own sets, as far as their kernels are candidates; ``listed``: all of a set."""
        if of_arch(self.measurements.arch) is not rule_sets.NAMED_OF:
            return {}
        config, arch = places.workflow_folder() / "config", target(self.measurements.arch)
        specs, operation = ArchSpecs.load(config / "arch_specs.json"), Operation.parse(self.measurements.operation)
        ndims = sorted(set(self.measurements.candidates["ndim"]))
        found = {}
        for name in REFERENCE:
            items = rule_sets.listed(
                name, config / "rule_sets", None, specs, arch, [operation.variant], ndims, [operation.dtype]
            )
            listed = {item.kernel.built_as.name for item in items if item.passes_arch_filter}
            found[name] = self.figures(self.columns(sorted(listed)), proof=False) | {"listed": len(listed)}
        return found

    @cached_property
    def number(self) -> dict[str, int]:
        """The column of a kernel by each of its names."""
        table = self.measurements.candidates.drop_duplicates("kernel").set_index("kernel")["aliases"]
        return {name: column for column, kernel in enumerate(self.names) for name in (kernel, *table[kernel].split())}

    def columns(self, names: Iterable[str]) -> list[int]:
        """Columns of the kernels that some names stand for, each once; names of other operations do not count."""
        return list(dict.fromkeys(self.number[name] for name in names if name in self.number))

    def against(self, old: Sequence[str], chosen: Sequence[int]) -> dict[str, Any]:
        """What to add to an old set and to drop from it, each with what it is worth: percent of the mean efficiency."""
        known = self.columns(old)

        def worth(column: int, others: Sequence[int]) -> float:
            rest = self.value[:, [other for other in others if other != column]].max(axis=1, initial=0.0)
            return efficiency.percent(float(np.maximum(self.value[:, column] - rest, 0).sum()) / self.whole)

        return {
            "old": self.figures(known, proof=False),
            "add": {self.names[column]: worth(column, chosen) for column in chosen if column not in known},
            "drop": {self.names[column]: worth(column, known) for column in known if column not in chosen},
        }


@dataclass(frozen=True)
class Weights:
    """How much a problem counts: how often networks call it, or as a table says."""

    table: pd.DataFrame
    """``DIMS`` and ``weight``; with ``calls``, the weight is a number of calls."""
    calls: bool

    @classmethod
    def of_networks(cls, path: Path, networks: Sequence[str]) -> Self:
        """Calls of the layers of some networks of a table of layers."""
        known = layers.read(path)
        missing = sorted(set(networks) - {layer.network for layer in known})
        if missing:
            raise UserError(f"{path}: there is no network {missing[0]!r}; it has a column network")
        rows = [(*layer.dims, layer.occurrences) for layer in known if layer.network in networks]
        return cls(pd.DataFrame(rows, columns=[*DIMS, "weight"]), calls=True)

    @classmethod
    def of_table(cls, path: Path) -> Self:
        """A CSV with the dimensions of problems and a column ``weight``."""
        table = foreign_problems.read_csv(path)
        if "weight" not in table:
            raise UserError(f"{path}: column weight is missing")
        weight = pd.to_numeric(table["weight"], errors="coerce").to_numpy(np.float64)
        wrong = ~(np.isfinite(weight) & (weight >= 0))
        if wrong.any():
            row = int(wrong.argmax())
            line = row + foreign_problems.FIRST_LINE
            raise UserError(f"{path}, line {line}: weight is {table['weight'].iloc[row]!r}; give a number from 0")
        return cls(foreign_problems.dims(path, table)[0].assign(weight=weight), calls=False)

    def of(self, measurements: Measurements) -> np.ndarray:
        """Weight of each problem, float64 [P]; calls count as the time of the fastest kernel."""
        summed = self.table.groupby(list(DIMS))["weight"].sum()
        dims = pd.MultiIndex.from_frame(measurements.problems[list(DIMS)])
        weight = summed.reindex(dims, fill_value=0.0).to_numpy(np.float64)
        if not self.calls:
            return weight
        best_ms = _best_ms(measurements)
        return weight * np.where(np.isfinite(best_ms), best_ms, 0.0)


def cut(model: Model, names: Iterable[str]) -> Model:
    """A model that knows some kernels alone."""
    kept = model.pool["kernel"].isin(set(names))
    return replace(model, pool=model.pool[kept].reset_index(drop=True))


def losses(pool: Pool, models: Mapping[str, Model], threads: int) -> dict[str, dict[str, float]]:
    """What the picks of models lose, percent of the pool's best, on the problems that a set is judged on."""
    rows = np.flatnonzero(pool.judged)
    if not len(rows):
        return {}
    problems = pool.measurements.problems.iloc[rows].reset_index(drop=True)
    achieved = efficiency.grid(pool.measurements, rows)

    def loss(of: Model) -> dict[str, float]:
        scores = of.scores(problems, threads)
        pick = ranking.positions(pool.measurements, of)[scores.argmax(axis=1)]
        ran = np.isfinite(scores.max(axis=1))
        summary = Summary.of(np.where(ran, achieved[np.arange(len(rows)), pick], 0.0))
        return {"loss": round(100 - summary.mean, 4), "p10_loss": round(100 - summary.p10, 4)}

    return {name: loss(model) for name, model in models.items()}


def _seconds(build: Path) -> pd.Series:
    """CPU seconds that each kernel took to compile, as far as a folder of builds knows."""
    tables = [parquet.read(path).to_pandas() for path in sorted(build.glob("*.costs.parquet"))]
    if not tables:
        return pd.Series(dtype=np.float64)
    return pd.concat(tables).groupby("kernel")["seconds"].max()


def _of_networks(uses: pd.DataFrame, keys: pd.Series, best_ms: np.ndarray, picked: np.ndarray) -> dict[str, float]:
    """What each run of a network loses of its time, percent, worst first; a layer without a kernel does not count."""
    layer_times = pd.DataFrame({"problem_key": list(keys), "best": best_ms, "picked": picked})
    table = uses.merge(layer_times[picked > 0], on="problem_key")
    table["run"] = (table["network"] + " " + table["run"]).str.strip()
    table["best"] *= table["occurrences"]
    table["taken"] = table["best"] / table["picked"]
    sums = table.groupby("run")[["best", "taken"]].sum()
    losses = {str(run): efficiency.percent(1 - best / taken) for run, best, taken in sums.itertuples()}
    return dict(sorted(losses.items(), key=lambda found: (-found[1], found[0])))


def _best_ms(measurements: Measurements) -> np.ndarray:
    """Time of the fastest kernel of each problem, float64 [P]; infinite where nothing ran."""
    best = np.full(len(measurements.problems), np.inf)
    ran = measurements.status == efficiency.OK
    np.minimum.at(best, measurements.problem[ran], measurements.latency_ms[ran])
    return best


def line(operation: str, figures: Mapping[str, Any], pool: int) -> str:
    """A set in one line."""
    text = (
        f"{operation}: {figures['kernels']} of {pool} kernels lose {figures['loss']:.2f} % (no set of that size loses "
        f"less than {figures['least_loss']:.2f} %)"
    )
    if "costs" not in figures:
        return f"{text}; nothing to compile"
    return (
        f"{text}; {figures['bytes'] / 1e6:.1f} MB, {figures['compile_seconds'] / 3600:.2f} CPU hours to compile "
        f"({figures['costs']})"
    )
