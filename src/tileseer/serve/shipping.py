"""Which kernels to ship: the smallest set that loses nothing that matters, with its size.

The set is chosen on the training problems (``serve.kernel_set``) and judged on networks that it was not chosen for.
The loss of a set is that of its best kernel against the pool's best, both as measured: what the model loses on top of
it is judged apart.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from tileseer.build.base import ESTIMATED_BYTES
from tileseer.core.errors import UserError, is_it, shown, with_a_prefix
from tileseer.data.dataset import Dataset
from tileseer.learn.model import Model
from tileseer.learn.model_schema import Summary, percent
from tileseer.libraries.registry import library_of_arch
from tileseer.problems import layers
from tileseer.problems.problem import DIMS
from tileseer.problems.shapes import implicit_gemm
from tileseer.serve import kernel_set

WELL_COVERED_WITHIN = 0.05
"""A set covers a problem well with a kernel this close to the pool's best."""


@dataclass(frozen=True)
class SetLimits:
    """What the sets of all operations may cost together; None: no limit."""

    loss: float
    """Of the weighted mean efficiency of each operation; the set is the smallest one within it."""
    kernels: int | None = None
    bytes: float | None = None


@dataclass(frozen=True)
class KernelPool:
    """The kernels of one operation to choose from, with their measurements and sizes."""

    measurements: Dataset
    names: list[str]
    """K kernels, sorted."""
    efficiency: np.ndarray
    """[P, K], best of each kernel's candidates relative to the best of all; 0 where it cannot run the problem."""
    weight: np.ndarray
    """[P], how much each problem counts for the choice; 0 where it is not chosen on. They sum to 1."""
    without: Set[str] = frozenset()
    """Kernels that cannot be chosen."""

    @classmethod
    def of(
        cls,
        measurements: Dataset,
        candidates: pd.Series,
        weight: np.ndarray | None = None,
        without: Set[str] = frozenset(),
    ) -> Self:
        """Return the kernels of the ``candidates`` of a model, measured in a dataset.

        ``weight`` [P]: how much each problem counts; without it, all training problems count alike.
        """
        pool = np.flatnonzero(measurements.candidates["candidate"].isin(set(candidates)))
        kernels = measurements.candidates["kernel"].iloc[pool]
        names = sorted(set(kernels))
        achieved = measurements.grid(np.arange(len(measurements.problems)))[:, pool]
        best = kernel_set.best_by_kernel(achieved, np.searchsorted(names, kernels), len(names))
        best[:, [name in without for name in names]] = 0
        possible = best.max(axis=1, keepdims=True, initial=0.0)
        if weight is None:
            weight = measurements.trains.astype(np.float64)
        weight = np.where(possible[:, 0] > 0, weight, 0.0)
        if not weight.sum() > 0:
            raise UserError(
                f"{measurements.operation}: none of the layers that count was measured; add them to problems.training, "
                "and run again"
            )
        relative = np.divide(best, possible, out=np.zeros_like(best), where=possible > 0)
        return cls(measurements, names, relative, weight / weight.sum(), without)

    @cached_property
    def _compiled_bytes(self) -> pd.Series:
        """Machine code of each kernel, [K]; NaN where none was compiled."""
        code = self.measurements.candidates.groupby("kernel")["code_bytes"].max().reindex(self.names)
        return code.where(code > 0)

    @property
    def bytes(self) -> np.ndarray:
        """Machine code of each kernel, [K]."""
        return self._compiled_bytes.fillna(ESTIMATED_BYTES).to_numpy(np.float64)

    @property
    def bytes_from(self) -> str | None:
        """``compiled``, or ``estimated`` where some are; None: the kernels come with their library."""
        if not library_of_arch(self.measurements.arch).toolchain:
            return None
        return "estimated" if self._compiled_bytes.isna().any() else "compiled"

    @cached_property
    def judged(self) -> np.ndarray:
        """Problems that the set is judged on, int [J]."""
        runs = self.efficiency.max(axis=1) > 0
        return np.flatnonzero((self.weight == 0) & self.measurements.held_out & runs)

    @property
    def own(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of ``efficiency`` that the set is chosen on, [W, K], and their weights, [W]: those with a weight."""
        return self.efficiency[self.weight > 0], self.weight[self.weight > 0]

    def smallest(self, loss: float = kernel_set.LOSS, most: int | None = None) -> list[int]:
        """Return the smallest set within a loss, best kernel first.

        One of ``most`` kernels may lose more, on average and on single problems.
        """
        floor = kernel_set.FLOOR if most is None else 0.0
        return kernel_set.smallest_set(*self.own, loss, most, floor)

    def reached(self, chosen: Sequence[int], rows: np.ndarray) -> Summary:
        """Return the best of a set relative to the best of all kernels on some problems."""
        return Summary.of(self.efficiency[rows][:, list(chosen)].max(axis=1, initial=0.0))

    def example(self, chosen: Sequence[int]) -> dict[str, int]:
        """Return the dimensions of the smallest problem that a set runs."""
        flops = implicit_gemm(self.measurements.problems, self.measurements.problems["variant"].iloc[0])["flops"]
        runs = self.efficiency[:, list(chosen)].max(axis=1, initial=0.0) > 0
        row = int(np.where(runs, flops.to_numpy(np.float64), np.inf).argmin())
        return {name: int(self.measurements.problems[name].iloc[row]) for name in DIMS}

    def figures(self, chosen: Sequence[int]) -> dict[str, Any]:
        """Return the loss and size of a set; losses in percent."""
        columns = list(chosen)
        own, weight = self.own
        reached = float(weight @ own[:, columns].max(axis=1, initial=0.0))
        figures: dict[str, Any] = {"kernels": len(columns), "loss": percent(1 - reached)}
        if self.bytes_from:
            figures |= {"bytes": int(self.bytes[columns].sum()), "bytes_from": self.bytes_from}
        return figures | self._unseen(columns)

    def _unseen(self, columns: list[int]) -> dict[str, Any]:
        """Return what the set loses on networks that it was not chosen for."""
        if not len(self.judged):
            return {}
        picked = self.efficiency[self.judged][:, columns].max(axis=1, initial=0.0)
        summary = self.reached(columns, self.judged)
        return {
            "unseen_problems": len(picked),
            "unseen_without_kernel": int((picked == 0).sum()),
            "unseen_loss": round(100 - summary.mean, 4),
            "unseen_p10_loss": round(100 - summary.p10, 4),
            "unseen_well_covered": percent(float((picked >= 1 - WELL_COVERED_WITHIN).mean())),
        }

    def curve(self, chosen: Sequence[int]) -> list[dict[str, Any]]:
        """Return figures of the sets of 1, 2, 4, ... kernels, the problems' coverage first, and of the ``chosen``."""
        covering = kernel_set.covering_value(*self.own)
        order = kernel_set.greedy_order(covering)
        sizes = {len(order), *(2**power for power in range(len(order).bit_length()))}
        sets = {n: kernel_set.exchange_kernels(covering, order[:n]) for n in sizes} | {len(chosen): list(chosen)}
        return [self.figures(sets[n]) for n in sorted(sets)]


def smallest_sets(pools: Sequence[KernelPool], limits: SetLimits) -> list[list[int]]:
    """Return the set of each pool, best kernel first, all together within the limits.

    ``UserError`` where the limits leave a problem without a kernel.
    """
    free = next((pool for pool in pools if pool.bytes_from is None), None)
    if free and limits.bytes is not None:
        raise UserError(
            f"--max-bytes: kernels of {free.measurements.arch} come with their library, and nothing is compiled; "
            "use --max-kernels"
        )
    whole = [pool.smallest(limits.loss) for pool in pools]
    if _affordable(pools, whole, limits):
        return whole
    sizes = range(1, sum(map(len, whole)))
    fits = bisect(sizes, False, key=lambda most: not _affordable(pools, _shared(pools, whole, most), limits))
    chosen = _shared(pools, whole, fits)
    for pool, columns in zip(pools, chosen, strict=True):
        own = pool.own[0]
        if lost := int((own[:, columns].max(axis=1, initial=0.0) == 0).sum()):
            fewest = sum(len(kernel_set.greedy_order((pool.own[0] > 0).astype(float))) for pool in pools)
            raise UserError(
                f"{pool.measurements.operation}: {len(columns)} kernels are within the limits, and {lost} of "
                f"{len(own)} problems would have none; allow more kernels or bytes, or fewer "
                f"operations: {fewest} kernels run every problem of {len(pools)} operations"
            )
    return chosen


def _affordable(pools: Sequence[KernelPool], sets: Sequence[Sequence[int]], limits: SetLimits) -> bool:
    size = sum(pool.bytes[list(own)].sum() for pool, own in zip(pools, sets, strict=True))
    few = limits.kernels is None or sum(map(len, sets)) <= limits.kernels
    return few and (limits.bytes is None or size <= limits.bytes)


def _shared(pools: Sequence[KernelPool], whole: Sequence[Sequence[int]], most: int) -> list[list[int]]:
    """Return sets of ``most`` kernels together, none above ``whole``: a kernel goes to the pool that gains most."""
    gains = [
        (float(gain), place)
        for place, (pool, own) in enumerate(zip(pools, whole, strict=True))
        for gain in kernel_set.greedy_gains(kernel_set.covering_value(*pool.own))[: len(own)]
    ]
    shares = Counter(place for _, place in sorted(gains, reverse=True)[:most])
    return [pool.smallest(0.0, shares[place]) if shares[place] else [] for place, pool in enumerate(pools)]


def _fault_of_network(name: str, table: Sequence[layers.Layer], path: Path, timed: Sequence[str]) -> str:
    """Return why a network is none of those with ``timed`` layers, and which is meant."""
    more = ", ..." if len(timed) > 5 else ""
    there = f"; measured are layers of {', '.join(timed[:5]) or 'no network; leave it out'}{more}"
    if name in {layer.network for layer in table}:
        return f"of its layers none was measured{there}"
    # Prefixes of networks say whose they are.
    alike = with_a_prefix(name, timed)[:3]
    near = f"; is it {' or '.join(alike)}?" if alike else is_it(name, timed, 0.8)
    return f"is not in {path}{near or there}"


def network_weights(measurements: Dataset, path: Path, networks: Sequence[str]) -> np.ndarray:
    """Time of the fastest kernel in all calls of some networks of a table of layers, by problem, float64 [P]."""
    table = layers.read_layers(path)
    dims = pd.MultiIndex.from_frame(measurements.problems[list(DIMS)])
    tried = set(dims)
    timed = sorted({layer.network for layer in table if layer.dims in tried})
    if not set(timed).issuperset(networks):
        networks = " ".join(networks).split()
    if missing := sorted(set(networks) - set(timed)):
        raise UserError(f"--networks: {shown(missing[0])}: {_fault_of_network(missing[0], table, path, timed)}")
    rows = [(*layer.dims, layer.occurrences) for layer in table if layer.network in networks]
    calls = pd.DataFrame(rows, columns=[*DIMS, "calls"]).groupby(list(DIMS))["calls"].sum()
    best_ms = np.full(len(dims), np.inf)
    ran = measurements.ok
    np.minimum.at(best_ms, measurements.problem[ran], measurements.latency_ms[ran])
    return calls.reindex(dims, fill_value=0).to_numpy(np.float64) * np.where(np.isfinite(best_ms), best_ms, 0.0)


def losses(pool: KernelPool, models: Mapping[str, Model]) -> dict[str, dict[str, float]]:
    """Return what the picks of models lose, percent of the pool's best, on the problems that a set is judged on."""
    rows = pool.judged
    if not len(rows):
        return {}
    problems = pool.measurements.problems.iloc[rows].reset_index(drop=True)
    achieved = pool.measurements.grid(rows)

    def loss(model: Model) -> dict[str, float]:
        scores = model.predict(problems)
        pick = model.positions(pool.measurements)[scores.argmax(axis=1)]
        ran = np.isfinite(scores.max(axis=1))
        summary = Summary.of(np.where(ran, achieved[np.arange(len(rows)), pick], 0.0))
        return {"loss": round(100 - summary.mean, 4), "p10_loss": round(100 - summary.p10, 4)}

    return {name: loss(model) for name, model in models.items()}


def set_line(operation: str, figures: Mapping[str, Any], pool: int) -> str:
    """Say in one line what a set loses and how large it is."""
    text = f"{operation}: {figures['kernels']} of {pool} kernels lose {figures['loss']:.2f} %"
    if "bytes" not in figures:
        return f"{text}; nothing to compile"
    return f"{text}; {figures['bytes'] / 1e6:.1f} MB of machine code ({figures['bytes_from']})"
