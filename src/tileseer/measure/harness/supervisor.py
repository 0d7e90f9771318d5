"""Measuring pair by pair in worker processes: a fault is blamed on the one pair in flight, and costs no other.

A pair that crashes or hangs its worker is tried once more, alone in a new worker; then it is given up. After each
fault the device has to answer a health probe before anything else is measured.
"""

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from tileseer.config.benchmark import Timing
from tileseer.core.errors import UserError, printed
from tileseer.measure.device import SLOWEST_MS
from tileseer.measure.harness import abi
from tileseer.measure.harness.process import MEMORY_MIB, Fault, Worker

PROBES = 3
PROBE_LIMIT_S = 60.0
PROBE_PAUSE_S = 2.0
ERROR_CHARACTERS = 300
TIMED = (
    "min_time_ms", "max_noise", "budget_ms", "sample_ms", "warmup_change", "settle_ms", "min_samples", "max_samples",
)  # fmt: skip
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


@dataclass(frozen=True)
class Request:
    """One pair to measure."""

    libraries: tuple[str, ...]
    """The driver, then what has the kernel unless the driver holds it: a module, or cuDNN (``cudnn_plans.LIBRARY``)."""
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


class Supervisor(AbstractContextManager["Supervisor"]):
    """Owns the worker. Use it as a context."""

    def __init__(
        self,
        driver: str,
        environment: Mapping[str, str] | None = None,
        limits: WorkerLimits = WorkerLimits(),
        plans: str = "",
    ) -> None:
        """``plans``: library whose plans are the kernels (``cudnn 91900``), for what has no modules."""
        self._driver = driver
        self.libraries = libraries(driver, [plans] if plans else [])
        self._environment = dict(environment or {})
        self._limits = limits
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
    def pid(self) -> int | None:
        """Process number of the worker, if there is one."""
        return None if self._worker is None else self._worker.pid

    def device(self) -> dict[str, Any]:
        """What the driver says of its device; ``UserError`` if it cannot say."""
        with Worker(self._environment) as worker:
            try:
                answer = worker.ask({"do": "device", "libraries": self.libraries}, PROBE_LIMIT_S)
            except Fault as fault:
                raise UserError(f"{self._driver}: {fault}") from None
        if answer["code"] != abi.OK:
            # The system's own message begins with the file.
            raise UserError(f"{self._driver}: {answer['error'].removeprefix(f'{self._driver}: ')}")
        return answer

    def offered(self, problem: Sequence[int], dtype: str, ndim: int) -> tuple[list[str], str]:
        """Plans that cuDNN offers for a problem, in its order, and why there are none; a fault ends the worker."""
        request = {"do": "offered", "libraries": self.libraries, "problem": problem, "dtype": dtype, "ndim": ndim}
        try:
            answer = self._ask(request)
        except Fault as fault:
            return [], str(fault)
        return answer.get("plans", []), answer["error"]

    def measure(self, request: Request) -> Outcome:
        """Measure one pair. After a device was lost, the next call is a ``UserError``."""
        if self._lost:
            raise UserError(self._lost)
        if self._given_up[request.kernel] >= self._limits.kernel_faults:
            return Outcome("skipped", f"the kernel was given up after {self._limits.kernel_faults} faults")
        faults: list[str] = []
        for alone in (False, True):
            if alone:
                self.close()
            try:
                answer = self._ask({"do": "measure", **vars(request)})
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

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._worker is None or self._requests >= self._limits.worker_pairs:
            self.close()
            self._worker = Worker(self._environment, memory_mib=self._limits.memory_mib)
            self._requests = 0
        self._requests += 1
        try:
            answer = self._worker.ask(request, self._limits.pair_s)
        except Fault:
            self._worker = None
            raise
        if answer["code"] == abi.DEVICE_FAULT:
            # The context is gone, and with it the worker's use.
            self.close()
            raise Fault("crash", answer["error"])
        return answer

    def _outcome(self, answer: dict[str, Any], request: Request, faults: tuple[str, ...]) -> Outcome:
        code, error = answer["code"], printable(answer["error"])
        if code == abi.OK:
            check = answer["check"]
            if check and check["wrong"]:
                orders = answer.get("wrong", [])
                if 0 in orders:
                    message = f"elements wrong; in orders of the waves: {' '.join(map(str, orders))}"
                    return Outcome("race", message, answer, faults)
                message = (
                    f"{check['wrong']} of {check['elements']} elements wrong; {check['not_finite']} not finite; "
                    f"worst {check['worst']:.3g} tolerances"
                )
                return Outcome("wrong_result", message, answer, faults)
            if "opcodes" in answer:
                # An emulated GPU has no times.
                return Outcome("ok", "", answer, faults)
            times = [answer["result"]["median_ms"], *answer["samples_ms"]]
            if bad := [time for time in times if not 0 < time < SLOWEST_MS]:
                self._given_up[request.kernel] += 1
                return Outcome("crash", f"the driver gave {bad[0]} ms: that is no time", faults=faults)
            return Outcome("ok", "", answer, faults)
        if code == abi.UNSUPPORTED:
            return Outcome("unsupported", error or "refused without a reason", answer, faults)
        if code == abi.OUT_OF_MEMORY:
            return Outcome("skipped", error, answer, faults)
        if code == abi.NO_KERNEL:
            raise UserError(f"{request.libraries[-1]}: {answer['error']}; build the kernels again")
        self._given_up[request.kernel] += 1
        return Outcome("crash", error, answer, faults)

    def _healthy(self, request: Request) -> bool:
        """Whether the device computes again; if not, the next call of ``measure`` reports it."""
        message = ""
        for attempt in range(PROBES):
            if attempt:
                time.sleep(PROBE_PAUSE_S)
            try:
                with Worker(self._environment) as worker:
                    answer = worker.ask({"do": "probe", "libraries": [self._driver]}, PROBE_LIMIT_S)
                if answer["code"] == abi.OK:
                    return True
                message = answer["error"]
            except Fault as fault:
                message = str(fault)
        self._lost = (
            f"the device does not answer after {request.kernel}: {message}; all rows so far are in the journal; "
            "reset the GPU and run again"
        )
        return False


def problem_numbers(problem: Mapping[Any, Any], variant: str, split_k: int) -> tuple[int, ...]:
    """The 21 numbers of ``ConvProblemC`` for a row of problems."""
    dims = (int(problem[name]) for name in abi.PROBLEM_DIMS.values())
    return (*dims, abi.DIRECTIONS.index(variant), int(split_k))


def printable(text: str) -> str:
    """Text as it fits one field of a journal: one line of printable ASCII without commas and quotes."""
    line = re.sub(r"\s+", " ", text.replace(",", ";").replace('"', "'")).strip()
    return printed(line).encode("ascii", "backslashreplace").decode()[:ERROR_CHARACTERS]


def libraries(driver: str, modules: Sequence[str]) -> tuple[str, ...]:
    """Libraries of a request; a module that is the driver itself is named once."""
    return (driver, *(module for module in modules if module != driver))


def launch_options(timing: Timing, seed: int = 1, hopeless_ms: float = 0.0) -> dict[str, Any]:
    """Fields of ``ConvOptionsC``; a pair slower than ``hopeless_ms`` gets one sample, 0: none is given up."""
    return {
        **{name: getattr(timing, name) for name in TIMED}, "seed": seed, "rotate_bytes": timing.rotate_mib << 20,
        "cache": abi.CACHES.index(timing.cache), "hopeless_ms": hopeless_ms, "verify_millions": timing.verify_millions,
    }  # fmt: skip
