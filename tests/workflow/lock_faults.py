"""Attacks on locks, and file systems without them, for the fault suite.

The lock of the device is lost while the benchmark stage holds it, and those of a run while the run is alive and a
second one begins. Something that is no lock is put in a lock's place. Two users wait for each other, one of them as
the root of a container. ``flock`` fails in every command.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from fault_injection import NOT_INJECTED, Suite, descendants, fingerprint, run_stage
from small_workflow import ROOT as CHECKOUT
from small_workflow import TARGETS

sys.path.append(str(CHECKOUT / "tests/builders"))
import lock_attacks
from lock_attacks import LOSSES, NOBODY, PLANTED, ROOT, start_as

from tileseer.core.locks import device_locks

OF_A_FOLDER = {name for name in LOSSES if "folder" in name}
TRACEBACK = "Traceback (most recent call last)"
MODELS, PROBLEM = "results/models/gfx950", "--problem N=8,C=64,K=64,Hi=56,Wi=56,Y=3,X=3"
DATASET = "results/datasets/gfx950/forward_bf16.parquet"
COMMANDS = (
    f"snakemake --cores 2 -n {' '.join(TARGETS)}",
    f"snakemake --cores 2 --forcerun benchmark -- {' '.join(TARGETS)}",
    "tileseer run -n",
    f"tileseer run {' '.join(TARGETS)}",
    "tileseer bench --quick --kernels 2",
    "tileseer cache stats",
    "tileseer codegen --counts --arch gfx950",
    f"tileseer compare {DATASET} {DATASET}",
    "tileseer crawl --onnx missing.onnx --output layers.csv",
    "tileseer doctor",
    f"tileseer explain pick {MODELS} {PROBLEM}",
    "tileseer import find-db missing.txt --arch gfx942 --output new",
    "tileseer init new",
    f"tileseer provenance {MODELS}",
    f"tileseer score --model {MODELS} --problems config/problems/small.csv --kernels kernels.txt --out scores.parquet",
    f"tileseer select {MODELS} {PROBLEM}",
    f"tileseer ship {MODELS}",
    f"tileseer verify {MODELS}",
)
"""Calls of every command; those with a missing file end with a message anyway."""


def lose_locks(suite: Suite) -> None:
    """Let the lock of the device be lost while the benchmark holds it, and the locks of a run while it is alive."""
    (benchmark,) = (stage for stage in suite.stages if stage.name == "benchmark")
    kept = suite.scratch.folder / "locks"
    for name, lose in LOSSES.items():
        for draw in suite.cases(f"device's {name}", 1):
            status, said = 0, ""
            hits: list[Path] = []
            while not hits:
                suite.clear(benchmark)
                _remove(kept, kept.with_name("elsewhere"))
                delay = draw.uniform(0, suite.seconds[benchmark])
                attack = partial(_lose_held, folder=kept, lose=lose, delay=delay, hits=hits)
                status, said = run_stage(benchmark, suite.scratch.folder, meanwhile=attack)
            _remove(kept, kept.with_name("elsewhere"))
            fault = f"lock of the device while it is held: {name}"
            if "Traceback" in said or (status and "error: " not in said):
                suite.count(fault, "lost", f"{status}: {said[-1500:]}")
            else:
                suite.rerun(benchmark, fault, said[-300:], "refused" if status else "recovered")
    for name in sorted(LOSSES.keys() - OF_A_FOLDER):
        for _ in suite.cases(f"run's {name}", 1):
            _lose_those_of_a_run(suite, name)


def _lose_those_of_a_run(suite: Suite, name: str) -> None:
    """Lose the locks of a run while it measures, and begin a second run in the same folder."""
    suite.restore()
    for part in ("results", "cache"):
        shutil.rmtree(suite.scratch.folder / part)
    first = suite.scratch.start()
    hits: list[Path] = []
    while first.poll() is None and not hits:
        # Snakemake's own folder, after the first job began.
        if (suite.scratch.folder / DATASET).parent.exists():
            hits = [path for path in held(first.pid, suite.scratch.folder) if ".snakemake" in path.parts]
        time.sleep(0.01)
    for path in hits:
        LOSSES[name](path)
    second = suite.scratch.run()
    said, _ = first.communicate()
    fault = f"locks of a run while it is alive: {name}"
    ends = ((first.returncode, said), (second.status, second.output))
    wrong = [text[-2000:] for status, text in ends if TRACEBACK in text or (status and not re.search("[Ee]rror", text))]
    if wrong or not hits:
        suite.count(fault, "lost", f"{hits}: {wrong}")
    else:
        suite.finish(fault, detail=str(hits), outcome="refused" if second.status or first.returncode else "recovered")


def _lose_held(child: int, folder: Path, lose: Callable[[Path], object], delay: float, hits: list[Path]) -> None:
    """Wait until a process holds a lock in ``folder``, and a moment more; lose it if it still does, and note it."""
    while _alive(child):
        if held(child, folder):
            time.sleep(delay)
            hits += held(child, folder)
            for path in hits:
                lose(path)
            return
        time.sleep(0.001)


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def held(pid: int, folder: Path) -> list[Path]:
    """Return the files below ``folder`` that a process or its descendants have locked, as the system says."""
    pids = set(map(str, descendants(pid)))
    lines = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    nodes = {int(words[5].rpartition(":")[2]) for words in lines if words[4] in pids}
    return [path for path in folder.rglob("*.lock") if path.lstat().st_ino in nodes]


def plant_locks(suite: Suite) -> None:
    """Put what is no plain file in place of the device's lock, then of each lock of a run."""
    (benchmark,) = (stage for stage in suite.stages if stage.name == "benchmark")
    made = suite.made.folder
    locks = [path for folder in ("locks", ".snakemake") for path in sorted((made / folder).glob("*.lock"))]
    for name in (path.relative_to(made).as_posix() for path in locks):
        for what, plant in PLANTED.items():
            for _ in suite.cases(f"{what} as {name}", 1):
                suite.restore()
                # So that the benchmark measures, and needs the lock.
                for part in ("cache", "results/journals"):
                    shutil.rmtree(suite.scratch.folder / part)
                path = suite.scratch.folder / name
                path.unlink()
                victim = path.with_name("victim")
                victim.write_text("precious")
                plant(path)
                fault = f"{what} in place of {'a lock of a run' if '.snakemake' in name else 'the lock of the device'}"
                run = suite.scratch.run("--forcerun", benchmark.name, "--", *TARGETS)
                touched = victim.read_text() != "precious" or path.with_name("nothing").exists()
                if (
                    touched
                    or "Traceback (most recent call last)" in run.output
                    or (run.status and path.name not in run.output)
                ):
                    suite.count(fault, "lost", f"{name}: touched {touched}, {run.status}: {run.output[-1500:]}")
                    continue
                _remove(path, victim)
                suite.finish(fault, detail=name, outcome="refused" if run.status else "recovered")


