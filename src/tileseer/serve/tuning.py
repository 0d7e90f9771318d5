"""Time the short list of each problem once, and remember the fastest beside the model (``tileseer tune``).

Where the noise of a comparison is below ``turns.NOISE``, the timing decides alone. Else the choice weighs timing and
prediction by their errors, so that noise does not undo what the model is sure of.
"""

from __future__ import annotations

import functools
import hashlib
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.core.errors import UserError
from tileseer.core.script import Settings
from tileseer.data.recorded_device import RecordedDevice
from tileseer.facts.benchmark import BenchmarkSettings
from tileseer.facts.hardware import target
from tileseer.learn import model_files
from tileseer.libraries.candidates import with_fields
from tileseer.libraries.kernel_table import chunk_of
from tileseer.libraries.registry import library_of_arch
from tileseer.measure import turns
from tileseer.measure.benchmark import Batch, journal_rows
from tileseer.measure.device import Device, Times
from tileseer.measure.gpu_device import GpuDevice
from tileseer.measure.harness.supervisor import problem_numbers
from tileseer.measure.journal import Journal
from tileseer.measure.session import Session
from tileseer.problems.operation import Operation
from tileseer.problems.problem import Problem, problem_frame
from tileseer.problems.shapes import implicit_gemm
from tileseer.serve.provenance import read_provenance
from tileseer.serve.selector import NO_CANDIDATE, SIMULATED, Ranked, Selector
from tileseer.serve.tuned import Choice, read_choices, remember, tuned_path

PREDICTION_ERROR = 0.05
"""Error of the predicted ln(time) of one candidate over another of a short list: on layers left out of the recordings
of an MI355X and an H200, of all values this one leads to the best choices with noise of 1, 2 and 5 %."""
OWN_CHOICES_TRIED = 3
"""Own choices of a library that do not run, after which a problem is left out."""


@dataclass(frozen=True)
class Where:
    """What times candidates."""

    device: str
    """``gpu``, ``simulated`` or ``recorded``."""
    hardware_table: Path
    coefficients: Path
    recording: Path | None = None
    """Folder of the recording, of the device ``recorded``."""
    libraries: Path | None = None
    """Folder with ``driver.so`` and ``OPERATION/CHUNK.so``, of the device ``gpu``."""
    program: str = ""
    """As ``Session.program``, on the device ``gpu``."""


@dataclass(frozen=True)
class Timer:
    """A device that this process alone times on."""

    device: Device
    name: str
    """As its driver reports it."""
    session: Session
    library: str
    """What offers the candidates, with its version; empty where the model has all of them."""

    def offered(self, problem: Problem) -> list[str]:
        """Return what the library offers for a problem, by its own names in its own order."""
        if isinstance(self.device, RecordedDevice):
            kernels = self.device.offered(problem.key)
            return [name.partition(f"_{problem.ndim}d_")[2] for name in kernels]
        assert isinstance(self.device, GpuDevice)
        numbers = problem_numbers(vars(problem), problem.variant, split_k=1)
        return self.device.supervisor.offered(numbers, problem.dtype, problem.ndim)[0]


@dataclass(frozen=True)
class Tuned:
    """One problem that was timed."""

    problem: Problem
    first: str
    """The candidate that would have run without timing."""
    choice: Choice
    gain: float
    """Time of the first over that of the choice."""
    noise: float
    rounds: int


@dataclass(frozen=True)
class LeftOut:
    """One problem without a choice, and why."""

    problem: Problem
    reason: str


def check_driver(program: str, arch: str) -> None:
    """Raise a ``UserError`` for a program that does not time kernels of an arch, or does not run."""
    library = library_of_arch(arch)
    if not library.program:
        raise UserError(f"--driver: {library.title} has no program that times kernels of {arch}; leave it out")
    if not shutil.which(program):
        fault = "it cannot be executed" if Path(program).exists() else "there is no such program"
        raise UserError(f"--driver {program}: {fault}; give the path of {library.program}, which {library.title} has")


