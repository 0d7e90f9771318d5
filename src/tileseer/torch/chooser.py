"""Chooses the plan of a shape: by a published model, and by timing its picks beside PyTorch's own choice."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tileseer.core import cache
from tileseer.core.reading import read_bytes
from tileseer.facts.operations import VARIANTS
from tileseer.learn import model_files
from tileseer.learn.evidence import worth_timing
from tileseer.libraries.cudnn.engines import MEASURED_WORKSPACE_BYTES
from tileseer.libraries.cudnn.versions import advice_for
from tileseer.measure import turns
from tileseer.measure.device import Times
from tileseer.problems.problem import DIMS, Problem
from tileseer.serve.selector import NO_CANDIDATE, Selector
from tileseer.torch.choices import PYTORCH, Choices, Key
from tileseer.torch.reference import Reference

JUDGED_SECONDS = 0.06
"""So long plans of a shape are judged; those beyond ``JUDGED_AT_LEAST`` are not looked at later. PyTorch's benchmark
mode took 0.05 to 0.2 s a shape in the first step."""
JUDGED_AT_LEAST = 5
WORKSPACE_SHARE = 16
"""A plan may need one of so many parts of the GPU's memory as its workspace."""
FALLBACKS = 4
"""So many of cuDNN's first plans are tried where the pick cannot be built and nothing is timed."""
LIMIT_SECONDS = 8e-3
"""For all turns but the first ones."""
HEAD_START_CYCLES = 250_000
"""So long the GPU sleeps for each call that is queued: it lags behind the host, whose time must not count."""
FAR = 1.5
"""A way that takes so many times as long as the fastest in the first round is timed no more."""
TIE = 0.01
"""A way that is not faster than the first by this share loses to it."""
MEMORY_ERRORS = (MemoryError, torch.OutOfMemoryError)
Clock = Callable[[Sequence[str]], list[float]]
"""The milliseconds of ways, called one after the other by their names."""


