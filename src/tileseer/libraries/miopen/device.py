"""MIOpenDriver as a device: it times one of MIOpen's solvers on one problem, in a process of its own.

The driver finds with one solver alone (``MIOPEN_DEBUG_FIND_ONLY_SOLVER``), checks the result by the naive solver on
the GPU, and prints the time of a launch, averaged over iterations. What the find step writes goes into a folder of its
own, as a record of one solver would be the user's from then on. From there it is kept beside the tuned choices: it has
MIOpen's version, workspace and algorithm. Tuned parameters (``*.udb.txt``) are copied there. Written after MIOpen's
documentation and sources (3.3 to 3.6); it was never run on an AMD GPU.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from tileseer.core.errors import UserError
from tileseer.libraries.miopen.driver_lines import driver_line
from tileseer.libraries.miopen.find_db import USER_DB, FileName, Key, Measured, add_records, user_db
from tileseer.libraries.miopen.kernel import Solver
from tileseer.measure.device import STATUSES, Times, are_times
from tileseer.measure.harness.supervisor import printable
from tileseer.problems.problem import problems_of_frame

ITERATIONS = 100
"""Launches that the driver averages."""
LONGEST_RUN_SECONDS = 300.0
"""Of one solver, its compilation and the check of its result included."""
LAST_CHARACTERS = 200
"""Of what a run printed, in the message of one that failed."""
_NAMES = {"forward": "Forward", "bwd_data": "Backward Data", "bwd_weight": "Backward Weights"}
_TIME = re.compile(r"GPU Kernel Time ([A-Za-z ]+) Conv\. Elapsed: (\S+) ms")
_SOLUTION = re.compile(r"MIOpen ([A-Za-z ]+) Conv\. Algorithm: -?\d+, Solution: \d+/(\S+)")
_WRONG = re.compile(r"Convolution[A-Za-z ]* FAILED: \S+ > \S+")


@dataclass(frozen=True)
class _Outcome:
    """What came of one run."""

    status: str
    error: str = ""
    milliseconds: float = np.nan


class SolverDevice:
    """Times pairs with MIOpenDriver, one after the other."""

    kind = "measured"
    largest_batch = 1
    differs = False
    """Not enough to time a pair twice: each time is an average already."""

    def __init__(
        self, name: str, program: str, environment: Mapping[str, str], lock: int, folder: Path | None = None
    ) -> None:
        """Ask the program for its version; ``UserError`` if it is none that runs.

        ``name``: product of the GPU; ``environment``: what makes the GPU the visible one; ``lock``: open file of its
        lock, which every run inherits; ``folder``: for the records that MIOpen writes of what it timed, below the names
        of its own files, which have its version.
        """
        self.name, self._program, self._lock, self._folder = name, program, lock, folder
        self._environment = {**os.environ, **environment}
        try:
            told = self._run([program, "--version"], self._environment, 60.0)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UserError(
                f"--driver {program}: cannot be run ({error}); give a path such as /opt/rocm/bin/MIOpenDriver"
            ) from error
        version = re.search(r"version:? *([0-9][0-9.]*)", told.stdout)
        if version is None:
            raise UserError(
                f"--driver {program}: prints no version with --version; give MIOpenDriver of MIOpen 3 or newer"
            )
        self.version = version[1]

    def identity(self) -> str:
        """Return the SHA-256 of what a time depends on beside the pair and the product."""
        return hashlib.sha256(f"MIOpenDriver\n{self.version}\n{ITERATIONS}".encode()).hexdigest()

    def measure(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, problem_index: np.ndarray, candidate_index: np.ndarray
    ) -> Times:
        """Time n pairs as ``Device.measure`` says."""
        outcomes = [
            self._one(problems.iloc[[problem]], str(candidates["kernel"].iloc[candidate]))
            for problem, candidate in zip(problem_index.tolist(), candidate_index.tolist(), strict=True)
        ]
        ok = np.array([outcome.status == "ok" for outcome in outcomes])
        return Times(
            status=np.array([STATUSES.index(outcome.status) for outcome in outcomes], np.uint8),
            latency_ms=np.array([outcome.milliseconds for outcome in outcomes]),
            latency_cv=np.full(len(outcomes), np.nan),
            samples=np.where(ok, ITERATIONS, 0).astype(np.int32),
            sentinel=np.full(len(outcomes), np.nan),
            error=[printable(outcome.error) for outcome in outcomes],
        )

    def _one(self, row: pd.DataFrame, kernel: str) -> _Outcome:
        (problem,) = problems_of_frame(row)
        solver = Solver.parse(kernel).solver
        words = shlex.split(driver_line(problem))[1:]
        call = [self._program, *words, "-t", "1", "-i", str(ITERATIONS), "-V", "1", "-s", "0"]
        with TemporaryDirectory(prefix="tileseer-miopen-") as folder:
            for parameters in user_db(self._environment).glob("*.udb.txt"):
                shutil.copy(parameters, folder)
            try:
                done = self._run(call, self._environment | _only(solver) | {USER_DB: folder}, LONGEST_RUN_SECONDS)
            except subprocess.TimeoutExpired:
                return _Outcome("run_timeout", f"the driver took more than {LONGEST_RUN_SECONDS:g} s")
            outcome = _read(done, solver, _NAMES[problem.variant])
            if outcome.status == "ok" and self._folder is not None:
                _keep_records(Path(folder), self._folder, str(Key.of(problem)), solver)
        return outcome

    def _run(
        self, call: Sequence[str], environment: Mapping[str, str], seconds: float
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            call, env=environment, timeout=seconds, pass_fds=(self._lock,), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", check=False,
        )  # fmt: skip


def _only(solver: str) -> dict[str, str]:
    """Return the variables with which MIOpen's find step tries one solver alone.

    The first one does not concern GEMM and FFT, so that these are off unless the solver is one of them.
    """
    algorithms = {"GEMM": solver.startswith("Gemm"), "FFT": solver == "fft"}
    off = {f"MIOPEN_DEBUG_CONV_{name}": "0" for name, is_own in algorithms.items() if not is_own}
    find = {"MIOPEN_FIND_MODE": "NORMAL", "MIOPEN_FIND_ENFORCE": "NONE", "MIOPEN_DRIVER_USE_GPU_REFERENCE": "1"}
    return {"MIOPEN_DEBUG_FIND_ONLY_SOLVER": solver, **off, **find}


def _keep_records(made: Path, folder: Path, key: str, solver: str) -> None:
    """Add the record that MIOpen wrote of one run to the file of its name in ``folder``."""
    for path in filter(FileName.is_one, made.glob("*.ufdb.txt")):
        if entry := Measured.read([path]).entry(key, solver):
            add_records(folder, path.name, {key: [entry]})


def _read(done: subprocess.CompletedProcess[str], solver: str, direction: str) -> _Outcome:
    """Return what a run says; another solver's time is none of this one."""
    last = " ".join(done.stdout.split())[-LAST_CHARACTERS:]
    if done.returncode < 0:
        return _Outcome("crash", f"the driver ended by signal {-done.returncode}: {last}")
    if wrong := _WRONG.search(done.stdout):
        return _Outcome("wrong_result", wrong[0])
    ran = dict(_SOLUTION.findall(done.stdout)).get(direction)
    if ran is not None and ran != solver:
        return _Outcome("unsupported", f"MIOpen ran {ran} in its place")
    text = dict(_TIME.findall(done.stdout)).get(direction)
    if done.returncode or ran is None or text is None:
        return _Outcome("unsupported", f"no time of this solver, exit status {done.returncode}: {last}")
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = np.nan
    if not are_times(np.array(milliseconds)):
        return _Outcome("crash", f"the driver printed the time {text}")
    return _Outcome("ok", "", milliseconds)
