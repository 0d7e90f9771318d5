"""Which runs of the workflow are alive in a folder: after a ``kill -9`` the next one goes on by itself.

Snakemake locks what a run works on with files that a killed run leaves behind. They do not say whose they are, so
Snakemake asks the user to unlock. Here every run holds a lock of its own, which the system frees when the run ends,
however it ends, and so does every job. If no run and no job is alive, the files that are left belong to nobody.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tileseer.core import events, shared_file
from tileseer.core.errors import UserError
from tileseer.core.places import PACKAGE
from tileseer.core.stage import MACHINE

RUNS, JOBS = "tileseer.runs", "tileseer.jobs"
"""Files in Snakemake's folder: two locks, the jobs' one taken by the shell of a job."""
SLURM_LOGS = "logs/slurm"
"""As in profiles/slurm/config.yaml."""
POLL_S, SLURM_POLL_S = 0.2, 2.0
SLURM_TIMEOUT_S = 60.0
REPORT_EVERY_S = 30.0
_READ_ONLY = "{path}: the folder is read-only, but the run has to write into {folder}; make it writable or move it away"
CLOCKS_DIFFER_S = 60.0
"""How far the clocks of machines that share a folder may differ."""


class Run(NamedTuple):
    """One call of Snakemake in a folder, or one that a job of it makes on a cluster."""

    is_main: bool
    events: Path
    lock: BinaryIO | None
    """Held as long as the run lasts."""

    def summary(self) -> str:
        """How many stages computed and how many were restored."""
        done = Counter(event["state"] for _, event in events.read(self.events))
        return f"stages: {done['computed']:,} computed, {done['restored']:,} restored unchanged"


def enter(state: Path, machine: Mapping[str, Any], arch: str) -> Run:
    """Begin a run; its jobs get the package and the settings of this machine by their environment."""
    os.environ[MACHINE] = json.dumps(machine, sort_keys=True)
    # Threads that wait must leave the cores to others: spinning, they cost more than they bring.
    os.environ["OMP_WAIT_POLICY"] = "passive"
    source = str(PACKAGE.parent)
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", source)]
    os.environ["PYTHONPATH"] = os.pathsep.join([source, *given])
    told = Path(os.environ.get(events.EVENTS, ""))
    if told.parent == state.resolve():
        return Run(False, told, None)
    lock = begin(state)
    told = state.resolve() / events.FILE.format(os.getpid())
    os.environ[events.EVENTS] = str(told)
    events.tell("run", arch=arch)
    bring_to_present(Path("results"))
    return Run(True, told, lock)


def begin(state: Path) -> BinaryIO:
    """Enter the runs of the folder ``state`` (``.snakemake``); the run lasts as long as the returned file is open.

    If the last run was killed, wait until its jobs have ended, since they still write their outputs, and remove the
    locks that it left. Each of both is said on stderr. On a cluster they are also those that wait in the queue.
    What the jobs of an earlier run told is forgotten.
    """
    state.mkdir(parents=True, exist_ok=True)
    if not os.access(state, os.W_OK):
        raise UserError(_READ_ONLY.format(path=state, folder=state))
    runs = (state / RUNS).open("a+b")
    if _alone(runs):
        for path in state.glob(events.FILE.format("*")):
            path.unlink(missing_ok=True)
        left = sorted((state / "locks").glob("*.lock"))
        if left:
            _wait_for_jobs(state / JOBS)
            for path in left:
                path.unlink(missing_ok=True)
            print(f"removed the {len(left)} locks of a run that was killed", file=sys.stderr, flush=True)
    fcntl.flock(runs, fcntl.LOCK_SH)
    return runs


def busy(state: Path) -> str:
    """What to say to a run whose outputs another one locks."""
    commands = [f"process {pid} ({' '.join(_command(pid))[:200]})" for pid in _holders(state / RUNS)]
    who = ", ".join(commands) or "a process of another machine"
    return (
        f"{who} runs in this folder and makes some of the same files; wait for its end, then run again; "
        "if it was killed, the next run goes on by itself"
    )


def _command(pid: int) -> list[str]:
    try:
        return [Path(word).name for word in Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")]
    except OSError:
        # Ended by now.
        return []


def job_prefix(state: Path) -> str:
    """Shell text that makes a job, and every process it starts, hold the lock of the jobs."""
    return f"exec 9<>{state.as_posix()}/{JOBS}; flock --shared 9; "


def _alone(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_for_jobs(path: Path) -> None:
    told = -REPORT_EVERY_S
    with path.open("a+b") as jobs:
        while (queued := _slurm_jobs(path.parent.parent)) or not _alone(jobs):
            if time.monotonic() - told >= REPORT_EVERY_S:
                told = time.monotonic()
                who = ", ".join(str(pid) for pid in _holders(path)) or "on another machine"
                text = (
                    f"SLURM jobs {', '.join(queued)}; or scancel {' '.join(queued)}" if queued else f"processes {who}"
                )
                print(f"waiting for the jobs of a run that was killed: {text}", file=sys.stderr, flush=True)
            time.sleep(SLURM_POLL_S if queued else POLL_S)


def _slurm_jobs(folder: Path) -> list[str]:
    """The user's SLURM jobs that were submitted from a folder and have not ended; none where SLURM is not used.

    One that waits, or whose Snakemake is only starting, holds no lock yet.
    """
    # The executor makes this folder; without it no job of the folder was one of SLURM's, and none is asked for.
    if not (folder / SLURM_LOGS).is_dir() or shutil.which("squeue") is None:
        return []
    asked = subprocess.run(
        ["squeue", "--me", "--noheader", "--format=%i|%Z"], capture_output=True, text=True, timeout=SLURM_TIMEOUT_S
    )
    if asked.returncode:
        print(f"squeue failed, so queued jobs are not known: {asked.stderr.strip()}", file=sys.stderr, flush=True)
        return []
    jobs = (line.split("|", 1) for line in asked.stdout.splitlines())
    return [job for job, where in jobs if Path(where).resolve() == folder.resolve()]


def _holders(path: Path) -> list[int]:
    """Other processes of this machine that have the file open, as far as we may look."""
    return [pid for pid in shared_file.opened_elsewhere(str(path.resolve())) if pid != os.getpid()]


def bring_to_present(folder: Path) -> None:
    """Give files of the future, made before the clock was set back, one present time: Snakemake refuses to make an
    output that is older than an input.
    """
    now = time.time()
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            try:
                if path.stat().st_mtime > now + CLOCKS_DIFFER_S:
                    os.utime(path, (now, now))
            except OSError:
                # Gone by now, or another user's.
                continue


def read_only(*folders: Path) -> str:
    """What to say of the first folder in which nothing can be written, one of ``folders`` or below; empty if none."""
    for folder in folders:
        for path, _, _ in os.walk(folder):
            if not os.access(path, os.W_OK):
                return _READ_ONLY.format(path=path, folder=folder)
    return ""
