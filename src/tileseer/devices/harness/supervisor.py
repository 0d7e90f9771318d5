"""Measuring pair by pair in worker processes: a fault is blamed on the one pair in flight, and costs no other.

A pair that crashes or hangs its worker is tried once more, alone in a new worker; then it is given up. After each
fault the device has to answer a health probe before anything else is measured.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tileseer.core.errors import UserError
from tileseer.devices.harness import abi
from tileseer.devices.harness.process import Fault, Worker

PROBES = 3
PROBE_LIMIT_S = 60.0
PROBE_PAUSE_S = 2.0
ERROR_CHARACTERS = 300


@dataclass(frozen=True)
class Limits:
    """How much trouble is borne."""

    pair_s: float = 60.0
    """Wall time of one pair, with loading, verification and timing."""
    worker_pairs: int = 2048
    """Pairs after which a worker is replaced by a fresh one."""
    kernel_faults: int = 3
    """Pairs given up after which a kernel's other pairs are skipped."""


@dataclass(frozen=True)
class Request:
    """One pair to measure."""

    libraries: tuple[str, ...]
    """The driver, then the module with the kernel unless the driver holds it."""
    kernel: str
    problem: tuple[int, ...]
    """The 21 numbers of ``ConvProblemC``."""
    options: Mapping[str, Any]
    """Fields of ``ConvOptionsC``."""
    verify: bool = True


@dataclass(frozen=True)
class Outcome:
    """What became of a pair; ``reply`` is the worker's answer, empty after a fault."""

    status: str
    error: str = ""
    reply: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    """What each failed try said, also when a second one succeeded."""


class Supervisor:
    """Owns the worker. Use it as a context."""

    def __init__(
        self,
        driver: str,
        environment: Mapping[str, str] | None = None,
        limits: Limits = Limits(),
    ) -> None:
        self._driver = driver
        self._environment = dict(environment or {})
        self._limits = limits
        self._worker: Worker | None = None
        self._asked = 0
        self._given_up: Counter[str] = Counter()
        self._lost = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """Return what the driver says of its device; a driver that cannot is a ``UserError``."""
        with Worker(self._environment) as worker:
            try:
                answer = worker.ask({"do": "device", "libraries": [self._driver]}, PROBE_LIMIT_S)
            except Fault as fault:
                raise UserError(f"{self._driver}: {fault}") from None
        if answer["code"] != abi.OK:
            # The system's own message begins with the file.
            raise UserError(f"{self._driver}: {answer['error'].removeprefix(f'{self._driver}: ')}")
        return answer

    def measure(self, request: Request) -> Outcome:
        """Measure one pair. A device that does not come back after a fault is a ``UserError`` at the next call."""
        if self._lost:
            raise UserError(self._lost)
        if self._given_up[request.kernel] >= self._limits.kernel_faults:
            return Outcome("skipped", f"the kernel was given up after {self._limits.kernel_faults} faults")
        try:
            return self._verdict(self._ask(request), request, ())
        except Fault as first:
            fault = first
        faults: tuple[str, ...] = (str(fault),)
        if self._healthy(request):
            self.close()
            try:
                return self._verdict(self._ask(request), request, faults)
            except Fault as second:
                fault = second
                faults = (*faults, str(fault))
            finally:
                # Alone: nothing that it may have broken is left to the next pair.
                self.close()
            self._healthy(request)
        self._given_up[request.kernel] += 1
        return Outcome(fault.kind, printable(str(fault)), faults=faults)

    def _ask(self, request: Request) -> dict[str, Any]:
        if self._worker is None or self._asked >= self._limits.worker_pairs:
            self.close()
            self._worker = Worker(self._environment)
            self._asked = 0
        self._asked += 1
        content = {
            "do": "measure", "libraries": list(request.libraries), "kernel": request.kernel,
            "problem": list(request.problem), "options": dict(request.options), "verify": request.verify,
        }  # fmt: skip
        try:
            answer = self._worker.ask(content, self._limits.pair_s)
        except Fault:
            self._worker = None
            raise
        if answer["code"] == abi.DEVICE_FAULT:
            # The context is gone, and with it the worker's use.
            self.close()
            raise Fault("crash", "device", answer["error"])
        return answer

    def _verdict(self, answer: dict[str, Any], request: Request, faults: tuple[str, ...]) -> Outcome:
        code, error = answer["code"], printable(answer["error"])
        if code == abi.OK:
            check = answer["check"]
            if check and check["wrong"]:
                told = (
                    f"{check['wrong']} of {check['elements']} elements wrong; {check['not_finite']} not finite; "
                    f"worst {check['worst']:.3g} tolerances"
                )
                return Outcome("wrong_result", told, answer, faults)
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
        """Whether the device computes again; if not, the next call of ``measure`` says so."""
        told = ""
        for attempt in range(PROBES):
            if attempt:
                time.sleep(PROBE_PAUSE_S)
            try:
                with Worker(self._environment) as worker:
                    answer = worker.ask({"do": "probe", "libraries": [self._driver]}, PROBE_LIMIT_S)
                if answer["code"] == abi.OK:
                    return True
                told = answer["error"]
            except Fault as fault:
                told = str(fault)
        self._lost = (
            f"the device does not answer after {request.kernel}: {told}; all rows so far are in the journal; "
            "reset the GPU and run again"
        )
        return False


def problem_numbers(problem: Mapping[str, Any], variant: str, split_k: int) -> tuple[int, ...]:
    """Return the 21 numbers of ``ConvProblemC`` for a row of problems."""
    dims = (int(problem[name]) for name in abi.PROBLEM_DIMS.values())
    return (*dims, abi.DIRECTIONS.index(variant), int(split_k))


def printable(text: str) -> str:
    """Return text that fits one field of a journal: one line of ASCII without commas and quotes."""
    plain = text.encode("ascii", "backslashreplace").decode()
    return re.sub(r"\s+", " ", plain.replace(",", ";").replace('"', "'")).strip()[:ERROR_CHARACTERS]


def libraries(driver: str, modules: Sequence[str]) -> tuple[str, ...]:
    """Return the libraries of a request; a module that is the driver itself is named once."""
    return (driver, *(module for module in modules if module != driver))
