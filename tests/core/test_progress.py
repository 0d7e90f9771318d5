"""Progress of long work as plain lines."""

import pytest

from tileseer.core import progress
from tileseer.core.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    """The seconds that have gone by, to set."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_line_has_pairs_rate_rest_failures_and_the_best(clock):
    with Progress("gfx950", 1000, "pairs") as shown:
        clock[0] = 50.0
        shown.add(200, failed=3, best="812.5 TFLOPS")
        assert shown.text() == "200 of 1,000 pairs, 4 a second, 0:03:20 left, 3 failed, best 812.5 TFLOPS"
        shown.add(800, failed=1)
        assert shown.done == 1000 and shown.text().endswith("0 s left, 4 failed, best 812.5 TFLOPS")


def test_slow_things_are_told_by_how_long_one_takes(clock):
    shown = Progress("compile", 4, "kernels")
    clock[0] = 60.0
    shown.add(2)
    assert shown.text() == "2 of 4 kernels, 30 s each, 60 s left"


def test_a_log_gets_a_line_now_and_then(clock, capfd):
    with Progress("gfx950", 40, "pairs") as shown:
        for seconds in (1.0, 2.0, progress.LINE_EVERY_S + 2.5, progress.LINE_EVERY_S + 3.0):
            clock[0] = seconds
            shown.add(10)
    assert capfd.readouterr().err == "gfx950: 30 of 40 pairs, 4 a second, 2 s left\n"


def test_work_within_work_is_not_counted(clock, capfd):
    with Progress("train", 40, "trees") as shown, Progress("inner", 5, "parts") as inner:
        clock[0] = 10.0
        inner.add(5)
        shown.add(10)
    assert capfd.readouterr().err == "train: 10 of 40 trees, 1 a second, 30 s left\n"


@pytest.mark.parametrize(("spent", "over"), [(1.0, False), (2.0, True)])
def test_a_budget_ends(spent, over, clock):
    shown = Progress("gfx950", 10, "pairs", budget_s=2.0)
    clock[0] = spent
    shown.add()
    assert shown.is_spent is over and "of the time limit left" in shown.text()


def test_what_is_charged_to_the_budget_is_not_what_a_person_waits(clock):
    shown = Progress("gfx950", 100, "pairs", budget_s=60.0)
    clock[0] = 5.0
    shown.add(50, charged_s=20.0)
    assert shown.text() == "50 of 100 pairs, 10 a second, 5 s left, 40 s of the time limit left"


def test_a_batch_is_no_larger_than_what_the_budget_pays_for():
    shown = Progress("sm_90", 1000, "pairs", budget_s=10.0)
    assert shown.affordable(256) == 8
    shown.add(8, charged_s=2.0)
    assert shown.affordable(256) == 32 and shown.affordable(20) == 20
    shown.add(32, charged_s=8.0)
    assert shown.affordable(256) == 1
    assert Progress("sm_90", 1000, "pairs").affordable(256) == 256
