"""Injecting faults into a workflow that has run: into single stages, into whole runs, and into their clocks.

Most faults go into single stages, which run in a process forked from this one: their imports are done, so a kill hits
the work and not the start of Python. Whole runs are killed as well: Snakemake, one of its processes, or all.
The moment of a kill is a drawn share of the CPU time that the victim takes when nobody disturbs it: a busy machine does
not change that. A victim that was done before its moment was not hit: it is not counted, and another one is drawn.
Every fault has a random generator of its own, and the log keeps the outcomes: a suite that was stopped goes on.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import os
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from journals import as_lines
from small_workflow import CONFIG, ROOT, TARGETS, Workflow, lay_out

from tileseer.core import code_digest
from tileseer.core.journal_files import journal_files
from tileseer.core.script import RUN, RunEnvironment
from tileseer.measure.journal import read_journal

DAMAGES = ("cut", "flip", "zeros", "empty", "foreign", "long tail", "endless nesting")
NOT_INJECTED = "not injected"
PAGE = 4096
RUN_CPU_S, SCRIPT_CPU_S = 3.0, 1.2
"""CPU seconds within which Snakemake, or a script of a whole run, is killed: most of what they take undisturbed."""


@dataclass(frozen=True)
class Stage:
    """The command of one job of the undisturbed run."""

    name: str
    arguments: tuple[str, ...]

    def paths(self, outputs: bool) -> list[str]:
        """Return the paths below results that the job writes, or that it reads."""
        found, option = [], ""
        for word in self.arguments[1:]:
            if word.startswith("--"):
                option = word.partition("=")[0]
            elif word.startswith("results/") and (option in written_by(self.arguments[0])) == outputs:
                found.append(word)
        return found


class Suite:
    """A workflow that has run undisturbed, a copy of it to disturb, and the counts (of a log: they are in the log)."""

    def __init__(
        self, made: Workflow, scratch: Workflow, seed: int, log: Path | None, only: frozenset[str] | None = None
    ) -> None:
        self.made, self.scratch, self.seed, self.log = made, scratch, seed, log
        self.counts: Counter[tuple[str, str]] = Counter()
        self.done: set[str] = set()
        self.current = ""
        if log and log.exists():
            self.done = {case for case, _, _ in entries(log)}
        self.stages = [stage for stage in stages_of(made.folder) if only is None or stage.name in only]
        self.seconds = {stage: self._undisturbed(stage) for stage in self.stages}

    def cases(self, kind: str, number: int) -> Iterator[random.Random]:
        """Yield a random generator for each case of a kind that the log does not hold."""
        for case in (f"{kind} {index}" for index in range(number)):
            if case not in self.done:
                self.current = case
                yield random.Random(f"{self.seed} {case}")

    def count(self, fault: str, outcome: str, detail: str) -> None:
        if not self.log:
            self.counts[fault, outcome] += 1
        else:
            with self.log.open("a") as stream:
                stream.write(json.dumps((self.current, fault, outcome)) + "\n")
        if outcome == "lost":
            print(f"lost: {fault}: {detail}", flush=True)

    def kill_stages(self, number: int, when: str = "", before: Callable[[], None] | None = None) -> None:
        """Kill one stage at a random moment and run it again; ``before`` is called before each try."""
        for draw in self.cases(f"kill of a stage{when}", number):
            stage, status = None, 0
            while status != -signal.SIGKILL:
                stage = draw.choice(self.stages)
                self.clear(stage)
                if before:
                    before()
                moment = draw.uniform(0, self.seconds[stage])
                status, _ = run_stage(stage, self.scratch.folder, moment)
            self.rerun(stage, f"kill -9 of {stage.name}{when}", f"after {moment:.3f} CPU s")

    def fill_disks(self, options: str = f"size={PAGE}", fault: str = "disk full") -> None:
        """Let each stage write to a file system without room, or that is read-only; then to a sound one again."""
        for stage in self.stages:
            written = [path for path in stage.paths(outputs=True) if files_of(self.made.folder / path)]
            for folder in sorted({str(Path(path).parent) for path in written}):
                for _ in self.cases(f"{fault} {stage.name} {folder}", 1):
                    self._fill_disk(stage, folder, options, fault)

    def _fill_disk(self, stage: Stage, folder: str, options: str, fault: str) -> None:
        self.clear(stage)
        with mounted(self.scratch.folder / folder, options):
            status, said = run_stage(stage, self.scratch.folder)
        if status == 0 or "Traceback" in said or not re.search(rf"error: .*{re.escape(folder)}", said):
            self.count(f"{fault} for {stage.name}", "lost", f"{folder}: status {status}: {said[-500:]}")
        else:
            self.rerun(stage, f"{fault} for {stage.name}", said)

    def damage_files(self, number: int) -> None:
        """Damage one file that a stage reads."""
        readers = [stage for stage in self.stages if self.readable(stage)]
        for draw in self.cases("damage", number):
            stage = draw.choice(readers)
            path = draw.choice(self.readable(stage))
            how = draw.choice(DAMAGES)
            self.clear(stage, keep=path)
            if "journals" in path.parts and draw.random() < 0.5:
                path = as_lines(path.with_name(f"{path.name.partition('.')[0]}.csv"))
            sound = path.read_bytes()
            path.write_bytes(damaged(sound, how, draw))
            if path.read_bytes() == sound:
                continue
            self._judge(stage, path, sound, f"{how} in {kind(path)}")

    def kill_runs(self, number: int) -> None:
        """Kill a run that makes one stage again, up to three times, then let a plain rerun end."""
        for draw in self.cases("kill of a run", number):
            stage = draw.choice(self.stages)
            self.restore()
            if stage.name == "benchmark":
                shutil.rmtree(self.scratch.folder / "results/journals")
            victims = []
            for _ in range(draw.randint(1, 3)):
                process = self.scratch.start("--forcerun", stage.name, "--", *TARGETS)
                if victim := kill_some(process, draw):
                    victims.append(victim)
            self.finish(*(f"kill -9 of {victim}" for victim in victims), detail=stage.name)

    def fill_disks_of_runs(self, options: str = f"size={PAGE}", fault: str = "disk full") -> None:
        """Let a whole run make each stage again on a file system without room, or that is read-only."""
        for case, stage in enumerate(self.stages):
            folder = sorted({str(Path(path).parent) for path in stage.paths(outputs=True)})[0]
            for _ in self.cases(f"{fault} {case}", 1):
                self.restore()
                with mounted(self.scratch.folder / folder, options):
                    run = self.scratch.run("--forcerun", stage.name, "--", *TARGETS)
                name = re.escape(folder)
                named = re.search(rf"error: .*{name}|{name}: the folder is read-only|space left", run.output)
                if not run.status or not named or "Traceback" in run.output:
                    self.count(f"{fault} in a run, for {stage.name}", "lost", run.output[-1500:])
                    continue
                self.finish(f"{fault} in a run, for {stage.name}")

    def jump_times(self, number: int) -> None:
        """Give some files of a finished run times far in the past and the future; a plain rerun does nothing."""
        for draw in self.cases("clock", number):
            self.restore()
            files = [path for path in sorted(self.scratch.folder.rglob("*")) if path.is_file()]
            for path in draw.sample(files, k=draw.randint(1, len(files))):
                moment = time.time() + draw.choice((-1, 1)) * draw.uniform(0, 10 * 365 * 86400)
                os.utime(path, (moment, moment))
            self.finish("times of files that jumped", has_jobs=False)

    def jump_clocks(self, number: int, library: Path | None) -> None:
        """Let the clock jump while a run makes a stage again: up to ten years, forth and back; then a plain rerun."""
        fault = "clock that jumps in a run"
        for draw in self.cases("jump", number):
            if library is None:
                self.count(fault, NOT_INJECTED, "")
                continue
            stage = draw.choice(self.stages)
            self.restore()
            offset = self.scratch.folder / "offset"
            offset.write_text("+0")
            # Timers of Linux do not follow the wall clock, and times of files are those of the file system.
            clock = {
                "LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(offset), "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1",
            }  # fmt: skip
            process = self.scratch.start("--forcerun", stage.name, "--", *TARGETS, variables=clock)
            jumps = 0
            while wait_until_used(process.pid, draw.uniform(0.5, 1.5) * (jumps + 1)):
                jumps += 1
                offset.write_text(f"{draw.choice('+-')}{draw.randint(1, 10 * 365 * 86400)}")
            said, _ = process.communicate()
            where = f"{stage.name}: {jumps} jumps"
            if not jumps:
                # It was done, or died in the library, before the first one.
                self.count(fault, NOT_INJECTED, "")
                continue
            if process.returncode and not re.search(r"error: |Error", said):
                self.count(fault, "lost", f"{where}: {said[-1500:]}")
                continue
            self.finish(fault, detail=where)

    def finish(self, *faults: str, detail: str = "", has_jobs: bool = True, outcome: str = "recovered") -> None:
        """Let a plain rerun end, and count whether it ends with what the undisturbed run made."""
        run = self.scratch.run()
        same = run.status == 0 and fingerprint(self.scratch) == fingerprint(self.made) and (has_jobs or not run.jobs)
        for fault in faults:
            self.count(fault, outcome if same else "lost", f"{detail}: {run.output[-2000:]}")

    def _judge(self, stage: Stage, path: Path, sound: bytes, fault: str) -> None:
        status, said = run_stage(stage, self.scratch.folder)
        where = f"{stage.name} reads {path.relative_to(self.scratch.folder)}"
        if status == 0:
            self.count(fault, "recovered" if self.same(stage) else "lost", f"{where}: other results")
            path.write_bytes(sound)
            return
        named = path.name in said and "error: " in said and "Traceback" not in said
        written = [name for name in stage.paths(outputs=True) if (self.scratch.folder / name).exists()]
        partial = [name for name in written if "journals" not in name and self.scratch.folder / name != path]
        path.write_bytes(sound)
        if not named or partial:
            self.count(fault, "lost", f"{where}: {partial} {said[-1500:]}")
        else:
            self.rerun(stage, fault, where, "refused")

    def rerun(
        self, stage: Stage, fault: str, detail: str, outcome: str = "recovered", store: Path | None = None
    ) -> None:
        status, said = run_stage(stage, self.scratch.folder, store=store)
        if status or not self.same(stage):
            self.count(fault, "lost", f"{stage.name}: {detail}: the rerun ended with {status}: {said[-1500:]}")
        else:
            self.count(fault, outcome, detail)

    def _undisturbed(self, stage: Stage) -> float:
        self.clear(stage)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        status, said = run_stage(stage, self.scratch.folder)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        assert status == 0 and self.same(stage), f"{stage.name} alone gives other results: {said}"
        return seconds

    def clear(self, stage: Stage, keep: Path | None = None) -> None:
        """Bring everything to its undisturbed state, but without the outputs of the stage."""
        self.reset()
        for path in [file for name in stage.paths(outputs=True) for file in files_of(self.scratch.folder / name)]:
            if path != keep:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def reset(self) -> None:
        """Bring all results to their undisturbed state."""
        shutil.rmtree(self.scratch.folder / "results", ignore_errors=True)
        shutil.copytree(self.made.folder / "results", self.scratch.folder / "results")

    def restore(self) -> None:
        """Bring the whole folder to its undisturbed state, time stamps and Snakemake's records included."""
        shutil.rmtree(self.scratch.folder)
        shutil.copytree(self.made.folder, self.scratch.folder)

    def readable(self, stage: Stage) -> list[Path]:
        names = stage.paths(outputs=False)
        # The journal is read as well as written.
        names += [name for name in stage.paths(outputs=True) if "journals" in name]
        # Snakemake's next call writes the file of a stage again.
        kept = [name for name in names if not name.startswith("results/stages/")]
        paths = [path for name in kept for path in files_of(self.made.folder / name)]
        files = [file for path in paths for file in (sorted(path.glob("[!.]*")) if path.is_dir() else [path])]
        files = [path for path in files if path.suffix != ".py" and path.exists()]
        return [self.scratch.folder / path.relative_to(self.made.folder) for path in files]

    def same(self, stage: Stage) -> bool:
        """Return whether the stage's outputs are those of the undisturbed run."""
        ours, theirs = (
            [contents(workflow.folder / name) for name in stage.paths(outputs=True)]
            for workflow in (self.scratch, self.made)
        )
        return ours == theirs


