"""A real GPU, or the host backend in its place: pairs are measured in worker processes through the C interface.

The process that holds this object never touches the GPU. Method: docs/gpu.md.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from tileseer.config.benchmark import Timing
from tileseer.core.errors import UserError
from tileseer.measure.device import NO_TIMES, STATUSES, Times
from tileseer.measure.harness.details import Details, provenance
from tileseer.measure.harness.supervisor import (
    TIMED,
    Outcome,
    Request,
    Supervisor,
    launch_options,
    libraries,
    problem_numbers,
)
from tileseer.measure.harness.telemetry import Board, Reading

SCHEME = 2
"""Version of the method: one more and everything is measured again."""
RETRIES = 2
"""How often a batch is measured again during which the GPU was throttled, contended or drifting."""
SENTINEL_MS = 0.05
"""The sentinel is the first pair that takes this long; short ones change with where their operands lie."""
CLASS_FIELDS = ("ndim", "Z", "Y", "X", "stride_d", "stride_h", "stride_w", "dilation_d", "dilation_h", "dilation_w")

Row = Mapping[Hashable, Any]


@dataclass
class _Sentinel:
    """The pair that is measured again and again; drift is its time over its first one."""

    request: Request
    baseline_ms: float
    ratio: float = 1.0


@dataclass(eq=False)
class GpuDevice:
    """Measures through a ``Supervisor``, which its caller closes."""

    name: str
    kind: str
    driver: str
    module_of: Callable[[Row], str]
    """The library that a candidate is in."""
    supervisor: Supervisor
    telemetry: Board
    timing: Timing
    seed: int
    details: Details
    arch: str = ""
    """Target that a real GPU has to be of."""
    _best_ms: dict[str, float] = field(default_factory=dict, init=False)
    _verified: set[Hashable] = field(default_factory=set, init=False)
    _sentinel: _Sentinel | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Ask the driver for its device."""
        self.largest_batch = self.timing.sentinel_every
        self.order_seed: int | None = self.seed
        self._driver_device = self.supervisor.device()
        if self._driver_device["backend"] == "emulated":
            raise UserError(f"{self.driver}: {NO_TIMES}")
        # HIP's name of a target has features behind a colon.
        target = str(self._driver_device["arch"]).partition(":")[0]
        if self.arch and self._driver_device["backend"] in ("cuda", "hip") and target != self.arch.removesuffix("a"):
            raise UserError(
                f"the GPU is a {target}, and the kernels are for {self.arch}; "
                f"build those of {target}: --config arch={target}"
            )
        parameters = self.timing.model_dump()
        timed = {name: parameters.pop(name) for name in TIMED}
        method = {"timing": timed, "seed": self.seed, **parameters}
        session = {"device": self._driver_device, "kind": self.kind, "method": method, "identity": self.identity()}
        self.details.write("session", {**session, **provenance()})

    @property
    def plans(self) -> str:
        """Library whose plans are the kernels, and its version: ``cudnn 91900``; empty for kernels in modules."""
        return str(self._driver_device.get("plans", ""))

    def offered(self, problem: Row) -> tuple[list[str], str]:
        """Plans that the library offers for a problem, in its own order, and why there are none."""
        numbers = problem_numbers(problem, str(problem["variant"]), split_k=1)
        return self.supervisor.offered(numbers, str(problem["dtype"]), int(problem["ndim"]))

    def identity(self) -> str:
        """SHA-256 of method, GPU model, its driver and runtime, and the measuring driver's sources.

        The board is not in it: what one GPU of a model measured holds for all of them.
        """
        device = {
            name: self._driver_device[name]
            for name in ("backend", "name", "arch", "compute_units", "driver_version", "runtime_version", "version")
        }
        device |= {"plans": self.plans} if self.plans else {}
        t = self.timing
        timing = {"cache": t.cache, "rotate_bytes": t.rotate_mib << 20, "seed": self.seed}
        timing |= {name: getattr(t, name) for name in TIMED}
        text = json.dumps({"scheme": SCHEME, "device": device, "timing": timing}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def measure(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, problem_index: np.ndarray, candidate_index: np.ndarray
    ) -> Times:
        """Time n pairs as ``Device.measure`` says, in the given order, each one at once in the details log.

        Pairs of a batch during which the GPU was throttled, contended or drifting are measured again; if that does
        not help, that is their status.
        """
        of_problem, of_candidate = _rows(problems, problem_index), _rows(candidates, candidate_index)
        modules = {number: self.module_of(row) for number, row in of_candidate.items()}
        pairs = [
            (of_problem[p], of_candidate[c], modules[c])
            for p, c in zip(problem_index.tolist(), candidate_index.tolist(), strict=True)
        ]
        outcomes: dict[int, Outcome] = {}
        waiting = list(range(len(pairs)))
        verdict = ""
        for attempt in range(1 + RETRIES):
            before = self._read()
            for position in waiting:
                outcomes[position] = self._one(*pairs[position])
            verdict = self._state(before)
            waiting = [position for position in waiting if outcomes[position].status == "ok"]
            if not verdict or not waiting or attempt == RETRIES:
                break
            time.sleep(self.timing.recovery_s)
        for position in waiting if verdict else ():
            status, _, reason = verdict.partition(": ")
            outcomes[position] = Outcome(status, reason, outcomes[position].reply)
        times = _times([outcomes[position] for position in range(len(pairs))])
        drift = np.nan if self._sentinel is None else self._sentinel.ratio
        return replace(times, sentinel=np.full(len(pairs), drift))

    def _one(self, problem: Row, candidate: Row, module: str) -> Outcome:
        key, kernel, split_k = str(problem["problem_key"]), str(candidate["kernel"]), int(candidate["split_k"])
        best_ms = self._best_ms.get(key, math.inf)
        hopeless_ms = best_ms * self.timing.hopeless_factor if best_ms < math.inf else 0.0
        seed = (self.seed << 32 | int(key[:8], 16)) & (2**44 - 1)
        in_class = kernel, split_k, _problem_class(problem)
        verify = self.timing.verify
        request = Request(
            libraries=libraries(self.driver, [module]),
            kernel=kernel,
            problem=problem_numbers(problem, str(problem["variant"]), split_k),
            options=launch_options(self.timing, seed, hopeless_ms),
            verify=in_class not in self._verified if verify == "class" else verify == "pair",
        )
        outcome = self.supervisor.measure(request)
        self.details.write(
            "pair",
            {
                "kernel": kernel, "kernel_id": str(candidate["kernel_id"]), "split_k": split_k, "problem_key": key,
                "status": outcome.status, "error": outcome.error, "faults": outcome.faults,
                "verified": request.verify, "hopeless_ms": hopeless_ms, **outcome.reply,
            },
        )  # fmt: skip
        if outcome.status == "ok":
            median_ms = _median_ms(outcome)
            self._best_ms[key] = min(median_ms, best_ms)
            if request.verify:
                self._verified.add(in_class)
            if self._sentinel is None or self._sentinel.baseline_ms < min(SENTINEL_MS, median_ms):
                self._set_sentinel(request)
        return outcome

    def _set_sentinel(self, request: Request) -> None:
        """Make a pair that works the sentinel; it is never given up as hopeless."""
        steady = replace(request, options={**request.options, "hopeless_ms": 0.0}, verify=False)
        outcome = self.supervisor.measure(steady)
        if outcome.status == "ok":
            self._sentinel = _Sentinel(steady, _median_ms(outcome))

    def _steady_ms(self, sentinel: _Sentinel) -> float | None:
        """Time of the sentinel: where it seems to have changed, the middle one of three; None if a launch fails."""
        times: list[float] = []
        while len(times) < 3:
            outcome = self.supervisor.measure(sentinel.request)
            if outcome.status != "ok":
                return None
            times.append(_median_ms(outcome))
            if len(times) == 1 and abs(times[0] / sentinel.baseline_ms - 1) <= self.timing.drift_limit:
                break
        return sorted(times)[len(times) // 2]

    def _drift(self) -> str:
        """Measure the sentinel: ``status: reason`` if it was slow for a while. A lasting change is the new baseline."""
        sentinel, limit = self._sentinel, self.timing.drift_limit
        if sentinel is None:
            return ""
        first = self._steady_ms(sentinel)
        if first is None:
            return "contended: the sentinel pair fails"
        sentinel.ratio = first / sentinel.baseline_ms
        if abs(sentinel.ratio - 1) <= limit:
            return ""
        time.sleep(self.timing.recovery_s)
        now = self._steady_ms(sentinel)
        if now is None:
            return "contended: the sentinel pair fails"
        lasting = abs(now / first - 1) <= limit
        drift = {"baseline_ms": sentinel.baseline_ms, "first_ms": first, "second_ms": now, "lasting": lasting}
        self.details.write("drift", drift)
        if lasting:
            sentinel.baseline_ms = now
            return f"throttled: the sentinel pair takes {sentinel.ratio:.3f} of its time"
        return f"throttled: the sentinel pair took {sentinel.ratio:.3f} of its time for a while"

    def _read(self) -> Reading:
        pid = self.supervisor.pid
        return self.telemetry.read(() if pid is None else (pid,))

    def _state(self, before: Reading) -> str:
        """Close a batch: ``status: reason`` if its times are not to be trusted."""
        verdict = self._drift()
        after = self._read()
        if throttled := after.throttled or before.throttled:
            verdict = f"throttled: {throttled}"
        if foreign := max(before.foreign or 0, after.foreign or 0):
            verdict = f"contended: {foreign} other processes on the GPU"
        drift = None if self._sentinel is None else self._sentinel.ratio
        batch = {"verdict": verdict, "drift": drift, "before": asdict(before), "after": asdict(after)}
        self.details.write("batch", batch)
        return verdict


def _rows(table: pd.DataFrame, index: np.ndarray) -> dict[int, Row]:
    """Rows of a table by their number, as far as ``index`` names them."""
    numbers = np.unique(index)
    return dict(zip(numbers.tolist(), table.iloc[numbers].to_dict("records"), strict=True))


def _problem_class(problem: Row) -> Hashable:
    """What decides which code of a kernel runs: filter, strides, dilations, padding, groups, alignment."""
    padded = any(int(problem[name]) for name in ("pad_d", "pad_h", "pad_w"))
    channels = (int(problem["C"]) // int(problem["G"]), int(problem["K"]) // int(problem["G"]))
    alignment = tuple(math.gcd(count, 16) for count in channels)
    return (*(int(problem[name]) for name in CLASS_FIELDS), padded, int(problem["G"]) > 1, alignment)


def _median_ms(outcome: Outcome) -> float:
    return float(outcome.reply["result"]["median_ms"])


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
