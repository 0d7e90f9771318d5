"""A real GPU, or the host backend in its place: pairs are measured in worker processes through the C interface.

The process that holds this object never touches the GPU. Method: docs/benchmarking.md.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from tileseer.devices.base import STATUSES, Times
from tileseer.devices.harness import abi
from tileseer.devices.harness.details import Details, provenance
from tileseer.devices.harness.supervisor import Outcome, Request, Supervisor, libraries, problem_numbers
from tileseer.devices.harness.telemetry import Reading, Telemetry

OK = STATUSES.index("ok")
SCHEME = 2
"""Version of the method: one more and everything is measured again."""
RETRIES = 2
"""How often a batch is measured again whose GPU was throttled, shared or drifting."""
SENTINEL_MS = 0.05
"""The sentinel is the first pair that takes this long; short ones change with where their operands lie."""
CLASS_FIELDS = ("ndim", "Z", "Y", "X", "stride_d", "stride_h", "stride_w", "dilation_d", "dilation_h", "dilation_w")


@dataclass(frozen=True)
class Method:
    """How a pair is measured: what a stored time depends on, and how trouble is noticed."""

    timing: Mapping[str, float]
    """``min_time_ms, max_noise, budget_ms, sample_ms, warmup_change, settle_ms, min_samples, max_samples``."""
    cache: str = "cold"
    rotate_bytes: int = 0
    """Memory to rotate through when cold; 0 is twice the last-level cache that the GPU tells."""
    seed: int = 1
    verify: str = "class"
    """``pair``, ``class`` (each kernel once for each class of problems) or ``never``."""
    verify_millions: int = 0
    """Multiply-adds that a reference may take, in millions; of larger problems it computes a part. 0: no limit."""
    hopeless_factor: float = 5.0
    """A kernel that is this many times slower than the problem's best so far gets one sample; 0 is never."""
    sentinel_every: int = 64
    drift_limit: float = 0.03
    recovery_s: float = 2.0


@dataclass
class _Sentinel:
    """The pair that is measured again and again; drift is its time over its first one."""

    request: Request
    baseline_ms: float
    ratio: float = 1.0


@dataclass(frozen=True)
class _Batch:
    """The tables of one call of ``measure``."""

    problems: pd.DataFrame
    candidates: pd.DataFrame
    modules: Sequence[str]
    rows: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)

    def problem(self, p: int) -> dict[str, Any]:
        return self._row("problems", self.problems, p)

    def candidate(self, c: int) -> dict[str, Any]:
        return self._row("candidates", self.candidates, c)

    def _row(self, name: str, table: pd.DataFrame, number: int) -> dict[str, Any]:
        """Taking a row out of a table costs more than all else that is done here for a pair."""
        if (name, number) not in self.rows:
            self.rows[name, number] = {str(column): value for column, value in table.iloc[number].items()}
        return self.rows[name, number]


@dataclass
class _Memory:
    """What was learnt in this session."""

    best_ms: dict[str, float] = field(default_factory=dict)
    verified: set[tuple[str, int, tuple[Any, ...]]] = field(default_factory=set)