class Chooser:
    """The choices of one model for all shapes and devices of this process.

    ``verify``: PyTorch's own choice, cuDNN's first plan and the model's so many best others are timed, and the fastest
    stays, cuDNN's first on a tie: that is mostly PyTorch's own choice as well, and takes the host less time. None: as
    many as are worth it for the kind of layer; 0: the model alone decides. ``extension`` is what ``extension.load``
    returns.
    """

    def __init__(self, model: Path, verify: int | None, path: Path | None, extension: Any) -> None:
        """Read the choices of ``path`` (None: in the user's cache) and the model's index."""
        self.model, self.verify, self.extension = model, verify, extension
        self._warned: set[str] = set()
        self._compared = False
        self.index = model_files.parse_index(model)
        self.version = f"cudnn {extension.version()}"
        digest = cache.key(read_bytes(model / model_files.INDEX))[:16]
        identity = f"model {digest}, verify {verify}, {self.version}, torch {torch.__version__}"
        self.choices = Choices(path, identity, self.index.operations)
        self.identity = identity, self.choices.path
        self._lacked_memory = False
        self._lock = threading.RLock()
        self._selectors: dict[str, Selector] = {}

    def prepare(self) -> None:
        """Read all models and rank once, unless choices are known: the first step of a program would wait for it."""
        for operation in () if self.choices.plans else self.index.operations:
            selector, (variant, _, dtype) = self._selector(operation), operation.rpartition("_")
            first = min(self._known_names(selector, 2))
            selector.shortlist(Problem.from_dims(variant, dtype), 1, [first], str(selector.library))

    def begin(self, device: int) -> None:
        """Tell the kernels what is known for a device."""
        for key, plan in self.choices.plans.items():
            if self._devices()[device] == key.device:
                variant, _, dtype = key.operation.rpartition("_")
                self.extension.know(device, VARIANTS.index(variant), dtype, key.benchmark, key.dims, plan)

    def choose(self, call: Any) -> str | None:
        """Return the plan of a new shape, or ``PYTORCH``; None where it cannot be chosen now.

        No exception but Ctrl-C's ends the user's program.
        """
        # In the thread of the call: PyTorch keeps by thread what it found for the shape, and would search again.
        try:
            with self._lock, torch._C.DisableTorchFunction(), torch.no_grad(), synchronizing():
                return self._choose(call)
        except MEMORY_ERRORS:
            self._leave("there was not enough memory to time the plans of a shape")
        except Exception as error:  # the door into somebody else's program
            self._leave(f"the plans of a shape cannot be timed ({type(error).__name__}: {error})")
        return None

    def measured(self, operation: str, device: int, benchmark: bool, dims: tuple[int, ...]) -> tuple[str, float, float]:
        """Return the plan of a shape, and the µs of a call by PyTorch's own choice and by the plan; NaN: not timed."""
        key = Key(operation, self._devices()[device], benchmark, dims)
        plan, times_ms = self.choices.plans.get(key, PYTORCH), self.choices.times.get(key, {})
        return plan, 1e3 * times_ms.get(PYTORCH, math.nan), 1e3 * times_ms.get(plan, math.nan)

    def _choose(self, call: Any) -> str | None:
        operation = f"{VARIANTS[call.direction]}_{call.dtype}"
        if reason := self._unsupported(operation, call.device):
            return self._leave(reason)
        problem = Problem.from_dims(VARIANTS[call.direction], call.dtype, **dict(zip(DIMS, call.dims, strict=True)))
        key = Key(operation, self._devices()[call.device], call.benchmark, problem.dims)
        if (known := self.choices.plans.get(key)) is not None:  # forgotten since, or of another GPU of this name
            return known
        self._lacked_memory = False
        plan, time_ms, own_ms, timed = PYTORCH, 0.0, 0.0, 0
        if self.verify == 0:
            plan = self._picked(call, problem)
        else:
            plan, time_ms, own_ms, timed = self._timed(call, problem)
        if self._lacked_memory:  # remembered is what all plans were there for
            return plan or None
        if timed or self.verify == 0:
            self.choices.add(key, plan, time_ms, timed, own_ms)
        return plan

    def _timed(self, call: Any, problem: Problem) -> tuple[str, float, float, int]:
        """Return the fastest of the plans and PyTorch's own, its milliseconds and PyTorch's, and how many ran."""
        selector, offered = self._selector(f"{problem.variant}_{problem.dtype}"), call.offered()
        known = [name for name in offered if name in self._known_names(selector, problem.ndim)]
        self._compare_versions(selector, offered, known)
        most = self.verify
        if most is None:
            (most,) = worth_timing(selector.expected([problem])).tolist()
        # As if the library offered these alone: the model orders them whatever version they are of.
        rows = selector.shortlist(problem, len(known), known, str(selector.library)) if known else []
        picks = [row["kernel"].partition(f"_{problem.ndim}d_")[2] for row in rows]
        # What the model does not know comes last, except cuDNN's first plan.
        listed = [*dict.fromkeys([*offered[:1], *picks, *([] if self.verify else offered)])]
        names = self._right_ones(call, problem, listed, 1 + most)
        if not names:
            return PYTORCH, 0.0, 0.0, 0
        ways = [*names[:1], PYTORCH, *names[1:]] if names[0] == offered[0] else [PYTORCH, *names]
        plan, times_ms = fastest_in_turns(self._clock(call), ways)
        return plan, times_ms[plan], times_ms[PYTORCH], len(ways)

    def _picked(self, call: Any, problem: Problem) -> str:
        selector, offered = self._selector(f"{problem.variant}_{problem.dtype}"), call.offered()
        known = self._known_names(selector, problem.ndim)
        # The model does not cover a first plan that was never measured, or never right.
        if not offered or offered[0] not in known:
            return PYTORCH
        row = selector.choose(problem, offered, self.version)
        first = [] if row == NO_CANDIDATE else [selector.kernels[row].partition(f"_{problem.ndim}d_")[2]]
        names = [name for name in [*first, *offered[:FALLBACKS]] if name in known]
        return next(iter(self._right_ones(call, problem, names, 1)), PYTORCH)

    def _clock(self, call: Any) -> Clock:
        return clock_of_gpu(call, device_of(call))

    def _right_ones(self, call: Any, problem: Problem, names: Sequence[str], most: int) -> list[str]:
        """Return the first ``most`` plans that can be built, need no huge workspace, and are right, as time allows."""
        reference = functools.cache(lambda: Reference(problem, device_of(call), self.extension.without_tf32))
        begin, found = time.monotonic(), list[str]()
        has_layout = functools.cache(lambda: bool(call.has_layout(found[0])))  # all plans have the same
        for name in names:
            is_late = time.monotonic() - begin > JUDGED_SECONDS and not self.verify
            if len(found) == most or (is_late and len(found) >= JUDGED_AT_LEAST):
                break
            try:
                if call.build(name) > self._workspace_bytes(call.device):
                    continue
                # First on operands between guards, then on the program's.
                if reference().error(functools.partial(call.launch, name)) <= 1.0:
                    found.append(name)
                    if not has_layout():
                        return []
            except self.extension.PlanError:  # cuDNN offers some plans that it cannot build
                continue
            except MEMORY_ERRORS:
                self._lacked_memory = True
                self._leave("a plan of a shape found no memory")
        return found

    def _workspace_bytes(self, device: int) -> int:
        """Return the workspace that a plan may need on a device."""
        return min(MEASURED_WORKSPACE_BYTES, self._memory_bytes(device) // WORKSPACE_SHARE)

    @functools.cache  # noqa: B019
    def _memory_bytes(self, device: int) -> int:
        return int(torch.cuda.get_device_properties(device).total_memory)

    def _compare_versions(self, selector: Selector, offered: list[str], known: list[str]) -> None:
        """Say once how many plans of another cuDNN the model knows."""
        if selector.library == self.version or self._compared:
            return
        self._compared = True
        self._warn(
            f"the model is for {selector.library}, and this is {self.version}: it orders the plans that it knows, "
            f"{len(known)} of the {len(offered)} of the first shape, and the fastest that are timed stay; "
            f"{advice_for(selector.library)}"
        )

    @functools.cache  # noqa: B019 - a chooser lives as long as the process
    def _known_names(self, selector: Selector, ndim: int) -> frozenset[str]:
        """CuDNN's names of the plans that the model has."""
        names = (kernel.partition(f"_{ndim}d_")[2] for kernel in selector.kernels)
        return frozenset(name for name in names if name)

    def _selector(self, operation: str) -> Selector:
        with self._lock:
            if operation not in self._selectors:
                self._selectors[operation] = Selector.read(self.model, operation)
            return self._selectors[operation]

    def _unsupported(self, operation: str, device: int) -> str:
        """Return why the model does not cover an operation on a device, or an empty string."""
        major, minor = self._capability(device)
        if not self.index.arch.startswith(f"sm_{major}{minor}_"):
            return f"the models of {self.model} are for {self.index.arch}, and this GPU is sm_{major}{minor}"
        if operation not in self.index.operations:
            return f"{self.model} has no model of {operation}"
        measured = self._selector(operation).library
        if self.verify != 0 or measured == self.version:
            return ""
        return (
            f"{self.model} is for {measured}, and this is {self.version}, where its plans have to be timed (verify=2); "
            f"{advice_for(measured)}"
        )

    def _capability(self, device: int) -> tuple[int, int]:
        return torch.cuda.get_device_capability(device)

    @functools.cache  # noqa: B019
    def _devices(self) -> dict[int, str]:
        """Return the names of the devices by number."""
        return {number: torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())}

    def _leave(self, reason: str) -> str:
        self._warn(f"{reason}; PyTorch's own choice runs instead")
        return PYTORCH

    def _warn(self, text: str) -> None:
        """Once per text."""
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(f"tileseer: {text}", stacklevel=2)


