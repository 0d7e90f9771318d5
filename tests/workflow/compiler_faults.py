"""Faults of a compiler for the fault suite: it crashes, is killed, hangs, or writes a wrong object.

The compile stage runs with ``faulty_hipcc.py`` in place of hipcc, and an empty cache. A fault in one call has to leave
no trace: the same build table, at once or by a plain rerun. A fault in every call that compiles one kernel may cost
that kernel its row, with a reason, and nothing else; once the compiler is mended, the table is the undisturbed one,
so nothing of the fault was kept in the cache.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from small_workflow import CONFIG, Workflow, lay_out, with_fake_compiler

if TYPE_CHECKING:
    from fault_suite import Suite

HOWS = ("crash", "abort", "kill -9", "hang", "nothing", "empty", "cut", "foreign", "zeros", "another kernel")
BATCH = 4
TABLE = "results/build/gfx950/forward_bf16/0.parquet"
FAILED = ("compile_error", "compile_timeout", "compile_memory")


def prepare(folder: Path) -> tuple[Workflow, Workflow]:
    """Compile the kernels of the small workflow undisturbed, and copy its folder."""
    made = lay_out(folder / "compiled")
    made.configure(configs=CONFIG["configs"] | {"chunks": 1})
    machine = with_fake_compiler(made, folder / "machine")
    compiling = {"toolchain": "hipcc", "compiler": str(machine / "hipcc"), "batch": BATCH, "timeout_seconds": 3}
    (machine / "fail").write_text("none of these words")
    made.configure(compile=compiling)
    made.make(TABLE)
    shutil.copytree(made.folder, folder / "compiled copy")
    return made, Workflow(folder / "compiled copy")


def inject(suite: Suite, number: int, run_stage: Callable[..., tuple[int, str]]) -> None:
    """Let the compiler fail in one call, or whenever it compiles one kernel."""
    (stage,) = suite.stages
    machine = suite.made.folder.parent / "machine"
    clean = pq.read_table(suite.made.folder / TABLE)
    kernels = clean["kernel"].to_pylist()
    # Each run assembles its output as well.
    calls = 2 * -(-len(kernels) // BATCH)
    for draw in suite.draws("compiler", number):
        (machine / "hit").unlink(missing_ok=True)
        while not (machine / "hit").exists():
            how = draw.choice(HOWS)
            where = {"call": draw.randint(1, calls)} if draw.random() < 0.7 else {"kernel": draw.choice(kernels)}
            shutil.rmtree(machine / "cache", ignore_errors=True)
            (machine / "calls").unlink(missing_ok=True)
            suite.clear(stage)
            (machine / "trouble").write_text(json.dumps({"how": how, "seed": draw.random()} | where))
            status, said = run_stage(stage, suite.scratch.folder)
            (machine / "trouble").unlink()
        fault = f"compiler: {how}"
        wrong = _wrong(suite, status, said, where.get("kernel", ""))
        if wrong:
            suite.count(fault, "lost", f"{where}: {wrong}: {said[-1500:]}")
        elif status == 0 and suite.same(stage):
            suite.count(fault, "recovered", "")
        else:
            suite.clear(stage)
            suite.rerun(stage, fault, str(where), "refused" if status else "recovered")


def damage_cache(suite: Suite, number: int, damaged: Callable[..., bytes], hows: Sequence[str]) -> None:
    """Damage one entry of the cache: it is made again."""
    (stage,) = suite.stages
    folder = suite.made.folder.parent / "machine/cache"
    for draw in suite.draws("entry of the cache", number):
        suite.clear(stage)
        path = draw.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
        how = draw.choice(hows)
        path.write_bytes(damaged(path.read_bytes(), how, draw))
        suite.rerun(stage, f"{how}: an entry of the cache", str(path))


def _wrong(suite: Suite, status: int, said: str, kernel: str) -> str:
    """Return what is wrong with how the stage ended, apart from rows that a rerun mends; ``kernel`` may have failed."""
    table = suite.scratch.folder / TABLE
    if status:
        if "Traceback" in said or "error: " not in said or "hipcc" not in said:
            return f"status {status} without a message that names the compiler"
        return f"it stopped and left {table.name}" if table.exists() else ""
    rows = {row["kernel"]: row for row in pq.read_table(table).to_pylist()}
    before = {row["kernel"]: row for row in pq.read_table(suite.made.folder / TABLE).to_pylist()}
    changed = [name for name in before if rows[name] != before[name]]
    if [name for name in changed if name != kernel]:
        return f"rows changed: {changed}"
    if changed and (rows[kernel]["build_status"] not in FAILED or not rows[kernel]["build_reason"]):
        return f"{kernel} is {rows[kernel]['build_status']} without a reason"
    return ""