def _remove(*paths: Path) -> None:
    for path in paths:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def share_between_users(suite: Suite) -> None:
    """Let one user hold a lock and die while another one waits; let a user keep the lock's file to themselves."""
    pairs = {
        "root, then another user": (ROOT, NOBODY, False), "another user, then root": (NOBODY, ROOT, False),
        "root, then the root of a container": (ROOT, NOBODY, True),
    }  # fmt: skip
    for name, pair in pairs.items():
        for _ in suite.cases(name, 1):
            _count_users(suite, f"lock of two users: {name}", partial(_taken_over, users=pair))
    for name, make in (("a file", lambda path: path.touch(0o600)), ("a FIFO", lambda path: os.mkfifo(path, 0o600))):
        for _ in suite.cases(f"unreadable {name}", 1):
            _count_users(
                suite, f"lock of two users: {name} of mode 600", lambda folder, make=make: _refused(folder, make)
            )


def _count_users(suite: Suite, fault: str, attack: Callable[[Path], tuple[str, str]]) -> None:
    if os.getuid() != ROOT:
        suite.count(fault, NOT_INJECTED, "")
        return
    with _open_folder() as folder:
        suite.count(fault, *attack(folder))


def _taken_over(folder: Path, users: tuple[int, int, bool]) -> tuple[str, str]:
    owner, other, namespace = users
    first, messages = start_as(owner, folder / "locks", 60)
    messages.get(timeout=60)
    second, waiting = start_as(other, folder / "locks", namespace=namespace)
    time.sleep(0.5)
    first.kill()
    message = waiting.get(timeout=60)
    second.join()
    first.join()
    sound = f"held by process {first.pid}" in message and second.exitcode == 0
    return ("recovered" if sound else "lost"), message


def _refused(folder: Path, make: Callable[[Path], object]) -> tuple[str, str]:
    path = device_locks(["toy"], folder / "locks")["toy"]
    make(path)
    path.chmod(0o600)
    process, messages = start_as(NOBODY, path.parent)
    message = messages.get(timeout=60)
    process.join()
    path.unlink()
    again, free = start_as(NOBODY, path.parent)
    sound = str(path) in message and "\n" not in message and free.get(timeout=60) == ""
    again.join()
    return ("refused" if sound else "lost"), message


@contextmanager
def _open_folder() -> Iterator[Path]:
    """A folder that every user can reach."""
    with tempfile.TemporaryDirectory(prefix="tileseer-lock-", dir="/tmp") as name:
        Path(name).chmod(stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)
        yield Path(name)


def fail_flock(suite: Suite, number: int) -> None:
    """Call so many commands where ``flock`` fails: each ends as it does elsewhere, or says one sentence."""
    for command in COMMANDS[:number]:
        usual = None
        for error in lock_attacks.NO_FLOCK:
            for _ in suite.cases(f"{error} {command}", 1):
                fault = f"flock fails with {error}"
                if shutil.which("gcc") is None:
                    suite.count(fault, NOT_INJECTED, "")
                    continue
                if usual is None:
                    usual, _ = _call(suite, command, {})
                status, said = _call(suite, command, lock_attacks.without_flock(suite.made.folder.parent, error))
                right = fingerprint(suite.scratch) == fingerprint(suite.made)
                refused = status != 0 and len(re.findall(r"^(?:\w+: )?error: ", said, re.M)) == 1
                sound = right and "Traceback" not in said and (status == usual or refused)
                outcome = "lost" if not sound else "refused" if refused and status != usual else "recovered"
                suite.count(fault, outcome, f"{command}: {usual} became {status}: {said[-1500:]}")


def _call(suite: Suite, command: str, variables: dict[str, str]) -> tuple[int, str]:
    suite.restore()
    (suite.scratch.folder / "kernels.txt").write_text("grouped_conv_forward_bf16_2d_64x128x64_compv3\n")
    environment = suite.scratch.environment() | {"PYTHONPATH": str(suite.scratch.folder / "src")} | variables
    run = subprocess.run(
        command.split(), cwd=suite.scratch.folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return run.returncode, run.stdout