@contextmanager
def claimed(selector: Selector, where: Where, models: Path) -> Iterator[Timer]:
    """Hold the device for the candidates of a model; ``UserError`` if its times are not for this model."""
    spec = selector.spec
    library = library_of_arch(spec.arch)
    if where.program:
        check_driver(where.program, spec.arch)
    if where.device == "gpu" and library.program and not where.program:
        raise UserError(
            f"--device gpu: {spec.arch} has kernels of {library.title}, which its own program times: "
            f"--driver {library.program}"
        )
    if where.device == SIMULATED and spec.device_kind != SIMULATED:
        raise UserError(
            f"{models}: the model is of {spec.device_kind} times, which simulated ones are not for; leave --device out"
        )
    session = _session(selector, where, models)
    if where.device == "recorded":
        folder = where.recording or Path("config/recorded") / spec.arch
        device = RecordedDevice(folder, Operation.parse(spec.operation), session.hardware)
        yield Timer(device, device.name, session, selector.library or "")
        return
    with session.hold_device() as (held, _):
        if isinstance(held, GpuDevice):
            if held.plans and held.plans != selector.library:
                raise UserError(f"{models}: the plans are of {selector.library}, but this machine has {held.plans}")
            yield Timer(held, held.reported_name, session, held.plans)
        else:
            yield Timer(held, held.name, session, "")


def _session(selector: Selector, where: Where, models: Path) -> Session:
    spec = selector.spec
    backend = "simulated" if where.device != "gpu" else "cuda" if spec.arch.startswith("sm_") else "hip"
    session = Session(
        arch=spec.arch,
        operation=spec.operation,
        options=_options(models, backend),
        hardware_table=where.hardware_table,
        product=spec.device,
        coefficients=where.coefficients,
        journal=tuned_path(models, spec.operation).with_suffix(".journal.csv"),
    )
    if where.device != "gpu":
        return session
    if where.program:
        return replace(session, program=where.program)
    folder, library = where.libraries, library_of_arch(spec.arch)
    if folder is None or not (driver := folder / "driver.so").is_file():
        name, arch = library.name if library.offered else backend, spec.arch if library.offered else target(spec.arch)
        raise UserError(
            f"{folder}: there is no driver.so; on a machine with the GPU, run first: tileseer run "
            f"results/models/{arch} --configfile config/{name}.yaml; then give --libraries results/libraries/{arch}"
        )
    if library.offered:
        return replace(session, driver=driver, plans=library.name)
    modules = sorted((folder / spec.operation).glob("*.so"), key=lambda path: (len(path.name), path.name))
    if not modules:
        raise UserError(f"{folder / spec.operation}: there is no library of kernels; build them with a measuring run")
    names = dict.fromkeys(selector.kernels)
    return replace(session, driver=driver, modules={name: modules[chunk_of(name, len(modules))] for name in names})


def _options(models: Path, backend: str) -> Settings:
    """Return how the model's own times were measured, on another device; the defaults where nothing says so."""
    is_written = (models / model_files.PROVENANCE).exists()
    config = read_provenance(models).config if is_written else {}
    own = BenchmarkSettings.of(config, "benchmark")
    return {"benchmark": own.model_dump(exclude_unset=True) | {"device": backend}, "lock": config.get("lock") or {}}


def tune(
    selector: Selector, models: Path, problems: Sequence[Problem], timer: Timer, top: int, until: float = math.inf
) -> Iterator[Tuned | LeftOut | None]:
    """Time the short lists of problems of one operation, and remember each choice at once.

    None for a problem that was tuned on this device before. Ends at ``until`` of the monotonic clock.
    """
    session, journal_path = timer.session, timer.session.journal
    assert journal_path is not None
    paths = {
        problem: tuned_path(models, selector.spec.operation, selector.other_layout(problem)) for problem in problems
    }
    for path in set(paths.values()):
        read_choices(path)  # a file that is none is refused before anything is timed
    with ExitStack() as held:
        # Opened before the first timing: where nothing is timed, nothing is left.
        journal = functools.cache(lambda: held.enter_context(Journal(journal_path, session.lock_timeout_s)))
        for problem in problems:
            if time.monotonic() >= until:
                return
            before = selector.tuned(problem)
            if before and before.device_kind == timer.device.kind:
                yield None
                continue
            result = _tuned(selector, problem, timer, top, journal)
            if isinstance(result, Tuned):
                remember(paths[problem], [result.choice])
            yield result