@contextlib.contextmanager
def synchronizing() -> Iterator[None]:
    """Let the host wait for the GPU where the program has forbidden that to itself (``set_sync_debug_mode``)."""
    mode = torch.cuda.get_sync_debug_mode() if torch.cuda.is_initialized() else 0
    try:
        if mode:
            torch.cuda.set_sync_debug_mode(0)
        yield
    finally:
        if mode:
            torch.cuda.set_sync_debug_mode(mode)


def fastest_in_turns(clock: Clock, names: Sequence[str]) -> tuple[str, dict[str, float]]:
    """Return the name of the fastest way, the first on a tie, and the milliseconds of each.

    Compared are the times within a turn, so that a clock that rises or falls does not count.
    """

    def measure(order: np.ndarray) -> Times:
        latency, unknown = np.array(clock([names[at] for at in order])), np.full(len(order), np.nan)
        return Times(np.full(len(order), turns.OK, np.uint8), latency, unknown, np.ones(len(order), np.int32), unknown)

    compared = turns.compare(measure, len(names), differs=True, seconds=LIMIT_SECONDS, far=FAR)
    # A way that was far slower in the first round was timed no more.
    late = np.flatnonzero(np.isfinite(compared.logs[-1]))
    logs = compared.logs[:, late]
    level = np.median(logs - logs.mean(axis=1, keepdims=True), axis=0)
    best = int(late[level.argmin()])
    if late[0] == 0 and np.median(compared.logs[:, best] - compared.logs[:, 0]) >= math.log1p(-TIE):
        best = 0
    return names[best], dict(zip(names, compared.time_ms.tolist(), strict=True))


def device_of(call: Any) -> torch.device:
    """Return the device of a call's operands."""
    return torch.device("cpu") if call.device < 0 else torch.device("cuda", call.device)


def clock_of_gpu(call: Any, device: torch.device) -> Clock:
    """Return the clock of a call's ways; ``call.run(name)`` queues one on the current stream."""
    # Overwriting as much as the GPU's cache holds leaves nothing of the operands in it, and time to queue what follows.
    size = torch.cuda.get_device_properties(device).L2_cache_size
    cold = torch.empty(size, dtype=torch.uint8, device=device)

    def clock(names: Sequence[str]) -> list[float]:
        torch.cuda._sleep(HEAD_START_CYCLES * len(names))
        events = []
        for name in names:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            cold.zero_()
            start.record()
            call.run(name)
            end.record()
            events.append((start, end))
        events[-1][1].synchronize()
        return [start.elapsed_time(end) for start, end in events]

    return clock