def stages_of(folder: Path) -> list[Stage]:
    """Return the commands of the jobs that Snakemake recorded."""
    commands = {}
    for path in sorted((folder / ".snakemake/metadata").rglob("*")):
        if path.is_file():
            record = json.loads(path.read_text())
            if record.get("shellcmd") and record["rule"] != "stage_file":
                commands[record["shellcmd"].partition(" 2>&1")[0]] = record["rule"]
    found = []
    for command, rule in sorted(commands.items()):
        words = shlex.split(command.replace("$SCRIPTS", "workflow/scripts"))
        words = words[words.index("python") + 1 :]
        if rule == "benchmark":
            # Many small writes, so that a kill can come between two.
            at = words.index("--settings") + 1
            sections = json.loads((folder / words[at]).read_text())["settings"]
            sections["benchmark"] |= {"timing_overrides": {"batch_pairs": 8}}
            words[at] = json.dumps(sections | {"lock": CONFIG["lock"]})
        found.append(Stage(rule, tuple(words)))
    return found


@cache
def written_by(script: str) -> set[str]:
    """Options of a script that name what it writes."""
    (main,) = (node for node in ast.parse((ROOT / script).read_text()).body if isinstance(node, ast.FunctionDef))
    kinds = {argument.arg: ast.unparse(argument.annotation) for argument in main.args.args}
    return {f"--{name.replace('_', '-')}" for name, kind in kinds.items() if kind.startswith(("Output", "Journal"))}