def _tuned(
    selector: Selector, problem: Problem, timer: Timer, top: int, journal: Callable[[], Journal]
) -> Tuned | LeftOut:
    """Time one short list; without a library's own choices that do not run."""
    if problem.layout and not selector.knows(problem.ndim, problem.layout):
        return LeftOut(problem, f"the model does not know the layout {problem.layout}")
    if isinstance(timer.device, RecordedDevice) and not timer.device.has_times(problem.key):
        return LeftOut(problem, "the recording has no times of it")
    offered = timer.offered(problem) if timer.library else []
    if timer.library and not offered:
        return LeftOut(problem, f"{timer.library} offers no candidate for it on this device")
    for _ in range(OWN_CHOICES_TRIED):
        listed = selector.shortlist(problem, top, offered, timer.library)
        if not listed:
            return LeftOut(problem, "no candidate of the model supports it")
        if listed[0]["candidate"] not in selector.candidates:
            return LeftOut(problem, f"the model does not have the own choice of {timer.library}")
        compared = turns.compare(_measure(problem, listed, timer, journal()), len(listed), timer.device.differs)
        if not compared.rounds:
            return LeftOut(problem, "the device was throttled or shared; run again")
        ran = np.isfinite(compared.time_ms)
        first = _first(selector, problem, listed, offered, timer.library)
        if ran[first] or not offered:
            break
        # The library would go on with the next one itself.
        offered = offered[1:] if listed[first]["offered"] == 0 else offered
        if not offered:
            break
    if not ran.any():
        return LeftOut(problem, f"no candidate of its short list ran; {timer.session.journal} says why")
    best = choice_of(compared.time_ms, -np.log([row["predicted_time"] for row in listed]), compared.noise)
    choice = Choice(
        problem.dims, listed[best]["candidate"], float(compared.time_ms[best]),
        int(ran.sum()), timer.name, timer.device.kind,
    )  # fmt: skip
    gain = float(compared.time_ms[first] / compared.time_ms[best]) if ran[first] else math.inf
    return Tuned(problem, listed[first]["candidate"], choice, gain, compared.noise, compared.rounds)


def _first(selector: Selector, problem: Problem, listed: Sequence[Ranked], offered: Sequence[str], library: str) -> int:
    """Place in the list of what runs without timing."""
    if offered:
        row = selector.choose(problem, offered, library)
    else:
        row = int(selector.select(selector.dims_of(problem)).candidate[0])
    if row == NO_CANDIDATE:
        return next(place for place, one in enumerate(listed) if one["offered"] == 0)
    return next(place for place, one in enumerate(listed) if one["candidate"] == selector.candidates[row])


def _measure(
    problem: Problem, listed: Sequence[Ranked], timer: Timer, journal: Journal
) -> Callable[[np.ndarray], Times]:
    """Return a function that times candidates of the list by their numbers; each time is in the journal at once."""
    rows = pd.DataFrame({name: [row[name] for row in listed] for name in ("kernel", "split_k")})
    arch = timer.session.arch
    rows["kernel_id"] = [hashlib.sha256(f"{name}\n{arch}".encode()).hexdigest()[:16] for name in rows["kernel"]]
    problems, candidates = problem_frame([problem]), with_fields(rows)
    flops = implicit_gemm(problems, problem.variant)["flops"].to_numpy()
    batch = Batch(timer.session, timer.device, problems, candidates)

    def measure(numbers: np.ndarray) -> Times:
        index = np.zeros(len(numbers), np.int64)
        times = timer.device.measure(problems, candidates, index, numbers)
        journal.append(journal_rows(batch, index, numbers, times, flops))
        return times

    return measure


def choice_of(time_ms: np.ndarray, speed: np.ndarray, noise: float) -> int:
    """Place of the candidate to choose of k: the fastest, or by timing and prediction where the timing is not sure.

    ``time_ms`` is NaN where a candidate did not run, ``speed``, the predicted -ln(time), where the model does not know
    it; ``noise`` is the relative standard error of the comparison of two times.
    """
    logs = np.log(time_ms)
    both = np.isfinite(logs) & np.isfinite(speed)
    if noise < turns.NOISE or not both.any():
        return int(np.nanargmin(logs))
    share = PREDICTION_ERROR**2 / (PREDICTION_ERROR**2 + min(noise, 1.0) ** 2)
    predicted = np.where(both, logs[both].mean() - (speed - speed[both].mean()), logs)
    return int(np.nanargmin(share * logs + (1 - share) * predicted))
