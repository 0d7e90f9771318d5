"""Edits while a run is alive, for the fault suite.

All is computed anew in a copy of the checkout. While the script of a stage works, a line of a module, a table or a
file that the stage reads is changed; the run ends as it may, the change is taken back, and the next run has to make
what an undisturbed one makes. So has a run in another folder with the same cache: it would put back what is wrong.
"""

from __future__ import annotations

import io
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
from fault_injection import Stage, Suite, descendants, fingerprint, is_script, wait_until_used
from small_workflow import Workflow

EDITS = {
    "a module": (
        ("src/tileseer/kernels/features/gemm.py", 'p["gemm_m"] / p["gemm_n"]', 'p["gemm_n"] / p["gemm_m"]'),
        ("src/tileseer/kernels/costs/deviation.py", "* 2 * np.pi", "* 3 * np.pi"),
        ("workflow/scripts/configs.py", "    from tileseer", "    import tileseer\n    from tileseer"),
    ),
    "a table": (
        ("config/problems/small.yaml", "count: 12", "count: 11"),
        ("config/problems/small.csv", ",layer3,4,", ",layer3,5,"),
        ("config/hardware.yaml", "arch: gfx950\n    compute_units: 256", "arch: gfx950\n    compute_units: 250"),
        ("config/simulated_device.yaml", "latency: 542.0", "latency: 642.0"),
    ),
}  # fmt: skip
"""Lines that decide about results: path, text and what it becomes."""
INPUT = "a file that the stage reads"
KINDS = (*EDITS, INPUT)
START_CPU_S = 0.5
"""Of a script before it works."""


def edit_runs(suite: Suite, number: int) -> None:
    """Edit a file while a stage of a run works, take that back, and run again, here and elsewhere."""
    for draw in suite.cases("edit in a run", number):
        kind = KINDS[int(suite.current.rsplit(" ", 1)[-1]) % len(KINDS)]
        ended = None
        while ended is None:
            suite.restore()
            for name in ("results", "cache"):
                shutil.rmtree(suite.scratch.folder / name)
            ended = _edited_run(suite, draw, kind)
        status, said, where = ended
        fault = f"edit of {kind} in a run"
        if "Traceback (most recent call last)" in said or (status and not re.search(r"error: ", said)):
            suite.count(fault, "lost", f"{where}: {status}: {said[-2000:]}")
            continue
        run = suite.scratch.run()
        elsewhere = _elsewhere(suite)
        again = elsewhere.run()
        right = fingerprint(suite.made)
        wrong = [
            f"{name}: {one.output[-1500:]}"
            for name, workflow, one in (("here", suite.scratch, run), ("elsewhere", elsewhere, again))
            if one.status or fingerprint(workflow) != right
        ]
        print(f"{fault}: {where}: status {status}, restored {sum(again.restored.values())} elsewhere", flush=True)
        suite.count(fault, "lost" if wrong else "refused" if status else "recovered", f"{where}: {wrong}")


def _edited_run(suite: Suite, draw: random.Random, kind: str) -> tuple[int, str, str] | None:
    """Status and output of a run in which a file was edited, and which; None if the stage ended before its moment."""
    stage = draw.choice(suite.stages)
    path, edited = _edit(suite, draw, kind, stage)
    moment = draw.uniform(0, START_CPU_S + suite.seconds[stage])
    process = suite.scratch.start()
    script = _script(process, stage)
    hit = script is not None and wait_until_used(script, moment)
    if hit:
        before = path.read_bytes()
        path.write_bytes(edited(before))
    said, _ = process.communicate()
    if not hit:
        return None
    path.write_bytes(before)
    return process.returncode, said, f"{path.relative_to(suite.scratch.folder)} in {stage.name} after {moment:.2f} s"


def _edit(suite: Suite, draw: random.Random, kind: str, stage: Stage) -> tuple[Path, Callable[[bytes], bytes]]:
    if kind == INPUT:
        return draw.choice([path for path in suite.readable(stage) if path.suffix != ".csv"]), _shortened
    name, old, new = draw.choice(EDITS[kind])
    assert old in (suite.made.folder / name).read_text(), f"{name} has no {old!r}"
    return suite.scratch.folder / name, lambda content: content.replace(old.encode(), new.encode(), 1)


def _shortened(content: bytes) -> bytes:
    """Return a table without its last row, or a text without its last line."""
    if content[:4] != b"PAR1":
        return b"".join(content.splitlines(keepends=True)[:-1])
    table, buffer = pq.read_table(io.BytesIO(content)), io.BytesIO()
    pq.write_table(table[: table.num_rows - 1], buffer)
    return buffer.getvalue()


def _script(process: subprocess.Popen[str], stage: Stage) -> int | None:
    """Return the process of a stage's script as soon as there is one; None if the run ends without."""
    name = Path(stage.arguments[0]).name.encode()
    while process.poll() is None:
        for pid in filter(is_script, descendants(process.pid)):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if len(words) > 1 and words[1].endswith(name):
                return pid
        time.sleep(0.002)
    return None


def _elsewhere(suite: Suite) -> Workflow:
    """Return a folder in which nothing has run, with the cache of the other one."""
    fresh = Workflow(suite.made.folder.parent / "fresh")
    shutil.rmtree(fresh.folder, ignore_errors=True)
    shutil.copytree(suite.made.folder, fresh.folder, ignore=shutil.ignore_patterns("results", ".snakemake", "cache"))
    shutil.copytree(suite.scratch.folder / "cache", fresh.folder / "cache")
    return fresh
