"""The device for real GPUs, driven through the host backend with fake kernels: statuses, drift, order, details."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import host_library
import numpy as np
import pandas as pd
import pytest
from journals import read_details

from tileseer.core.errors import UserError
from tileseer.facts.benchmark import TIMINGS, Timing
from tileseer.measure.device import STATUSES
from tileseer.measure.gpu_device import GpuDevice
from tileseer.measure.harness.supervisor import Supervisor, WorkerLimits
from tileseer.measure.harness.telemetry import Reading
from tileseer.problems import problem
from tileseer.problems.problem import Problem

TIMING = {
    "min_time_ms": 0.5, "max_noise": 0.005, "budget_ms": 100.0, "sample_ms": 0.1, "warmup_change": 0.01,
    "settle_ms": 0.0, "min_samples": 4, "max_samples": 50,
}  # fmt: skip
METHOD = TIMING | {"verify": "pair", "sentinel_every": 8, "recovery_s": 0.01, "hopeless_factor": 5.0}
PROBLEMS = problem.problem_frame(
    [Problem.from_dims("forward", "fp32", N=1, C=8, K=8, G=2, Hi=size, Wi=5, Y=3, X=3, pad_h=1) for size in (4, 5, 6)]
)


def kernels(*names):
    return pd.DataFrame({"kernel": names, "kernel_id": [f"{i:016x}" for i in range(len(names))], "split_k": 1})


class Gpu:
    """A telemetry that tells what it is given."""

    def __init__(self, *readings):
        self.readings = list(readings)

    def read(self, own):
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]


class Modules(dict):
    """The fake kernels, by any name."""

    def get(self, kernel):
        return Path(self[""])


@contextlib.contextmanager
def device(libraries, path=None, telemetry=None, limits=WorkerLimits(pair_s=5), **method):  # noqa: B008
    driver, module = libraries
    modules = Modules({"": module})
    made = host_library.session(path, driver=driver, modules=modules)
    timing = patch.dict(TIMINGS, standard=Timing(**METHOD | method))
    with timing, Supervisor(driver, limits=limits) as supervisor:
        yield GpuDevice(made, supervisor, telemetry or Gpu(Reading()))


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ({"backend": "hip", "arch": "gfx942:sramecc+:xnack-"}, "kernels are for gfx950; build those of gfx942: --conf"),
        ({"backend": "cuda", "arch": "sm_90"}, "the kernels are for gfx950; build those of sm_90: --config arch=sm_90"),
        ({"backend": "emulated", "arch": "emulated"}, "emulated GPU has no times"),
    ],
)
def test_another_device_than_that_of_the_kernels_is_refused(device, message):
    with pytest.raises(UserError, match=message):
        GpuDevice(host_library.session(None), SimpleNamespace(device=lambda: device), Gpu(Reading()))


def measure(gpu, names, problems=PROBLEMS):
    table = kernels(*names)
    p, c = (index.ravel() for index in np.indices((len(problems), len(names))))
    times = gpu.measure(problems, table, p, c)
    statuses = np.array([STATUSES[s] for s in times.status]).reshape(len(problems), len(names))
    return times, statuses


def test_a_fault_costs_its_pair_and_no_neighbour(libraries, tmp_path):
    with device(libraries, tmp_path / "d.csv") as gpu:
        times, statuses = measure(gpu, ["good", "segfault", "wrong", "prints", "throws", "good_bwd_data"])
    assert statuses.tolist() == [["ok", "crash", "wrong_result", "ok", "unsupported", "unsupported"]] * 3
    latency = times.latency_ms.reshape(3, 6)
    assert np.isfinite(latency[:, [0, 3]]).all() and np.isnan(latency[:, [1, 2, 4, 5]]).all()
    assert latency[:, [0, 3]] == pytest.approx(0.01, rel=0.02)
    assert times.error[1] == "SIGSEGV in phase verify"
    assert times.error[4] == "no; 'not' this one"
    assert times.non_zero.reshape(3, 6)[:, 0].tolist() == [4 * 3 * 8, 5 * 3 * 8, 6 * 3 * 8]
    pairs = [event for event in read_details(tmp_path / "d.details.jsonl") if event["event"] == "pair"]
    assert len(pairs) == 18
    assert len(pairs[0]["samples_ms"]) == pairs[0]["result"]["samples"] == times.samples[0]
    assert len(pairs[1]["faults"]) == 2


def test_the_same_seed_gives_the_same_times_and_identity(libraries):
    found = []
    for _ in range(2):
        with device(libraries) as gpu:
            found.append((gpu.identity(), measure(gpu, ["good", "noisy"])[0].latency_ms.tolist()))
    assert found[0] == found[1]
    with device(libraries, cache="warm") as gpu:
        assert gpu.identity() != found[0][0]


def test_a_hopeless_kernel_gets_one_sample(libraries):
    with device(libraries) as gpu:
        times, statuses = measure(gpu, ["good", "slow"])
    assert (statuses == "ok").all()
    assert times.samples.reshape(3, 2)[:, 1].tolist() == [1, 1, 1]
    assert times.latency_ms.reshape(3, 2)[:, 1] == pytest.approx(0.1, rel=0.01)
    assert np.isnan(times.latency_cv.reshape(3, 2)[:, 1]).all()


def test_a_kernel_that_keeps_crashing_is_given_up(libraries):
    limits = WorkerLimits(pair_s=5, kernel_faults=2)
    with device(libraries, limits=limits) as gpu:
        times, statuses = measure(gpu, ["segfault", "good"])
    assert statuses[:, 0].tolist() == ["crash", "crash", "skipped"]
    assert statuses[:, 1].tolist() == ["ok"] * 3
    assert times.error[4] == "the kernel was excluded after 2 faults"


def test_pairs_on_a_throttled_or_shared_gpu_say_so(libraries):
    slow = Reading(throttled="clock event reasons 0x40")
    with device(libraries, telemetry=Gpu(slow)) as gpu:
        times, statuses = measure(gpu, ["good", "wrong"])
    assert statuses.tolist() == [["throttled", "wrong_result"]] * 3
    assert times.error[0] == "clock event reasons 0x40"
    assert np.isnan(times.latency_ms).all()
    with device(libraries, telemetry=Gpu(Reading(foreign=2))) as gpu:
        assert measure(gpu, ["good"])[1].tolist() == [["contended"]] * 3
    # Free again at the second try.
    with device(libraries, telemetry=Gpu(Reading(foreign=2), Reading(foreign=2), Reading(foreign=0))) as gpu:
        assert measure(gpu, ["good"])[1].tolist() == [["ok"]] * 3


def test_drift_of_five_percent_is_noticed(libraries, tmp_path):
    path = tmp_path / "d.csv"
    with device(libraries, path, hopeless_factor=0.0) as gpu:
        told = [measure(gpu, ["drifts"])[0].sentinel for _ in range(20)]
    events = read_details(path.with_suffix(".details.jsonl"))
    drifts = [event for event in events if event["event"] == "drift"]
    assert drifts and all(event["lasting"] for event in drifts)
    verdicts = [event for event in events if event["event"] == "batch" and event["verdict"]]
    assert verdicts and all(1.03 < event["drift"] < 1.2 for event in verdicts)
    closed = [event["drift"] for event in events if event["event"] == "batch"]
    assert all((ratios == ratios[0]).all() and ratios[0] in closed for ratios in told)
    ratios = [event["drift"] for event in events if event["event"] == "batch"]
    assert max(ratios) == pytest.approx(1.05, abs=0.01)


@pytest.mark.parametrize(("verify", "checked"), [("pair", 3), ("class", 1)])
def test_what_is_verified(libraries, tmp_path, verify, checked):
    path = tmp_path / "d.csv"
    with device(libraries, path, verify=verify) as gpu:
        assert (measure(gpu, ["good"])[1] == "ok").all()
        # Nothing is compared twice.
        assert (measure(gpu, ["good"])[1] == "ok").all()
    assert (
        sum(event["verified"] for event in read_details(path.with_suffix(".details.jsonl")) if event["event"] == "pair")
        == checked
    )


def test_the_log_says_what_the_numbers_depend_on(libraries, tmp_path):
    path = tmp_path / "d.csv"
    with device(libraries, path) as gpu:
        identity = gpu.identity()
    (session,) = read_details(path.with_suffix(".details.jsonl"))
    assert session["identity"] == identity
    assert session["device"]["backend"] == "host" and session["device"]["version"].startswith("2.0.0+")
    assert session["method"]["timing"] == TIMING
    assert {"host", "time", "system"} <= set(session)
