"""The profile for SLURM, on a real SLURM of three nodes that runs on this machine."""

from __future__ import annotations

import os

import one_machine_slurm
import pytest
from small_workflow import TARGETS
from test_faults import hashes, journal_lines, overlaps

from tilewright.bench import journal

PROFILE = (
    "--workflow-profile", "profiles/slurm", "--slurm-init-seconds-before-status-checks", "2", "--latency-wait", "20",
)  # fmt: skip
# It takes minutes of waiting for pollers, so it runs when asked for: make slurm-test.
WHY_NOT = one_machine_slurm.missing() if "TILEWRIGHT_TEST_SLURM" in os.environ else "runs by make slurm-test"
pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT), pytest.mark.xdist_group("slurm")]


@pytest.fixture
def cluster(tmp_path):
    with one_machine_slurm.running(tmp_path / "slurm") as running:
        yield running


def next_job(cluster, rule):
    """Wait until a job of this rule runs; return it."""
    found = []

    def running():
        found[:] = [job for job in cluster.jobs("RUNNING") if rule in job["comment"]]
        return bool(found)

    one_machine_slurm.wait_for(running, f"a job of {rule} to run", 240)
    return found[0]


def test_the_workflow_on_a_cluster_that_loses_a_node_and_preempts_jobs(made, fresh, cluster):
    fresh.configure(benchmark={"seed": 1, "trace": "logs/device_use.txt", "batch_pairs": 2})
    process = fresh.start(*PROFILE, *TARGETS)
    try:
        cluster.fail_node(next_job(cluster, "compile")["node"])
        preempted = next_job(cluster, "benchmark")
        one_machine_slurm.wait_for(lambda: journal_lines(fresh), "a measurement")
        cluster.control("requeue", preempted["id"])
        output, _ = process.communicate(timeout=500)
    finally:
        process.kill()
    assert process.returncode == 0, output

    jobs = cluster.jobs()
    assert {job["partition"] for job in jobs if "benchmark" in job["comment"]} == {"gpu"}
    assert all(job["gres"].endswith("gpu:1") for job in jobs if "benchmark" in job["comment"])
    assert {job["partition"] for job in jobs if "benchmark" not in job["comment"]} == {"cpu"}
    chunks = len(list((fresh.folder / "results/benchmark").rglob("*.json")))
    # A chunk's CPU stages are one job, and so are an operation's learning stages.
    assert len(jobs) == 2 * chunks + 1 + sum("build_headers" in job["comment"] for job in jobs)

    assert hashes(fresh) == hashes(made[0])
    complete = [line for line in journal_lines(fresh) if journal.is_whole(line.encode())]
    assert len(set(complete)) == len(complete) == made[1].measured
    assert not overlaps(fresh.uses())
    # What the cluster recorded is what a run on this machine compares with.
    run = fresh.make()
    assert not run.jobs, run.output
