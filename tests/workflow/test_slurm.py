"""The profile for SLURM, on a real SLURM of four nodes that runs on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import one_machine_slurm
import pytest
from one_machine_slurm import client, wait_for
from small_workflow import TARGETS, hashes
from test_faults import measured_rows, slow
from test_faults import wait_for as wait_closely_for

PROFILE = ("--workflow-profile", "profiles/slurm", "--slurm-init-seconds-before-status-checks", "2")
MISSED = "Waiting at most 60 seconds for missing files"
LEARNING = ("dataset", "model", "evaluation", "serving")
RECEIPT = "results/benchmark/gfx950/forward_bf16/{chunk}.json"
# It takes minutes of waiting for pollers, so it runs when asked for: make slurm-test.
WHY_NOT = one_machine_slurm.missing() if "TILESEER_TEST_SLURM" in os.environ else "runs by make slurm-test"
pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT), pytest.mark.xdist_group("slurm")]


@pytest.fixture
def cluster(tmp_path):
    with one_machine_slurm.running(tmp_path / "slurm") as running:
        yield running


class Protocol:
    """The run and what came of it, for docs/generated/slurm-test.txt, without folders of this machine."""

    def __init__(self, folder):
        self._folder, self._start, self._lines = folder, time.monotonic(), []

    def event(self, text):
        self._lines.append(f"{time.monotonic() - self._start:4.0f} s  {text}")

    def write(self, path, jobs, *outputs):
        form = "{id:>3}  {state:<10} {partition:<7} {node:<5} {gres:<10} {comment}"
        table = [form.format(**job).rstrip() for job in jobs]
        parts = ["What happened", *self._lines, "", "Jobs, as SLURM lists them at the end", *table]
        for number, output in enumerate(outputs, 1):
            parts += ["", f"Call {number} of Snakemake", output.strip()]
        text = "\n".join(parts) + "\n"
        for folder, name in ((self._folder.as_posix(), "WORKFLOW"), (sys.prefix, "VENV")):
            text = text.replace(folder, name)
        Path(path).write_text(text.replace(os.uname().nodename, "HOST"))


def running(cluster, rule):
    return [job for job in cluster.jobs("RUNNING") if rule in job["comment"]]


def said(workflow):
    """Return what Snakemake has printed so far."""
    return "".join(path.read_text() for path in (workflow.folder / ".snakemake/log").glob("*.log"))


def next_job(cluster, rule, seconds=400):
    """Wait until a job of this rule runs; return it."""
    wait_for(lambda: running(cluster, rule), f"a job of {rule} to run", seconds)
    return running(cluster, rule)[0]


def test_a_cluster_where_everything_happens(made, fresh, cluster):
    """One run on which a node dies, a job hangs, one is preempted, a file is seen late, and Snakemake is killed."""
    slow(fresh)
    chunks = len(list((made[0].folder / "results/benchmark").rglob("*.json")))
    protocol = Protocol(fresh.folder)
    process = fresh.start(*PROFILE, *TARGETS)
    try:
        wait_for(lambda: len(running(cluster, "compile")) == chunks, "all chunks to be built", 240)
        builds = running(cluster, "compile")
        lost = builds[0]
        hanging = next(job for job in builds if job["node"] != lost["node"])
        cluster.hang(hanging["id"])
        client("scontrol", "update", f"jobid={hanging['id']}", "timelimit=1")
        protocol.event(f"job {hanging['id']} hangs; its limit is a minute")
        cluster.fail_node(lost["node"])
        protocol.event(f"node {lost['node']} dies under job {lost['id']}")

        preempted = next_job(cluster, "benchmark")
        wait_closely_for(lambda: len(measured_rows(fresh)) > 4)
        cluster.hang(preempted["id"])
        measured = len(measured_rows(fresh))
        client("sbatch", "-p", "urgent", "--gres=gpu:1", "--wrap=sleep 1", "--output=/dev/null", "--comment=urgent")
        protocol.event(f"somebody's urgent job takes the GPU from job {preempted['id']}, which has {measured} pairs")
        late = fresh.folder / RECEIPT.format(chunk=preempted["comment"].rpartition("_")[2])
        cluster.hide(late)
        wait_for(lambda: cluster.restarts(preempted["id"]) == 1, "the preempted job to be queued again")

        wait_for(lambda: MISSED in said(fresh), "Snakemake to miss the file", 300)
        cluster.show(late)
        protocol.event(f"Snakemake misses {late.name} for a while")
        training = next_job(cluster, "model", 900)
        process.kill()
        before, _ = process.communicate()
        protocol.event(f"Snakemake is killed while job {training['id']} trains")
        wait_for(lambda: not cluster.jobs("PENDING", "RUNNING", "COMPLETING"), "its jobs to end", 300)
        fresh.make(*PROFILE, "--unlock", *TARGETS)
        process = fresh.start(*PROFILE, *TARGETS)
        after, _ = process.communicate(timeout=900)
        protocol.event("the second call ends")
    except BaseException:
        process.kill()
        print(process.communicate()[0], cluster.jobs(), sep="\n")
        raise
    assert process.returncode == 0, after

    jobs = cluster.jobs()
    protocol.event("a local call finds nothing to do" if not (run := fresh.make()).jobs else run.output)
    protocol.write(os.environ["TILESEER_TEST_SLURM"], jobs, before, after)
    assert cluster.restarts(lost["id"]) == 1
    assert next(job["state"] for job in jobs if job["id"] == hanging["id"]) == "TIMEOUT"
    assert "Trying to restart job" in before
    told = next((fresh.folder / "logs/slurm").rglob(f"{hanging['id']}.log")).read_text()
    assert "DUE TO TIME LIMIT" in told
    assert 4 < measured < made[1].measured // chunks
    assert MISSED in before and late.relative_to(fresh.folder).as_posix() in before

    ours = [job for job in jobs if job["comment"] != "urgent"]
    assert {job["partition"] for job in ours if "benchmark" in job["comment"]} == {"gpu"}
    assert all(job["gres"].endswith("gpu:1") for job in ours if "benchmark" in job["comment"])
    assert {job["partition"] for job in ours if "compile" in job["comment"]} == {"cpu"}
    learning = [job for job in ours if any(stage in job["comment"] for stage in LEARNING)]
    assert {job["partition"] for job in learning} == {"memory"} and len(learning) == len(LEARNING)
    # A chunk's CPU stages are one job, of which one ran out of time; what Snakemake may do twice are parts of a group.
    whole = [job for job in ours if job["comment"] == lost["comment"]]
    assert len(whole) == chunks + 1
    assert all(
        "build" in job["comment"] for job in ours if job not in (*whole, *learning) and job["partition"] == "cpu"
    )

    assert hashes(fresh) == hashes(made[0])
    rows = measured_rows(fresh)
    assert len(set(rows)) == len(rows) == made[1].measured
    # What the cluster recorded is what a run on this machine compares with.
    assert not run.jobs, run.output


def test_few_jobs_make_the_same_and_a_gpu_is_asked_for_in_either_way(made, fresh, cluster):
    """Three jobs with workers inside; then the measuring jobs again, by ``--gpus``."""
    run = subprocess.run(
        ["sh", "profiles/slurm/few-jobs.sh", *TARGETS],
        cwd=fresh.folder, env=fresh.environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    ids = re.findall(r"^job (\d+): (?:build|measure|learn)$", run.stdout, re.M)
    wait_for(lambda: not cluster.jobs("PENDING", "RUNNING", "COMPLETING"), "the three jobs to end", 300)
    jobs = {job["id"]: job for job in cluster.jobs()}
    logs = [(fresh.folder / f"logs/slurm/{number}.log").read_text() for number in ids]
    assert [jobs[number]["state"] for number in ids] == ["COMPLETED"] * 3 and len(jobs) == 3, logs
    assert [jobs[number]["partition"] for number in ids] == ["cpu", "gpu", "memory"]
    assert jobs[ids[1]]["gres"].endswith("gpu:1")
    done = [set(re.findall(r"^Finished jobid: \d+ \(Rule: (\w+)\)", log, re.M)) for log in logs]
    assert {"compile", "support"} <= done[0] and done[1] == {"benchmark"} and {*LEARNING, "publish"} <= done[2]
    assert hashes(fresh) == hashes(made[0])
    assert len(measured_rows(fresh)) == made[1].measured

    measuring = ["--set-resources", "benchmark:slurm_partition=gpu", "benchmark:gpu=1"]
    again = fresh.make(*PROFILE, *measuring, "--forcerun", "benchmark", "--until", "benchmark", "--", *TARGETS)
    newest = [job["id"] for job in cluster.jobs() if job["id"] not in jobs]
    asked = [re.findall(r"Tres(\w+=gres.gpu:\d)", client("scontrol", "show", "job", job)) for job in newest]
    assert asked and asked == [["PerJob=gres:gpu:1"]] * len(newest)
    assert again.jobs["benchmark"] == len(newest) and len(measured_rows(fresh)) == made[1].measured