def run_stage(
    stage: Stage,
    folder: Path,
    kill_after: float | None = None,
    store: Path | None = None,
    meanwhile: Callable[[int], None] | None = None,
) -> tuple[int, str]:
    """Run a stage in a forked process; return its status, negative if it was killed, and what it printed.

    ``store``: folder of a shared cache. ``meanwhile`` is called with the number of the process.
    """
    with tempfile.TemporaryFile() as log:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            os.setpgid(0, 0)
            os.chdir(folder)
            for number in (1, 2):
                os.dup2(log.fileno(), number)
            sys.argv = list(stage.arguments)
            os.environ[RUN] = _environment_of_job(stage, store)
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
        if meanwhile:
            meanwhile(child)
        if kill_after is not None:
            wait_until_used(child, kill_after)
            os.killpg(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        log.seek(0)
        return status, log.read().decode(errors="replace")


def _environment_of_job(stage: Stage, store: Path | None) -> str:
    """Return what a run of the workflow passes to a job: its store, if any, and the state of the code."""
    machine = {"cache": {"folder": str(store), "max_gib": 1}} if store else {}
    if stage.name == "compile" and not store:
        # Of the compiler's faults; with it other stages would be restored.
        machine = RunEnvironment.read().machine
    path = Path(stage.arguments[0])
    files = [path, *code_digest.modules_of(ROOT / path).values()]
    return RunEnvironment(machine, {path.stem: code_digest.state_of_files(files)}).text()


def wait_until_used(pid: int, cpu_s: float) -> bool:
    """Wait until a process has used so much CPU time; return False if it ended before."""
    # The clock of another process: Linux numbers it so (man clock_getcpuclockid).
    clock = (~pid << 3) | 2
    while True:
        try:
            if time.clock_gettime(clock) >= cpu_s:
                return True
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
        except OSError:
            return False
        time.sleep(0.0005)


def kill_some(process: subprocess.Popen, draw: random.Random) -> str:
    """Kill Snakemake, a script that it runs, or the whole run at a random moment of its work; return which was hit."""
    victim = draw.choice(("Snakemake", "a script", "a whole run"))
    if victim == "Snakemake":
        hit = wait_until_used(process.pid, draw.uniform(0.2, RUN_CPU_S)) and process.poll() is None
        if hit:
            process.kill()
    else:
        script = None
        while script is None and process.poll() is None:
            script = next((pid for pid in descendants(process.pid) if is_script(pid)), None)
            time.sleep(0.002)
        hit = script is not None and wait_until_used(script, draw.uniform(0, SCRIPT_CPU_S))
        if hit:
            os.kill(script, signal.SIGKILL) if victim == "a script" else os.killpg(process.pid, signal.SIGKILL)
    if hit and victim == "Snakemake":
        # Its job lives on and holds the pipe; the next run waits for it.
        process.wait()
        process.stdout.close()
    else:
        process.communicate()
    return victim if hit else ""


def is_script(pid: int) -> bool:
    """Return whether a process is the Python of a stage's script."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"python" in words[0] and any(word.startswith(b"workflow/scripts/") for word in words[1:2])


def descendants(pid: int) -> list[int]:
    """Return the processes below ``pid``, itself included."""
    try:
        # By thread: Snakemake starts its jobs from others than its first.
        children = [
            child for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
        ]
    except OSError:
        return []
    return [pid, *(below for child in children for below in descendants(int(child)))]


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """Put a small file system of its own at ``folder``, without room for anything."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)
    try:
        if "ro" not in options.split(","):
            (folder / "filler").write_bytes(b"x" * PAGE)
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def may_mount() -> bool:
    """Return whether we may mount a file system here."""
    with tempfile.TemporaryDirectory() as folder:
        tried = subprocess.run(["mount", "-t", "tmpfs", "none", folder], capture_output=True)
        return not tried.returncode and not subprocess.run(["umount", folder]).returncode


def damaged(content: bytes, how: str, draw: random.Random) -> bytes:
    """Return damaged content."""
    at = draw.randrange(max(1, len(content)))
    if how == "cut":
        return content[:at]
    if how == "flip":
        return content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :]
    if how == "zeros":
        return content[:at] + bytes(min(512, len(content) - at)) + content[at + 512 :]
    if how == "long tail":
        # What a file system may leave behind the last write before the power went.
        return content + bytes(2 << 20)
    return {"empty": b"", "foreign": b"nonsense\n" * 40, "endless nesting": b"[" * 100_000}[how]


