"""Candidates compared in turns: what their noise and a drift do, and what fails."""

from __future__ import annotations

import numpy as np
import pytest
from test_gpu_device import PROBLEMS, Gpu, device, kernels

from tileseer.measure import turns
from tileseer.measure.device import STATUSES, Times
from tileseer.measure.harness.telemetry import Reading


class Clock:
    """A device with noise and a drift of its clock, in units of a launch."""

    def __init__(self, true_ms, noise=0.0, drift=0.0, statuses=None):
        self.true_ms, self.noise, self.drift = np.array(true_ms), noise, drift
        self.statuses = statuses or {}
        self.draw, self.launches, self.calls = np.random.default_rng(7), 0, []

    def __call__(self, order):
        self.calls.append(order.tolist())
        at = self.launches + np.arange(len(order))
        self.launches += len(order)
        latency = self.true_ms[order] * np.exp(self.noise * self.draw.standard_normal(len(order)) + self.drift * at)
        status = np.array([STATUSES.index(self.statuses.get(number, "ok")) for number in order.tolist()], np.uint8)
        latency[status > 0] = np.nan
        samples = np.where(status == 0, 10, 0).astype(np.int32)
        return Times(status, latency, np.full(len(order), 0.02), samples, np.full(len(order), np.nan))


def test_a_drift_costs_all_of_them_the_same():
    clock = Clock([1.0, 1.01, 1.05], drift=0.002)
    compared = turns.compare(clock, 3, differs=True)
    first, later = clock.calls
    assert first == [0, 1, 2] and later == [0, 1, 2, 2, 1, 0] * turns.TURNS
    assert compared.time_ms.argmin() == 0 and compared.rounds == 5
    assert compared.time_ms[1] / compared.time_ms[0] == pytest.approx(1.01, abs=2e-3)
    # One after the other, the drift would be the difference.
    assert turns.compare(Clock([1.0, 1.001, 1.002], drift=0.002), 3, differs=True).time_ms.argmin() == 0


@pytest.mark.parametrize(("noise", "sure"), [(0.005, True), (0.02, True), (0.2, False)])
def test_timing_goes_on_until_the_comparison_is_sure_or_the_rounds_are_over(noise, sure):
    compared = turns.compare(Clock([1.0, 1.02, 1.05, 1.1], noise), 4, differs=True)
    assert (compared.noise < turns.NOISE) == sure == (compared.rounds < turns.MOST)
    expected = noise * np.sqrt(2 / compared.rounds)
    assert compared.noise == pytest.approx(expected, rel=0.5)


def test_a_device_without_a_state_is_timed_once_and_its_samples_say_the_noise():
    clock = Clock([1.0, 2.0])
    compared = turns.compare(clock, 2, differs=False)
    assert clock.calls == [[0, 1]] and compared.rounds == 1
    assert compared.noise == pytest.approx(0.02 / np.sqrt(10) * np.sqrt(2))


def test_what_fails_or_is_far_behind_is_timed_no_more():
    clock = Clock([1.0, 3.0, 1.1, 1.2], statuses={2: "crash"})
    compared = turns.compare(clock, 4, differs=True)
    assert clock.calls[0] == [0, 1, 2, 3] and set(clock.calls[1]) == {0, 3}
    assert np.isfinite(compared.time_ms).tolist() == [True, True, False, True]
    alone = turns.compare(Clock([1.0, 5.0]), 2, differs=True)
    assert alone.rounds == 1 and alone.noise == 0
    none = turns.compare(Clock([1.0], statuses={0: "wrong_result"}), 1, differs=True)
    assert np.isnan(none.time_ms).all()


def test_rounds_on_a_shared_gpu_do_not_count():
    clock = Clock([1.0, 2.0], statuses={0: "contended"})
    compared = turns.compare(clock, 2, differs=True)
    assert compared.rounds == 0 and len(clock.calls) == turns.BUSY


def test_kernels_of_a_driver_are_compared_by_its_worker(libraries):
    table, index = kernels("noisy", "good", "segfault", "slow"), PROBLEMS.iloc[[0]]
    for telemetry, rounds in ((None, 5), (Gpu(Reading(foreign=1)), 0)):
        with device(libraries, telemetry=telemetry) as gpu:

            def measure(order, gpu=gpu):
                return gpu.measure(index, table, np.zeros(len(order), int), order)

            compared = turns.compare(measure, 4, gpu.differs)
            assert compared.rounds >= rounds and bool(compared.rounds) == bool(rounds)
