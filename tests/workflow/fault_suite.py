"""Inject faults into a small workflow and count what becomes of them. The same seed injects the same faults.

    PYTHONPATH=src:tests/builders python tests/workflow/fault_suite.py --kills 10 --report docs/generated/faults.md

A fault is *recovered* if a plain rerun ends with the bytes of the undisturbed run, else *lost*.

Most faults go into single stages, which run in a process forked from this one: their imports are done, so a kill hits
the work and not the start of Python. The moment of a kill is a drawn share of the CPU time that the stage takes when
nobody disturbs it. A stage that was done before its moment was not hit, and is drawn again.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import json
import os
import pkgutil
import random
import re
import resource
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import warm_python
from small_workflow import CONFIG, TARGETS, Workflow, hashes, lay_out

import tileseer
from tileseer.measure import batch
from tileseer.measure.journal import journal_files, read_journal

OUTCOMES = ("recovered", "lost", "not injected")
PAGE = 4096
RUN_CPU_S = 3.0
"""CPU seconds within which Snakemake is killed: most of what it takes undisturbed."""


@dataclass(frozen=True)
class Stage:
    """One job of the undisturbed run."""

    name: str
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]
    """The journals included."""


class Suite:
    """A workflow that has run undisturbed, a copy of it to disturb, and the counts of fault and outcome."""

    def __init__(self, made: Workflow, scratch: Workflow, seed: int) -> None:
        self.made, self.scratch, self.seed = made, scratch, seed
        self.counts: Counter[tuple[str, str]] = Counter()
        self.stages = stages_of(made.folder)
        self.cpu_s = {stage: self._undisturbed(stage) for stage in self.stages}

    def draws(self, kind: str, number: int) -> Iterator[random.Random]:
        """Yield a random generator for each fault of a kind."""
        return (random.Random(f"{self.seed} {kind} {index}") for index in range(number))

    def count(self, fault: str, outcome: str, detail: str) -> None:
        self.counts[fault, outcome] += 1
        if outcome == "lost":
            print(f"lost: {fault}: {detail}", flush=True)

    def _undisturbed(self, stage: Stage) -> float:
        self.clear(stage)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        status, said = run_stage(stage, self.scratch.folder)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert status == 0 and self.same(stage), f"{stage.name} alone gives other results: {said}"
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def clear(self, stage: Stage) -> None:
        """Bring all results to their undisturbed state, but without the outputs of a stage."""
        shutil.rmtree(self.scratch.folder / "results", ignore_errors=True)
        shutil.copytree(self.made.folder / "results", self.scratch.folder / "results")
        for path in [file for name in stage.outputs for file in files_of(self.scratch.folder / name)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def same(self, stage: Stage) -> bool:
        """Return whether a stage's outputs are those of the undisturbed run."""
        folders = self.scratch.folder, self.made.folder
        ours, theirs = ([contents(folder / name) for name in stage.outputs] for folder in folders)
        return ours == theirs

    def rerun(self, stage: Stage, fault: str, detail: str) -> None:
        """Run a stage, and count the fault as lost if it does not make what it makes undisturbed."""
        status, said = run_stage(stage, self.scratch.folder)
        sound = status == 0 and self.same(stage)
        self.count(fault, "recovered" if sound else "lost", f"{detail}: the rerun ended with {status}: {said[-1500:]}")

    def kill_stages(self, number: int) -> None:
        """Kill each stage so many times at a random moment, and run it again."""
        for stage in self.stages:
            for draw in self.draws(f"kill of {stage}", number):
                status = 0
                while status != -signal.SIGKILL:
                    self.clear(stage)
                    moment = draw.uniform(0, self.cpu_s[stage])
                    status, _ = run_stage(stage, self.scratch.folder, moment)
                self.rerun(stage, "kill -9 of a stage", f"{stage.name} after {moment:.3f} CPU s")

    def kill_runs(self, number: int) -> None:
        """Kill Snakemake alone, so that its job lives on, or a whole run; then unlock it and let a plain rerun end."""
        for draw in self.draws("kill of a run", number):
            stage = draw.choice(self.stages)
            shutil.rmtree(self.scratch.folder)
            shutil.copytree(self.made.folder, self.scratch.folder)
            if stage.name == "benchmark":
                shutil.rmtree(self.scratch.folder / "results/journals")
            process = self.scratch.start("--forcerun", stage.name, "--", *TARGETS)
            victim = draw.choice(("Snakemake", "a whole run"))
            wait_until_used(process.pid, draw.uniform(0.2, RUN_CPU_S))
            process.kill() if victim == "Snakemake" else os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self.scratch.run("--unlock", *TARGETS)
            run = self.scratch.run()
            sound = run.status == 0 and hashes(self.scratch) == hashes(self.made)
            self.count(f"kill -9 of {victim}", "recovered" if sound else "lost", f"{stage.name}: {run.output[-1500:]}")

    def fill_disks(self) -> None:
        """Let each stage write to a file system without room, then to a sound one again."""
        for stage in self.stages:
            written = [path for path in stage.outputs if files_of(self.made.folder / path)]
            for folder in sorted({str(Path(path).parent) for path in written}):
                if not may_mount():
                    self.count("disk full", "not injected", "")
                    continue
                self.clear(stage)
                with full_disk(self.scratch.folder / folder):
                    status, said = run_stage(stage, self.scratch.folder)
                if status == 0 or "Traceback" in said or not re.search(rf"error: .*{re.escape(folder)}", said):
                    self.count("disk full", "lost", f"{stage.name}, {folder}: status {status}: {said[-500:]}")
                else:
                    self.rerun(stage, "disk full", f"{stage.name}: {said}")