class GpuDevice:
    """Measures through a ``Supervisor``. Close it after use."""

    def __init__(
        self,
        name: str,
        kind: str,
        driver: str,
        module_of: Callable[[pd.Series], str],
        supervisor: Supervisor,
        telemetry: Telemetry,
        method: Method,
        details: Details,
    ) -> None:
        """Ask the driver for its device; ``module_of`` leads from a candidate's row to the library with its kernel."""
        self.name = name
        self.kind = kind
        self.largest_batch = method.sentinel_every
        self.order_seed: int | None = method.seed
        self._driver = driver
        self._module_of = module_of
        self._supervisor = supervisor
        self._telemetry = telemetry
        self._method = method
        self._details = details
        self._told = supervisor.device()
        self._memory = _Memory()
        self._sentinel: _Sentinel | None = None
        details.write(
            "session",
            {"device": self._told, "kind": kind, "method": asdict(method), "identity": self.identity(), **provenance()},
        )

    def identity(self) -> str:
        """Return the SHA-256 of method, GPU model, its driver and runtime, and the measuring driver's sources.

        The board is not in it: what one GPU of a model measured stands for all of them.
        """
        told = {
            name: self._told[name]
            for name in ("backend", "name", "arch", "compute_units", "driver_version", "runtime_version", "version")
        }
        m = self._method
        timing = {"cache": m.cache, "rotate_bytes": m.rotate_bytes, "seed": m.seed, **m.timing}
        text = json.dumps({"scheme": SCHEME, "device": told, "timing": timing}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def close(self) -> None:
        """End the worker."""
        self._supervisor.close()

    def request(self, problem: Mapping[str, Any], candidate: Mapping[str, Any], module: str) -> Request:
        """Return what a worker is told about a pair."""
        m = self._method
        best = self._memory.best_ms.get(str(problem["problem_key"]), math.inf)
        hopeless = best * m.hopeless_factor if m.hopeless_factor > 0 and best < math.inf else 0.0
        options = {
            **m.timing,
            "seed": (m.seed << 32 | int(str(problem["problem_key"])[:8], 16)) & (2**44 - 1),
            "rotate_bytes": m.rotate_bytes,
            "cache": abi.CACHES.index(m.cache),
            "hopeless_ms": hopeless,
            "verify_millions": m.verify_millions,
        }
        split_k = int(candidate["split_k"])
        return Request(
            libraries=libraries(self._driver, [module]),
            kernel=str(candidate["kernel"]),
            problem=problem_numbers(problem, str(problem["variant"]), split_k),
            options=options,
            verify=self._is_unverified(str(candidate["kernel"]), split_k, problem),
        )

    def measure(
        self,
        problems: pd.DataFrame,
        candidates: pd.DataFrame,
        problem_index: np.ndarray,
        candidate_index: np.ndarray,
    ) -> Times:
        """Time n pairs as ``Device.measure`` says, in the given order, each one at once in the details log.

        Pairs of a batch during which the GPU was slowed down, shared or drifting are measured again; if that does
        not help they are ``throttled`` or ``contended``.
        """
        used = np.unique(candidate_index)
        modules = {int(c): self._module_of(candidates.iloc[int(c)]) for c in used}
        batch = _Batch(problems, candidates, [modules.get(c, "") for c in range(len(candidates))])
        pairs = list(zip(problem_index.tolist(), candidate_index.tolist(), strict=True))
        outcomes: dict[int, Outcome] = {}
        waiting = list(range(len(pairs)))
        verdict = ""
        for attempt in range(1 + RETRIES):
            before = self._read()
            for position in waiting:
                outcomes[position] = self._one(batch, *pairs[position])
            verdict = self._state(before)
            waiting = [position for position in waiting if outcomes[position].status == "ok"]
            if not verdict or not waiting or attempt == RETRIES:
                break
            time.sleep(self._method.recovery_s)
        for position in waiting if verdict else ():
            status, _, reason = verdict.partition(": ")
            outcomes[position] = Outcome(status, reason, outcomes[position].reply)
        times = _times([outcomes[position] for position in range(len(pairs))])
        drift = np.nan if self._sentinel is None else self._sentinel.ratio
        return replace(times, sentinel=np.full(len(pairs), drift))

    def _one(self, batch: _Batch, p: int, c: int) -> Outcome:
        problem, candidate = batch.problem(p), batch.candidate(c)
        request = self.request(problem, candidate, batch.modules[c])
        outcome = self._supervisor.measure(request)
        key, split_k = str(problem["problem_key"]), int(candidate["split_k"])
        self._details.write(
            "pair",
            {
                "kernel": request.kernel, "kernel_id": str(candidate["kernel_id"]), "split_k": split_k,
                "problem_key": key, "status": outcome.status, "error": outcome.error, "faults": outcome.faults,
                "verified": request.verify, "hopeless_ms": request.options["hopeless_ms"], **outcome.reply,
            },
        )  # fmt: skip
        if outcome.status == "ok":
            median = float(outcome.reply["result"]["median_ms"])
            self._memory.best_ms[key] = min(median, self._memory.best_ms.get(key, math.inf))
            if request.verify:
                self._memory.verified.add((request.kernel, split_k, self._class_of(problem)))
            if self._sentinel is None or self._sentinel.baseline_ms < min(SENTINEL_MS, median):
                self._set_sentinel(request)
        return outcome

    def _is_unverified(self, kernel: str, split_k: int, problem: Mapping[str, Any]) -> bool:
        if self._method.verify != "class":
            return self._method.verify == "pair"
        return (kernel, split_k, self._class_of(problem)) not in self._memory.verified

    @staticmethod
    def _class_of(problem: Mapping[str, Any]) -> tuple[Any, ...]:
        """What decides which code of a kernel runs: filter, strides, dilations, padding, groups, alignment."""
        padded = any(int(problem[name]) for name in ("pad_d", "pad_h", "pad_w"))
        channels = (int(problem["C"]) // int(problem["G"]), int(problem["K"]) // int(problem["G"]))
        alignment = tuple(math.gcd(count, 16) for count in channels)
        return (*(int(problem[name]) for name in CLASS_FIELDS), padded, int(problem["G"]) > 1, alignment)

    def _set_sentinel(self, request: Request) -> None:
        """Take a pair that works for the sentinel; it is never given up as hopeless."""
        steady = Request(
            request.libraries, request.kernel, request.problem, {**request.options, "hopeless_ms": 0.0}, verify=False
        )
        baseline = self._sentinel_ms(steady)
        if baseline is not None:
            self._sentinel = _Sentinel(steady, baseline)

    def _sentinel_ms(self, request: Request) -> float | None:
        outcome = self._supervisor.measure(request)
        return float(outcome.reply["result"]["median_ms"]) if outcome.status == "ok" else None

    def _steady_ms(self, sentinel: _Sentinel) -> float | None:
        """Measure the sentinel; where it seems to have changed, three times, and the middle one counts."""
        times = [self._sentinel_ms(sentinel.request)]
        if times[0] is not None and abs(times[0] / sentinel.baseline_ms - 1) > self._method.drift_limit:
            times += [self._sentinel_ms(sentinel.request) for _ in range(2)]
        known = sorted(ms for ms in times if ms is not None)
        return known[len(known) // 2] if len(known) == len(times) else None

    def _drift(self) -> str:
        """Measure the sentinel; say what is wrong if it was slow for a while. A lasting change is the new baseline."""
        if self._sentinel is None:
            return ""
        limit = self._method.drift_limit
        first = self._steady_ms(self._sentinel)
        if first is None:
            return "contended: the sentinel pair fails"
        self._sentinel.ratio = first / self._sentinel.baseline_ms
        if abs(self._sentinel.ratio - 1) <= limit:
            return ""
        time.sleep(self._method.recovery_s)
        now = self._steady_ms(self._sentinel)
        if now is None:
            return "contended: the sentinel pair fails"
        lasting = abs(now / first - 1) <= limit
        told = {"baseline_ms": self._sentinel.baseline_ms, "first_ms": first, "second_ms": now, "lasting": lasting}
        self._details.write("drift", told)
        if lasting:
            self._sentinel.baseline_ms = now
            return f"throttled: the sentinel pair takes {self._sentinel.ratio:.3f} of its time"
        return f"throttled: the sentinel pair took {self._sentinel.ratio:.3f} of its time for a while"

    def _read(self) -> Reading:
        pid = self._supervisor.pid
        return self._telemetry.read(() if pid is None else (pid,))

    def _state(self, before: Reading) -> str:
        """Close a batch: return ``status: reason`` if its times are not to be trusted."""
        drift = self._drift()
        after = self._read()
        foreign = max(before.foreign or 0, after.foreign or 0)
        verdict = drift
        if after.throttled or before.throttled:
            verdict = f"throttled: {after.throttled or before.throttled}"
        if foreign:
            verdict = f"contended: {foreign} other processes on the GPU"
        self._details.write(
            "batch",
            {
                "verdict": verdict,
                "drift": None if self._sentinel is None else self._sentinel.ratio,
                "before": asdict(before),
                "after": asdict(after),
            },
        )
        return verdict


def _times(outcomes: Sequence[Outcome]) -> Times:
    results = [outcome.reply.get("result") if outcome.status == "ok" else None for outcome in outcomes]
    checks = [outcome.reply.get("check") for outcome in outcomes]
    return Times(
        status=np.array([STATUSES.index(outcome.status) for outcome in outcomes], np.uint8),
        latency_ms=np.array([result["median_ms"] if result else np.nan for result in results]),
        latency_cv=np.array([_cv(outcome) for outcome in outcomes]),
        samples=np.array([result["samples"] if result else 0 for result in results], np.int32),
        error=[outcome.error for outcome in outcomes],
        non_zero=np.array([check["non_zero"] if check else -1 for check in checks], np.int64),
    )


def _cv(outcome: Outcome) -> float:
    samples = np.array(outcome.reply.get("samples_ms") or [], float)
    if outcome.status != "ok" or len(samples) < 2:
        return float("nan")
    return float(samples.std(ddof=1) / samples.mean())
