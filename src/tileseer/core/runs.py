"""One run of the workflow at a time in a folder; after a ``kill -9`` the next one goes on by itself.

The profiles turn Snakemake's own locks off: those are files that a killed run leaves behind, which say nothing of their
owner. Here a run holds a lock of the folder, which the system frees when the run ends, however it ends, and the shell
of each job holds another one.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tileseer.core.errors import UserError
from tileseer.core.locks import holder_of, try_lock

RUN, JOBS = "tileseer.run.lock", "tileseer.jobs.lock"
"""Files in Snakemake's folder."""
SLURM_LOGS = "logs/slurm"
"""As in profiles/slurm/config.yaml."""
POLL_S, SLURM_POLL_S = 0.2, 2.0
SLURM_TIMEOUT_S = 60.0
REPORT_EVERY_S = 30.0
CLOCKS_DIFFER_S = 60.0
"""How far the clocks of machines that share a folder may differ."""


def begin_run(state: Path, *folders: Path) -> int:
    """Begin a run in the folder ``state`` (``.snakemake``); it lasts as long as the result lives.

    If the run before was killed, its jobs still write their outputs: they are waited for, on a cluster also those in
    the queue. ``UserError`` if another run is alive, or if one of ``folders`` cannot be written to.
    """
    refuse_read_only(state, *folders)
    lock = try_lock(state / RUN)
    if lock is None:
        who = holder_of(state / RUN) or "a process"
        raise UserError(f"{who} runs in this folder; wait for its end, or run in another folder")
    _wait_for_jobs(state / JOBS)
    # Snakemake fails on the copy of an updated output that a killed run has left.
    shutil.rmtree(state / "backups", ignore_errors=True)
    _bring_to_present(*folders)
    return lock


def job_prefix(state: Path) -> str:
    """Shell text that makes a job, and every process that it starts, hold the lock of the jobs.

    Where the file system has no such locks, a job runs without: the run after a killed one does not wait for it.
    """
    return f"exec 9<>{state.as_posix()}/{JOBS}; flock --shared 9 2>/dev/null || true; "


def _wait_for_jobs(path: Path) -> None:
    reported = -REPORT_EVERY_S
    while (queued := _slurm_jobs(path.parent.parent)) or (lock := try_lock(path)) is None:
        if time.monotonic() - reported >= REPORT_EVERY_S:
            reported = time.monotonic()
            jobs = f": SLURM jobs {', '.join(queued)}; or scancel {' '.join(queued)}" if queued else ""
            print(f"waiting for the jobs of a run that was killed{jobs}", file=sys.stderr, flush=True)
        time.sleep(SLURM_POLL_S if queued else POLL_S)
    os.close(lock)


def _slurm_jobs(folder: Path) -> list[str]:
    """The user's SLURM jobs that were submitted from a folder and have not ended; none where SLURM is not used.

    One that waits, or whose Snakemake is only starting, holds no lock yet.
    """
    # The executor makes this folder; without it no job of the folder was one of SLURM's.
    if not (folder / SLURM_LOGS).is_dir() or shutil.which("squeue") is None:
        return []
    asked = subprocess.run(
        ["squeue", "--me", "--noheader", "--format=%i|%Z"],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=SLURM_TIMEOUT_S,
    )
    if asked.returncode:
        print(f"squeue failed, so queued jobs cannot be listed: {asked.stderr.strip()}", file=sys.stderr, flush=True)
        return []
    jobs = (line.split("|", 1) for line in asked.stdout.splitlines())
    return [job for job, where in jobs if Path(where).resolve() == folder.resolve()]


def _bring_to_present(*folders: Path) -> None:
    """Give files of the future, made before the clock was set back, the present time: Snakemake refuses an output that
    is older than an input.
    """
    now = time.time()
    for parent, _, names in (entry for folder in folders for entry in os.walk(folder)):
        for path in (Path(parent, name) for name in names):
            try:
                if path.stat().st_mtime > now + CLOCKS_DIFFER_S:
                    os.utime(path, (now, now))
            except OSError:
                # Gone by now, or another user's.
                continue


def refuse_read_only(*folders: Path) -> None:
    """``UserError`` for the first of ``folders``, or of those below, in which nothing can be written.

    A job would end in a traceback of Snakemake, which removes the outputs of earlier runs first.
    """
    for folder in folders:
        for path, _, _ in os.walk(folder):
            if not os.access(path, os.W_OK):
                raise UserError(
                    f"{path}: the folder is read-only, but the run has to write into {folder}; make it writable or "
                    "move it away"
                )