def kind(path: Path) -> str:
    """Return what a file is called in the counts."""
    kinds = {".csv": "a journal", ".parquet": "a Parquet file", ".tar": "a bundle", ".lgbm": "a model"}
    if "journals" in path.parts and path.suffix == ".parquet":
        return "a journal of columns"
    if path.parent.parent.parent.name == "benchmark":
        return "a receipt"
    return kinds.get(path.suffix, "a JSON file" if path.suffix == ".json" else "a text file")


def files_of(path: Path) -> list[Path]:
    """Return an input or output as a list, if it is there; of a journal all its files."""
    return journal_files(path) if "journals" in path.parts else [path] if path.exists() else []


def contents(path: Path) -> object:
    """Return what has to be equal: bytes; of a receipt not the torn lines, of a journal its rows, no times."""
    if "journals" in path.parts:
        return sorted(map(str, read_journal(path)[0].to_pylist()))
    if path.is_dir():
        return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("[!.]*") if file.is_file()}
    if not path.exists():
        return None
    if "benchmark" in path.parts and path.suffix == ".json":
        return {key: value for key, value in json.loads(path.read_text()).items() if key != "malformed_lines"}
    if path.name == "history.jsonl":
        return [json.loads(line) | {"time": ""} for line in path.read_text().splitlines()]
    if path.name.endswith((".costs.parquet", ".quarantine.tsv")):
        # CPU seconds and memory, and lines that do not count: read by no later stage.
        return True
    return path.read_bytes()


def fingerprint(workflow: Workflow) -> dict[str, str]:
    """Return the hashes of datasets, models and report."""
    folders = ("results/datasets", "results/models", "results/reports")
    files = [path for folder in folders for path in sorted((workflow.folder / folder).rglob("[!.]*")) if path.is_file()]
    files = [path for path in files if not path.name.endswith(".quarantine.tsv")]
    return {
        path.relative_to(workflow.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


def prepare(folder: Path, seed: int, log: Path | None) -> Suite:
    """Run the small workflow undisturbed in ``folder`` and copy it."""
    made = Workflow(folder / "made")
    if not (folder / "scratch").exists():
        made = lay_out(folder / "made")
        made.configure(configs=CONFIG["configs"] | {"chunks": 1}, benchmark={"seed": 1})
        made.make()
        shutil.copytree(made.folder, folder / "scratch")
    for script in (ROOT / "workflow/scripts").glob("*.py"):
        for path in code_digest.modules_of(script).values():
            importlib.import_module(
                ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
            )
    return Suite(made, Workflow(folder / "scratch"), seed, log)


def entries(log: Path) -> list[list[str]]:
    """Return what a log holds: case, fault, outcome."""
    return [json.loads(line) for line in log.read_text().splitlines()]
