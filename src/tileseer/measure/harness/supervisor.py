"""Measuring pair by pair in worker processes: a fault is blamed on the one pair in flight, and costs no other.

A pair that crashes or hangs its worker is tried once more, alone in a new worker; then it is given up. After each
fault the device has to answer a health probe before anything else is measured.
"""

import math
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tileseer.core.errors import UserError, printed
from tileseer.facts.benchmark import Timing
from tileseer.facts.operations import VARIANTS
from tileseer.libraries.registry import library_of_name
from tileseer.measure.device import are_times
from tileseer.measure.harness import abi
from tileseer.measure.harness.process import MEMORY_MIB, Fault, Worker

PROBES = 3
PROBE_LIMIT_S = 60.0
PROBE_PAUSE_S = 2.0
ERROR_CHARACTERS = 300
TIMED = (
    *("min_time_ms", "max_noise", "budget_ms", "sample_ms"),
    *("warmup_change", "settle_ms", "min_samples", "max_samples"),
)
"""Fields of ``Timing`` and of ``ConvOptionsC`` alike."""


@dataclass(frozen=True)
class WorkerLimits:
    """When a worker or a kernel is given up."""

    pair_s: float = 60.0
    """Wall time of one pair, with loading, verification and timing."""
    worker_pairs: int = 2048
    """Pairs after which a worker is replaced by a fresh one."""
    kernel_faults: int = 3
    """Pairs given up after which a kernel's other pairs are skipped."""
    memory_mib: int = MEMORY_MIB
    """What each process of a worker may take."""
    tries: int = 2
    """Of a pair that crashes or hangs its worker."""


@dataclass(frozen=True)
class Request:
    """One pair to measure."""

    modules: tuple[str, ...]
    """What has the kernel unless the driver holds it: a module, or the name of a library that offers it."""
    kernel: str
    problem: tuple[int, ...]
    """The 21 numbers of ``ConvProblemC``."""
    options: Mapping[str, Any]
    """Fields of ``ConvOptionsC``."""
    verify: bool = True


@dataclass(frozen=True)
class Outcome:
    """Result of a pair; ``reply`` is the worker's answer, empty after a fault."""

    status: str
    error: str = ""
    reply: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    """What each failed try reported, also when a second one succeeded."""

    @property
    def median_ms(self) -> float:
        """Time of a launch; NaN unless the status is ``ok``."""
        return float(self.reply["result"]["median_ms"]) if self.status == "ok" else math.nan


class Supervisor(AbstractContextManager["Supervisor"]):
    """Owns the worker. Use it as a context."""

    def __init__(
        self,
        driver: str,
        environment: Mapping[str, str] | None = None,
        limits: WorkerLimits = WorkerLimits(),
        plans: str = "",
        lock: int | None = None,
    ) -> None:
        """``plans``: library whose plans are the kernels, with a version that one alone (``NAME VERSION``).

        ``lock``: open file of the GPU's lock, which workers inherit: it is held until the last of them has ended.
        """
        self._driver, self._plans = driver, (plans,) if plans else ()
        self._registers = library_of_name(plans.partition(" ")[0]).plans if plans else ""
        self._environment = dict(environment or {})
        self._limits, self._lock = limits, lock
        self._worker: Worker | None = None
        self._requests = 0
        self._given_up: Counter[str] = Counter()
        self._lost = ""

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    @property
    def pids(self) -> tuple[int, ...]:
        """Process number of the worker, if there is one."""
        return () if self._worker is None or self._worker.pid is None else (self._worker.pid,)

    def device(self) -> dict[str, Any]:
        """Return what the driver says of its device; ``UserError`` if it cannot say."""
        return self._ask_another({"do": "device"}, self._plans)

    def supporting(self, modules: Sequence[str], problem: Sequence[int]) -> list[str]:
        """Return the kernels that can run a problem by their own checks; ``UserError`` if a module does not load."""
        return list(self._ask_another({"do": "supporting", "problem": problem}, modules)["kernels"])

    def _ask_another(self, request: Mapping[str, Any], modules: Sequence[str]) -> dict[str, Any]:
        """Answer of a worker of its own; ``UserError`` without one."""
        with Worker(self._environment, lock=self._lock) as worker:
            try:
                answer = worker.ask(self._complete(request, modules), PROBE_LIMIT_S)
            except Fault as fault:
                raise UserError(f"{', '.join((self._driver, *modules))}: {fault}") from None
        if answer["code"] != abi.OK:
            # The system's own message begins with the file.
            raise UserError(f"{self._driver}: {answer['error'].removeprefix(f'{self._driver}: ')}")
        return answer

    def offered(self, problem: Sequence[int], dtype: str, ndim: int) -> tuple[list[str], str]:
        """Return the library's plans for a problem, in its order, and why there are none; a fault ends the worker."""
        try:
            answer = self._ask({"do": "offered", "problem": problem, "dtype": dtype, "ndim": ndim}, self._plans)
        except Fault as fault:
            return [], str(fault)
        return answer.get("plans", []), answer["error"]

    def instances(self, request: Request) -> list[str]:
        """Return the instances of a kernel that an emulated device launches for a problem, without executing them.

        None if the kernel refuses the problem; where it is not clear, an empty name.
        """
        # Nothing is compared, so that hardly anything of the reference is computed.
        options = {**request.options, "verify_millions": 1}
        try:
            answer = self._ask({"do": "launches", **vars(request), "options": options}, request.modules)
        except Fault:
            return [""]
        self._require_kernel(answer, request)
        return list(answer.get("instances", []))

    def measure(self, request: Request) -> Outcome:
        """Measure one pair. After a device was lost, the next call is a ``UserError``."""
        if self._lost:
            raise UserError(self._lost)
        if self._given_up[request.kernel] >= self._limits.kernel_faults:
            return Outcome("skipped", f"the kernel was excluded after {self._limits.kernel_faults} faults")
        faults: list[str] = []
        for alone in (False, True)[: self._limits.tries]:
            if alone:
                self.close()
            try:
                answer = self._ask({"do": "measure", **vars(request)}, request.modules)
                return self._outcome(answer, request, tuple(faults))
            except Fault as error:
                kind, text = error.kind, str(error)
                faults.append(text)
            finally:
                if alone:
                    # Nothing that the pair may have broken is left to the next one.
                    self.close()
            if not self._healthy(request):
                break
        self._given_up[request.kernel] += 1
        return Outcome(kind, printable(text), faults=tuple(faults))

    def _complete(self, request: Mapping[str, Any], modules: Sequence[str]) -> dict[str, Any]:
        """Return a request with what the worker loads for it."""
        return {**request, "libraries": [self._driver, *modules], "plans": self._registers}

    def _ask(self, request: Mapping[str, Any], modules: Sequence[str]) -> dict[str, Any]:
        if self._worker is None or self._requests >= self._limits.worker_pairs:
            self.close()
            self._worker = Worker(self._environment, self._limits.memory_mib, self._lock)
            self._requests = 0
        self._requests += 1
        try:
            answer = self._worker.ask(self._complete(request, modules), self._limits.pair_s)
        except Fault:
            self._worker = None
            raise
        if answer["code"] == abi.DEVICE_FAULT:
            # The context is gone, and with it the worker's use.
            self.close()
            raise Fault("crash", answer["error"])
        return answer

    def _outcome(self, answer: dict[str, Any], request: Request, faults: tuple[str, ...]) -> Outcome:
        self._require_kernel(answer, request)
        status, error = _classified(answer)
        if status == "crash":
            self._given_up[request.kernel] += 1
        return Outcome(status, error, {} if status == "crash" else answer, faults)

    def _require_kernel(self, answer: Mapping[str, Any], request: Request) -> None:
        if answer["code"] == abi.NO_KERNEL:
            raise UserError(f"{(self._driver, *request.modules)[-1]}: {answer['error']}; build the kernels again")

    def _healthy(self, request: Request) -> bool:
        """Return whether the device computes again; if not, the next call of ``measure`` reports it."""
        message = ""
        for attempt in range(PROBES):
            if attempt:
                time.sleep(PROBE_PAUSE_S)
            try:
                self._ask_another({"do": "probe"}, ())
                return True
            except UserError as error:
                message = str(error)
        self._lost = (
            f"the device does not answer after {request.kernel}: {message}; all rows so far are in the journal; "
            "reset the GPU (amd-smi reset --gpureset, nvidia-smi --gpu-reset) and run again"
        )
        return False


