"""Two workflows that share one compile cache at the same time, with a fake compiler."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter

from small_workflow import Workflow, with_fake_compiler

from tileseer.core.cache import Cache

TABLES = [f"results/build/gfx950/forward_bf16/{chunk}.parquet" for chunk in range(2)]


def test_two_workflows_compile_each_kernel_once_and_the_death_of_one_does_not_hurt_the_other(fresh, tmp_path):
    machine = with_fake_compiler(fresh, tmp_path / "machine")
    (machine / "fail").write_text("none of these words")
    (machine / "slow").write_text("0.3")
    compiler = {"toolchain": "hipcc", "compiler": str(machine / "hipcc"), "batch": 4}
    fresh.configure(compile=compiler)
    other = Workflow(tmp_path / "other")
    shutil.copytree(fresh.folder, other.folder)

    def start(*workflows):
        return [workflow.start(*TABLES) for workflow in workflows]

    def compiled():
        path = machine / "runs"
        return Counter(path.read_text().split()) if path.exists() else Counter()

    # Whoever comes first compiles a kernel; nobody compiles it again.
    running = start(fresh, other)
    outputs = [process.communicate(timeout=300)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], outputs
    assert compiled() and set(compiled().values()) == {1}
    right = [fresh.read(table) for table in TABLES]
    assert [other.read(table) for table in TABLES] == right

    # Once more from nothing; one of them dies in the middle, and the cache is looked at all the while.
    shutil.rmtree(machine / "cache")
    (machine / "runs").unlink()
    for workflow in (fresh, other):
        shutil.rmtree(workflow.folder / "results/build")
    running = start(fresh, other)
    cache = Cache(machine / "cache", 2**30)
    killed = False
    while running[1].poll() is None:
        if not killed and len(compiled()) > 4:
            os.killpg(running[0].pid, signal.SIGKILL)
            killed = True
        assert cache.stats().bytes <= 2**30
        assert cache.collect().removed == 0
        time.sleep(0.05)
    assert killed, running[0].communicate()[0]
    output = running[1].communicate()[0]
    assert running[1].returncode == 0, output
    assert [other.read(table) for table in TABLES] == right
    # What the dead one was compiling is compiled again, and nothing else: its two jobs had a batch each.
    assert sum(count - 1 for count in compiled().values()) <= 2 * compiler["batch"]
    runs = sum(compiled().values())
    fresh.make(*TABLES)
    assert [fresh.read(table) for table in TABLES] == right
    assert sum(compiled().values()) == runs
