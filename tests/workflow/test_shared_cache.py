"""Two workflows that share one compile cache at the same time, with a fake compiler."""

from __future__ import annotations

import os
import shutil
import signal
import time

from small_workflow import Workflow, with_fake_compiler

TABLES = [f"results/build/gfx950/forward_bf16/{chunk}.parquet" for chunk in range(2)]


def test_the_death_of_a_workflow_does_not_hurt_another_one_with_the_same_cache(fresh, tmp_path):
    machine = with_fake_compiler(fresh, tmp_path / "machine")
    (machine / "fail").write_text("none of these words")
    (machine / "slow").write_text("0.3")
    fresh.configure(compile={"toolchain": "hipcc", "compiler": str(machine / "hipcc"), "batch": 4})
    other = Workflow(tmp_path / "other")
    shutil.copytree(fresh.folder, other.folder)

    def compiled():
        path = machine / "runs"
        return len(path.read_text().split()) if path.exists() else 0

    killed, running = (workflow.start(*TABLES) for workflow in (fresh, other))
    while compiled() <= 4 and running.poll() is None:
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    output, _ = running.communicate(timeout=300)
    assert running.returncode == 0, output
    killed.communicate()
    # All that the killed one had still to compile is there.
    runs = compiled()
    fresh.make("--unlock", *TABLES)
    fresh.make(*TABLES)
    assert [fresh.read(table) for table in TABLES] == [other.read(table) for table in TABLES]
    assert compiled() == runs