def _classified(answer: Mapping[str, Any]) -> tuple[str, str]:
    """Return the status of a pair by a worker's answer, and why it is not ``ok``."""
    if answer["code"] != abi.OK:
        status = {abi.UNSUPPORTED: "unsupported", abi.OUT_OF_MEMORY: "skipped"}.get(answer["code"], "crash")
        return status, printable(answer["error"]) or "refused without a reason"
    if failed := answer.get("failed"):
        return failed, printable(answer["error"])
    check, races = answer["check"], answer.get("races")
    for status, texts in (("race", races), ("unwritten_load", answer.get("unwritten"))):
        if texts:
            return status, "; ".join([texts[0], *([f"{len(texts) - 1} more"] if texts[1:] else [])])
    if check and check["wrong"]:
        return "wrong_result", (
            f"{check['wrong']} of {check['elements']} elements wrong; {check['not_finite']} not finite; "
            f"worst {check['worst']:.3g} tolerances"
        )
    # An emulated GPU has no times.
    times = np.array([] if races is not None else [answer["result"]["median_ms"], *answer["samples_ms"]])
    wrong = times[~are_times(times)]
    return ("crash", f"the driver gave {wrong[0]} ms: that is no time") if wrong.size else ("ok", "")


def problem_numbers(problem: Mapping[Any, Any], variant: str, split_k: int) -> tuple[int, ...]:
    """Return the 21 numbers of ``ConvProblemC`` for a row of problems."""
    dims = (int(problem[name]) for name in abi.PROBLEM_DIMS.values())
    return (*dims, VARIANTS.index(variant), int(split_k))


def printable(text: str) -> str:
    """Return text as it fits one field of a journal: one line of printable ASCII without commas and quotes."""
    line = re.sub(r"\s+", " ", text.replace(",", ";").replace('"', "'")).strip()
    return printed(line).encode("ascii", "backslashreplace").decode()[:ERROR_CHARACTERS]


def launch_options(timing: Timing, seed: int = 1, hopeless_ms: float = 0.0) -> dict[str, Any]:
    """Return fields of ``ConvOptionsC``; a pair slower than ``hopeless_ms`` gets one sample, 0: none is given up."""
    rotation = {"rotate_bytes": 0, "cache": abi.CACHES.index(timing.cache)}
    limits = {"hopeless_ms": hopeless_ms, "verify_millions": timing.verify_millions}
    return {**{name: getattr(timing, name) for name in TIMED}, "seed": seed, **rotation, **limits}
