"""Kernels that crash, hang, exit, print and scribble: the blame falls on the pair in flight, and on no other."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileseer.core.errors import UserError
from tileseer.core.locks import hold_first_free
from tileseer.facts.benchmark import Timing
from tileseer.measure.harness import supervisor as supervisors
from tileseer.measure.harness.supervisor import Request, Supervisor, WorkerLimits, launch_options, printable

TIMING = Timing(
    min_time_ms=0.2, max_noise=0.01, budget_ms=50.0, sample_ms=0.1, settle_ms=50.0, min_samples=4, max_samples=50
)
OPTIONS = launch_options(TIMING)
SHAPE = (1, 2, 8, 8, 1, 5, 5, 1, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1)
DIRECTION = {"good_bwd_data": 1, "good_bwd_weight": 2}


def request(libraries, kernel, shape=SHAPE, **options):
    return Request((libraries[1],), kernel, (*shape, DIRECTION.get(kernel, 0), 1), OPTIONS | options)


@pytest.fixture
def run(libraries):
    """Measure kernels one after the other in one supervisor; a pair may take two seconds."""

    def measure(*names, **limits):
        with Supervisor(libraries[0], limits=WorkerLimits(**{"pair_s": 2.0} | limits)) as supervisor:
            return [supervisor.measure(request(libraries, name)) for name in names]

    return measure


@pytest.mark.parametrize(
    ("kernel", "status", "told"),
    [
        ("segfault", "crash", "SIGSEGV in phase verify"),
        ("exits", "crash", "exit status 0 in phase verify"),
        ("hangs", "run_timeout", "no answer after 2 s in phase verify"),
        ("scribbles", "crash", "the worker sent no reply but b'garbage'"),
        ("wrong", "wrong_result", "1 of 200 elements wrong; 0 not finite"),
        ("unwritten", "wrong_result", "1 of 200 elements wrong; 1 not finite"),
        ("stores_behind", "crash", "the kernel has stored at offset 800 of the output c; which has 800 bytes"),
        ("stores_before", "crash", "the kernel has stored at offset -8 of the output c"),
        (
            "stores_to_operand",
            "crash",
            "the kernel has stored at offset 8 of the operand b; which has 1152 bytes and is read-only",
        ),
        ("stores_behind_workspace", "crash", "the kernel has stored at offset 12 of the workspace; which has 12 bytes"),
        ("throws", "unsupported", "no; 'not' this one"),
        ("good_bwd_data", "ok", ""),
        ("good_bwd_weight", "ok", ""),
        ("prints", "ok", ""),
        ("forges", "crash", "the worker sent no reply but"),
        ("shouts", "unsupported", "\\u001b]0;owned\\u0007"),
    ],
)
def test_what_a_kernel_does_is_its_status_and_the_neighbours_are_kept(run, kernel, status, told):
    before, found, after = run("good", kernel, "good")
    assert (found.status, found.error[: len(told)]) == (status, told)
    assert before.status == after.status == "ok"
    assert before.reply["result"]["median_ms"] == pytest.approx(0.01, rel=0.01)
    assert len(found.faults) == (2 if status in ("crash", "run_timeout") else 0)


def test_a_fault_that_does_not_come_again_is_no_failure_but_is_told(libraries, tmp_path):
    mark = {"FAKE_KERNEL_MARK": str(tmp_path / "mark")}
    with Supervisor(libraries[0], mark, WorkerLimits(pair_s=5)) as supervisor:
        outcome = supervisor.measure(request(libraries, "segfault_once"))
    assert outcome.status == "ok"
    assert outcome.faults == ("SIGSEGV in phase verify",)


def test_a_device_that_does_not_come_back_stops_the_run_but_keeps_the_row(libraries, tmp_path, monkeypatch):
    monkeypatch.setattr(supervisors, "PROBE_PAUSE_S", 0.0)
    driver = tmp_path / "driver.so"
    shutil.copy(libraries[0], driver)
    with Supervisor(str(driver), limits=WorkerLimits(pair_s=5)) as supervisor:
        pair = request(libraries, "segfault")
        # The driver that answers the probe is gone, as a GPU that fell off the bus is.
        monkeypatch.setattr(
            supervisor, "_healthy", lambda request, honest=supervisor._healthy: gone() and honest(request)
        )

        def gone():
            driver.unlink(missing_ok=True)
            return True

        assert supervisor.measure(pair).status == "crash"
        with pytest.raises(UserError, match="the device does not answer after segfault"):
            supervisor.measure(pair)


def test_a_driver_that_cannot_be_loaded_is_a_mistake_and_no_row(tmp_path):
    with Supervisor(str(tmp_path / "absent.so")) as supervisor, pytest.raises(UserError, match=r"absent\.so"):
        supervisor.device()


def test_a_missing_kernel_says_what_to_do(libraries):
    with Supervisor(libraries[0]) as supervisor, pytest.raises(UserError, match="no kernel has the name absent"):
        supervisor.measure(request(libraries, "absent"))


def test_a_module_that_cannot_be_loaded_costs_its_kernel_only(libraries, tmp_path):
    broken = tmp_path / "broken.so"
    broken.write_text("no library")
    with Supervisor(libraries[0]) as supervisor:
        assert supervisor.measure(request((libraries[0], str(broken)), "good")).status == "crash"
        assert supervisor.measure(request(libraries, "good")).status == "ok"


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ((1, 3, 8, 8, *SHAPE[4:]), "C or K is no multiple of G"),
        ((1, 2, 8, 8, 1, 1, 1, 1, 3, 3, 1, 1, 1, 0, 0, 0, 1, 1, 1), "larger than the padded input"),
        ((0, *SHAPE[1:]), "less than 1"),
    ],
)
def test_what_is_no_convolution_never_reaches_the_kernel(libraries, shape, told):
    with Supervisor(libraries[0]) as supervisor:
        outcome = supervisor.measure(request(libraries, "good", shape))
    assert told in outcome.error and outcome.status == "crash"


def test_a_problem_beyond_the_memory_is_skipped(libraries):
    big = (512, 1, 64, 64, 1, 128, 128, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1)
    with Supervisor(libraries[0]) as supervisor:
        outcome = supervisor.measure(request(libraries, "good", big))
        assert (outcome.status, outcome.error[:16]) == ("skipped", "no device memory")
        assert supervisor.measure(request(libraries, "good")).status == "ok"


def test_warm_up_ends_when_the_times_are_stable(run):
    (steady, warming) = run("good", "warms_up")
    assert warming.reply["result"]["warmup_samples"] > steady.reply["result"]["warmup_samples"]
    assert warming.reply["result"]["median_ms"] == pytest.approx(0.01, rel=0.005)


def test_noise_is_paid_with_samples(run):
    (steady, noisy) = run("good", "noisy")
    assert steady.reply["result"]["stop"] == 0
    assert noisy.reply["result"]["samples"] > 2 * steady.reply["result"]["samples"]
    assert noisy.reply["result"]["median_ms"] == pytest.approx(0.01, rel=0.05)


def test_a_pair_waits_for_the_clock_that_the_one_before_lowered(libraries):
    with Supervisor(libraries[0]) as supervisor:
        results = {}
        for name, limit in (("good", 50.0), ("heats", 50.0), ("slow", 50.0), ("heats ", 50.0), ("good ", 3.0)):
            outcome = supervisor.measure(request(libraries, name.strip(), settle_ms=limit))
            results[name] = outcome.reply["result"]
    assert results["good"]["settle_ms"] == 0 and results["good"]["clock_mhz"] == 2000
    assert results["heats"]["clock_mhz"] == 1500
    assert 9 <= results["slow"]["settle_ms"] <= 11 and results["slow"]["clock_mhz"] == 2000
    # Not for ever: the limit holds.
    assert 3 <= results["good "]["settle_ms"] <= 4 and results["good "]["clock_mhz"] == 1500


def test_cold_rotates_through_twice_the_cache_and_warm_does_not(libraries):
    with Supervisor(libraries[0]) as supervisor:
        cold = supervisor.measure(request(libraries, "good")).reply["result"]
        warm = supervisor.measure(request(libraries, "good", cache=1)).reply["result"]
        more = supervisor.measure(request(libraries, "good", rotate_bytes=1 << 20)).reply["result"]
    llc = 1 << 16
    assert 2 * llc <= cold["rotated_bytes"] < 3 * llc
    assert (warm["copies"], warm["rotated_bytes"]) == (1, 0)
    assert more["rotated_bytes"] >= 1 << 20


def runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_worker_ends_with_its_parent(libraries):
    code = (
        "import sys, time\n"
        "from tileseer.measure.harness.process import Worker\n"
        "worker = Worker()\n"
        "worker.ask({'do': 'device', 'libraries': sys.argv[1:]}, 20)\n"
        "print(worker.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, *libraries], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    for _ in range(200):
        if not runs(pid):
            return
        time.sleep(0.05)
    os.kill(pid, 9)
    pytest.fail("the worker outlived its parent")


def test_a_worker_holds_the_lock_of_the_gpu_together_with_its_parent(libraries, tmp_path):
    held = hold_first_free({"gpu": tmp_path / "lock"}, timeout_s=1)
    with held as (_, handle, _), Supervisor(libraries[0], lock=handle) as supervisor:
        assert supervisor.measure(request(libraries, "good")).status == "ok"
        (pid,) = supervisor.pids
        assert os.readlink(f"/proc/{pid}/fd/{handle}") == str(tmp_path / "lock")


def test_before_the_first_measurement_a_worker_knows_which_kernels_support_a_problem(libraries):
    with Supervisor(libraries[0]) as supervisor:
        able, backwards, wide = (
            supervisor.supporting(libraries[1:], problem)
            for problem in ((*SHAPE, 0, 1), (*SHAPE, 1, 1), (1, 1, 128, 128, *SHAPE[4:], 0, 1))
        )
    assert able[0] == "good" and len(able) == len(set(able)) == 27
    assert (backwards, wide) == (["good_bwd_data"], [])


@pytest.mark.parametrize(
    ("kernel", "told"), [("leaves_and_dies", "SIGSEGV in phase verify"), ("leaves_and_hangs", "no answer after 3 s")]
)
def test_what_a_kernel_has_started_ends_with_its_worker(libraries, tmp_path, kernel, told):
    mark = tmp_path / "pids"
    with Supervisor(libraries[0], {"FAKE_KERNEL_MARK": str(mark)}, WorkerLimits(pair_s=3)) as supervisor:
        outcome = supervisor.measure(request(libraries, kernel))
    assert outcome.error.startswith(told)
    left = [int(pid) for pid in mark.read_text().split()]
    assert len(left) == 2 and not [pid for pid in left if runs(pid)]


def test_a_kernel_that_wants_all_memory_gets_a_part_of_it(libraries):
    with Supervisor(libraries[0], limits=WorkerLimits(pair_s=20, memory_mib=512)) as supervisor:
        outcome = supervisor.measure(request(libraries, "eats"))
        assert outcome.status in ("skipped", "crash", "unsupported") and "run_timeout" not in outcome.faults
        assert supervisor.measure(request(libraries, "good")).status == "ok"


def test_a_broken_clock_is_told_and_measured_once(libraries):
    with Supervisor(libraries[0], limits=WorkerLimits(pair_s=5)) as supervisor:
        outcome = supervisor.measure(request(libraries, "nowhere"))
    assert (outcome.status, outcome.error) == ("crash", "the driver gave nan ms: that is no time")
    json.dumps(outcome.reply, allow_nan=False)


@pytest.mark.parametrize("time_ms", [0.0, -1.0, math.nan, math.inf, 3.7e6])
@pytest.mark.parametrize("where", ["median", "sample"])
def test_what_is_no_time_is_refused_where_it_is_measured(monkeypatch, time_ms, where):
    median, samples = (time_ms, [1.0]) if where == "median" else (1.0, [1.0, time_ms])
    answer = {"code": 0, "error": "", "check": None, "result": {"median_ms": median}, "samples_ms": samples}
    with Supervisor("driver.so") as supervisor:
        monkeypatch.setattr(supervisor, "_ask", lambda request, modules: answer)
        assert supervisor.measure(request(("driver.so", "module.so"), "good")).status == "crash"


@given(st.text())
def test_any_error_text_fits_a_journal_field(text):
    assert not set(printable(text)) & set(',"\n\r\x85')
    assert printable(text).isascii() and len(printable(text)) <= 300
    assert not printable(text) or printable(text).isprintable()


@pytest.mark.parametrize("kernel", ["good", "good_bwd_data", "good_bwd_weight", "unwritten"])
def test_of_a_large_problem_a_part_is_compared_and_all_must_be_finite(libraries, kernel):
    shape = (2, 1, 16, 16, 1, 16, 16, 1, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1)  # 1.2 million multiply-adds
    outcomes = []
    for millions in (0, 1):
        with Supervisor(libraries[0]) as supervisor:
            outcomes.append(supervisor.measure(request(libraries, kernel, shape, verify_millions=millions)))
    wrong = kernel == "unwritten"
    assert [outcome.status for outcome in outcomes] == ["wrong_result" if wrong else "ok"] * 2
    assert [outcome.reply["check"]["not_finite"] for outcome in outcomes] == [wrong, wrong]
    # One in two, or the next number that divides no extent of the result.
    whole, part = (outcome.reply["check"]["elements"] for outcome in outcomes)
    assert part == -(-whole // (5 if kernel == "good_bwd_weight" else 3))
