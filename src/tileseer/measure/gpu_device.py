"""A real GPU, or the host backend in its place: pairs are measured in worker processes through the C interface.

The process that holds this object never touches the GPU. Method, and what the details log beside the journal has:
docs/internals/measuring.md.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tileseer.core.code_digest import digest_of_code
from tileseer.core.errors import UserError
from tileseer.libraries.registry import library_of_arch
from tileseer.measure.device import NO_TIMES, STATUSES, Times
from tileseer.measure.harness.supervisor import TIMED, Outcome, Request, Supervisor, launch_options, problem_numbers
from tileseer.measure.harness.telemetry import VARIABLES, Board, Reading

if TYPE_CHECKING:
    from tileseer.measure.session import Session

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


class GpuDevice:
    """Measures through a ``Supervisor``, which its caller closes."""

    kind = "measured"
    differs = True

    def __init__(self, session: Session, supervisor: Supervisor, board: Board) -> None:
        """Ask the driver for its device; ``UserError`` if it is not the one that the session is about."""
        self.name = session.hardware.name
        self._session, self.supervisor, self._board = session, supervisor, board
        self._timing, self._seed = session.settings.parameters, session.settings.seed
        self.largest_batch = self._timing.sentinel_every
        self._best_ms: dict[str, float] = {}
        self._verified: set[Hashable] = set()
        self._sentinel: _Sentinel | None = None
        self._drift: float | None = None
        self._facts = supervisor.device()
        if self._facts["backend"] == "emulated":
            raise UserError(f"{session.driver}: {NO_TIMES}")
        # HIP's name of a target has features behind a colon.
        target, arch = str(self._facts["arch"]).partition(":")[0], session.hardware.arch
        if self._facts["backend"] in VARIABLES and target != arch.removesuffix("a"):
            raise UserError(
                f"the GPU is a {target}, and the kernels are for {arch}; "
                f"build those of {target}: --config arch={target}"
            )
        self._log = session.journal and session.journal.with_suffix(".details.jsonl")
        self._begin = time.monotonic()
        parameters = asdict(self._timing)
        method = {"timing": {name: parameters.pop(name) for name in TIMED}, "seed": self._seed, **parameters}
        made = {"device": self._facts, "kind": self.kind, "method": method, "identity": self.identity()}
        machine = {"host": platform.node(), "system": platform.platform(), "python": platform.python_version()}
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._tell("session", made | {"time": now, **machine, "pid": os.getpid()})

    def _tell(self, event: str, content: Mapping[str, Any]) -> None:
        """Append an event to the details log: a line of JSON, with the seconds since the session began (``at``)."""
        if self._log is None:
            return
        at = round(time.monotonic() - self._begin, 4)
        line = json.dumps({"event": event, "at": at, **content}, allow_nan=False) + "\n"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        # One write of a line to a file opened for appending: a killed writer loses at most its last line.
        with self._log.open("a") as log:
            log.write(line)

    @property
    def reported_name(self) -> str:
        """The product, as its driver reports it."""
        return str(self._facts["name"])

    @property
    def plans(self) -> str:
        """Library whose plans are the kernels, and its version; empty for kernels in modules."""
        return str(self._facts.get("plans", ""))

    def identity(self) -> str:
        """Return the SHA-256 of the method, the GPU model, its driver and runtime, and the code that measures.

        The board is not in it: what one GPU of a model measured holds for all of them.
        """
        device = {
            name: self._facts[name]
            for name in ("backend", "name", "arch", "compute_units", "driver_version", "runtime_version", "version")
        }
        device |= {"plans": self.plans} if self.plans else {}
        timing = {"cache": self._timing.cache, "rotate_bytes": 0, "seed": self._seed}
        timing |= {name: getattr(self._timing, name) for name in TIMED}
        code = digest_of_code("tileseer/measure/harness", *library_of_arch(self._session.arch).measuring)
        text = json.dumps({"scheme": SCHEME, "device": device, "timing": timing, "code": code}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def measure(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, problem_index: np.ndarray, candidate_index: np.ndarray
    ) -> Times:
        """Time n pairs as ``Device.measure`` says, in the given order, each one at once in the details log.

        Pairs of a batch during which the GPU was throttled, contended or drifting are measured again; if that does
        not help, that is their status.
        """
        of_problem, of_candidate = _rows(problems, problem_index), _rows(candidates, candidate_index)
        requests = zip(problem_index.tolist(), candidate_index.tolist(), strict=True)
        pairs = [(of_problem[problem], of_candidate[candidate]) for problem, candidate in requests]
        outcomes: dict[int, Outcome] = {}
        waiting = list(range(len(pairs)))
        verdict = ""
        for attempt in range(1 + RETRIES):
            before = self._board.read(self.supervisor.pids)
            for position in waiting:
                outcomes[position] = self._one(*pairs[position])
            verdict = self._state(before)
            waiting = [position for position in waiting if outcomes[position].status == "ok"]
            if not verdict or not waiting or attempt == RETRIES:
                break
            time.sleep(self._timing.recovery_s)
        for position in waiting if verdict else ():
            status, _, reason = verdict.partition(": ")
            outcomes[position] = Outcome(status, reason, outcomes[position].reply)
        return _times([outcomes[position] for position in range(len(pairs))], self._drift)

    def _one(self, problem: Row, candidate: Row) -> Outcome:
        key, kernel, split_k = str(problem["problem_key"]), str(candidate["kernel"]), int(candidate["split_k"])
        best_ms = self._best_ms.get(key, math.inf)
        hopeless_ms = best_ms * self._timing.hopeless_factor if best_ms < math.inf else 0.0
        seed = (self._seed << 32 | int(key[:8], 16)) & (2**44 - 1)
        # An engine of a library may be wrong for one problem alone.
        each = self.plans or self._timing.verify == "pair"
        in_class = kernel, split_k, key if each else _problem_class(problem)
        request = Request(
            modules=(self._session.module_of(kernel),),
            kernel=kernel,
            problem=problem_numbers(problem, str(problem["variant"]), split_k),
            options=launch_options(self._timing, seed, hopeless_ms),
            verify=in_class not in self._verified,
        )
        outcome = self.supervisor.measure(request)
        pair = {"kernel": kernel, "kernel_id": str(candidate["kernel_id"]), "split_k": split_k, "problem_key": key}
        result = {"status": outcome.status, "error": outcome.error, "faults": outcome.faults}
        details = {"verified": request.verify, "hopeless_ms": hopeless_ms, **outcome.reply}
        self._tell("pair", pair | result | details)
        if outcome.status == "ok":
            self._best_ms[key] = min(outcome.median_ms, best_ms)
            if request.verify:
                self._verified.add(in_class)
            if self._sentinel is None or self._sentinel.baseline_ms < min(SENTINEL_MS, outcome.median_ms):
                # It is never given up as hopeless.
                steady = replace(request, options={**request.options, "hopeless_ms": 0.0}, verify=False)
                again = self.supervisor.measure(steady)
                if again.status == "ok":
                    self._sentinel, self._drift = _Sentinel(steady, again.median_ms), 1.0
        return outcome

    def _steady_ms(self, sentinel: _Sentinel) -> float:
        """Time of the sentinel: where it seems to have changed, the middle one of three; NaN if a launch fails."""
        first = self.supervisor.measure(sentinel.request).median_ms
        if not abs(first / sentinel.baseline_ms - 1) > self._timing.drift_limit:
            return first
        return float(np.median([first, *(self.supervisor.measure(sentinel.request).median_ms for _ in range(2))]))

    def _drifts(self) -> str:
        """Measure the sentinel: ``status: reason`` if it was slow for a while. A lasting change is the new baseline."""
        sentinel, limit = self._sentinel, self._timing.drift_limit
        if sentinel is None:
            return ""
        first = second = self._steady_ms(sentinel)
        if not math.isnan(first):
            self._drift = first / sentinel.baseline_ms
            if abs(self._drift - 1) <= limit:
                return ""
            time.sleep(self._timing.recovery_s)
            second = self._steady_ms(sentinel)
        if math.isnan(second):
            return "contended: the sentinel pair fails"
        lasting = abs(second / first - 1) <= limit
        drift = {"baseline_ms": sentinel.baseline_ms, "first_ms": first, "second_ms": second, "lasting": lasting}
        self._tell("drift", drift)
        if lasting:
            sentinel.baseline_ms = second
            return f"throttled: the sentinel pair takes {self._drift:.3f} of its time"
        return f"throttled: the sentinel pair took {self._drift:.3f} of its time for a while"

    def _state(self, before: Reading) -> str:
        """Close a batch: ``status: reason`` if its times are not to be trusted."""
        verdict = self._drifts()
        after = self._board.read(self.supervisor.pids)
        if throttled := after.throttled or before.throttled:
            verdict = f"throttled: {throttled}"
        if foreign := max(before.foreign or 0, after.foreign or 0):
            verdict = f"contended: {foreign} other processes on the GPU"
        state = {"drift": self._drift, "before": asdict(before), "after": asdict(after)}
        self._tell("batch", {"verdict": verdict, **state})
        return verdict


def _rows(table: pd.DataFrame, index: np.ndarray) -> dict[int, Row]:
    """Return the rows of a table by their number, as far as ``index`` names them."""
    numbers = np.unique(index)
    return dict(zip(numbers.tolist(), table.iloc[numbers].to_dict("records"), strict=True))


def _problem_class(problem: Row) -> Hashable:
    """Return what decides which code of a kernel runs: filter, strides, dilations, padding, groups, alignment."""
    padded = any(int(problem[name]) for name in ("pad_d", "pad_h", "pad_w"))
    channels = (int(problem["C"]) // int(problem["G"]), int(problem["K"]) // int(problem["G"]))
    alignment = tuple(math.gcd(count, 16) for count in channels)
    return (*(int(problem[name]) for name in CLASS_FIELDS), padded, int(problem["G"]) > 1, alignment)


def _times(outcomes: Sequence[Outcome], drift: float | None) -> Times:
    ok = [outcome.status == "ok" for outcome in outcomes]
    samples = [np.array(outcome.reply["samples_ms"] if ok else []) for outcome, ok in zip(outcomes, ok, strict=True)]
    checks = [outcome.reply.get("check") for outcome in outcomes]
    return Times(
        status=np.array([STATUSES.index(outcome.status) for outcome in outcomes], np.uint8),
        latency_ms=np.array([outcome.median_ms for outcome in outcomes]),
        latency_cv=np.array([ms.std(ddof=1) / ms.mean() if len(ms) > 1 else np.nan for ms in samples]),
        samples=np.array([len(ms) for ms in samples], np.int32),
        sentinel=np.full(len(outcomes), drift, float),
        error=[outcome.error for outcome in outcomes],
        non_zero=np.array([check["non_zero"] if check else -1 for check in checks], np.int64),
    )