def stages_of(folder: Path) -> list[Stage]:
    """Return the jobs that Snakemake recorded."""
    records = folder / ".snakemake/metadata"
    jobs: dict[str, tuple[dict, list[str]]] = {}
    for path in sorted(path for path in records.rglob("*") if path.is_file()):
        record = json.loads(path.read_text())
        if record.get("shellcmd"):
            encoded = "".join(part.removeprefix("@") for part in path.relative_to(records).parts)
            output = base64.urlsafe_b64decode(encoded).decode()
            jobs.setdefault(record["shellcmd"], (record, []))[1].append(output)
    stages = []
    for command, (record, outputs) in sorted(jobs.items()):
        words = shlex.split(re.split(r" 2>&1| > ", command)[0])
        words = words[words.index("python") + 1 :]
        journals = [word for word in words if word.startswith("results/journals/")]
        journals = journals if record["rule"] == "benchmark" else []
        stages.append(Stage(record["rule"], tuple(words), (*sorted(outputs), *journals)))
    return stages


def run_stage(stage: Stage, folder: Path, kill_after: float | None = None) -> tuple[int, str]:
    """Run a stage in a forked process; return its status, negative if it was killed, and what it printed."""
    with tempfile.TemporaryFile() as log:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            os.setpgid(0, 0)
            os.chdir(folder)
            for number in (1, 2):
                os.dup2(log.fileno(), number)
            sys.argv = list(stage.arguments)
            # Many small writes, so that a kill can come between two.
            batch.PAIRS_BETWEEN_WRITES = 8
            status = 1
            try:
                runpy.run_path(stage.arguments[0], run_name="__main__")
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stdout.flush()
                os._exit(status)
        # Here as well: who comes first makes the group that is killed.
        with suppress(ProcessLookupError):
            os.setpgid(child, child)
        if kill_after is not None:
            wait_until_used(child, kill_after)
            os.killpg(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        log.seek(0)
        return status, log.read().decode(errors="replace")


def wait_until_used(pid: int, cpu_s: float) -> None:
    """Wait until a process has used so much CPU time, or ends."""
    # The clock of another process: Linux numbers it so (man clock_getcpuclockid).
    clock = (~pid << 3) | 2
    with suppress(OSError):
        while time.clock_gettime(clock) < cpu_s:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
            time.sleep(0.0005)


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Mount a file system without room at ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={PAGE}", "none", str(folder)], check=True)
    try:
        (folder / "filler").write_bytes(b"x" * PAGE)
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def may_mount() -> bool:
    """Return whether we may mount a file system here."""
    with tempfile.TemporaryDirectory() as folder:
        tried = subprocess.run(["mount", "-t", "tmpfs", "none", folder], capture_output=True)
        return not tried.returncode and not subprocess.run(["umount", folder]).returncode


def files_of(path: Path) -> list[Path]:
    """Return an input or output as a list, if it is there; of a journal all its files."""
    return journal_files(path) if "journals" in path.parts else [path] if path.exists() else []


def files_in(path: Path) -> list[Path]:
    """Return the files below a folder, without hidden ones, or the file itself."""
    return sorted(file for file in path.rglob("[!.]*") if file.is_file()) if path.is_dir() else [path]


def contents(path: Path) -> object:
    """Return what has to be equal: bytes; of a receipt not the torn lines, of a journal its rows, no times."""
    if "journals" in path.parts:
        return sorted(map(str, read_journal(path)[0].to_pylist()))
    if path.is_dir():
        return {str(file.relative_to(path)): file.read_bytes() for file in files_in(path)}
    if not path.exists():
        return None
    if "benchmark" in path.parts and path.suffix == ".json":
        return {key: value for key, value in json.loads(path.read_text()).items() if key != "malformed_lines"}
    if path.name.endswith((".costs.parquet", ".quarantine.tsv")):
        # CPU seconds and memory, lines that do not count: read by no later stage.
        return True
    return path.read_bytes()


def prepare(folder: Path, seed: int) -> Suite:
    """Run the small workflow undisturbed in ``folder`` and copy it."""
    made = lay_out(folder / "made")
    made.configure(configs=CONFIG["configs"] | {"chunks": 1})
    made.make()
    shutil.copytree(made.folder, folder / "scratch")
    for module in pkgutil.walk_packages(tileseer.__path__, "tileseer."):
        if not module.name.startswith(("tileseer.torch", "tileseer.problems.crawl")):
            importlib.import_module(module.name)
    warm_python.bundle_once()
    return Suite(made, Workflow(folder / "scratch"), seed)


def table(counts: Counter[tuple[str, str]]) -> str:
    """Return the counts as a Markdown table."""
    rows = {fault: [counts[fault, outcome] for outcome in OUTCOMES] for fault in sorted({fault for fault, _ in counts})}
    rows["**all**"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    lines = [
        "| fault | injected | recovered | lost | not injected |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {fault} | {sum(row[:2])} | {' | '.join(map(str, row))} |" for fault, row in rows.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the suite and print or write its table; status 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=1, help="of each stage")
    parser.add_argument("--run-kills", type=int, default=0)
    parser.add_argument("--report", type=Path, help="page whose table between the marks is replaced")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="tileseer-faults-") as temporary:
        suite = prepare(Path(temporary), args.seed)
        suite.kill_stages(args.kills)
        suite.fill_disks()
        suite.kill_runs(args.run_kills)
    text = table(suite.counts)
    print(text)
    if args.report:
        before, begin, rest = args.report.read_text().partition("<!-- faults -->\n")
        args.report.write_text(before + begin + text + "<!-- end" + rest.partition("<!-- end")[2])
    return int(any(outcome == "lost" for _, outcome in suite.counts))


if __name__ == "__main__":
    raise SystemExit(main())
