"""What is measured of one case, which is a convolution in one direction and data type, and in which order.

Every plan that the library offers: built, its result compared with fp32, a few short samples. Then the fastest ones
contend in turns with the library's own first choice and with PyTorch. The rules are those of docs/gpu.md:
random order, cold operands, a warm clock, poisoned outputs, a limit to the workspace and to the time.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

DEFAULT = "torch"
BENCHMARK = "torch_benchmark"


class Refused(Exception):
    """A plan that the library offers, but cannot build or launch."""


class Bench(Protocol):
    """The library and the operands of one case. A contender is the number of a plan, or a word for PyTorch."""

    def plans(self) -> list[str]:
        """Give the names of the plans that the library offers, in its order, the best first as it thinks."""

    def build(self, plan: int) -> int:
        """Build a plan; the bytes of its workspace. ``Refused`` if it cannot be built."""

    def check(self, contender: int | str) -> tuple[float, float]:
        """Launch once over a poisoned output and compare with fp32.

        The relative error (Frobenius) and the largest one of an element in tolerances; both NaN if one is not finite.
        """

    def row(self, contender: int | str, launches: int) -> tuple[float, float]:
        """Microseconds of one of ``launches`` launches in a row, and the clock before it in MHz."""

    def settle(self) -> float:
        """Wait until the clock is warm; its MHz."""

    most_launches: int
    """Launches in a row whose operands are all cold."""


@dataclass(frozen=True)
class Limits:
    """How much is spent on what."""

    sample_us: float = 60.0
    """Length of a row."""
    samples: int = 3
    more_samples: int = 2
    """Of a plan that is close to the best so far."""
    hopeless: float = 3.0
    """A plan whose first launch takes so many times the best so far keeps that one sample."""
    close: float = 1.3
    contenders: int = 10
    turns: int = 9
    least_turns: int = 5
    contest_s: float = 0.8
    """Wall time after which the contest ends, if it had ``least_turns``."""
    case_s: float = 6.0
    """Wall time after which no further plan is tried."""
    workspace: int = 4 << 30
    """Plans that need more are not measured."""
    error: float = 1e-2
    worst: float = 4.0


@dataclass
class Plan:
    """What became of one plan."""

    rank: int
    """Place in the library's own order."""
    name: str
    status: str = "skipped"
    """As in a dataset: ok, unsupported, wrong_result, crash, skipped."""
    us: list[float] = field(default_factory=list)
    brief: bool = False
    """Hopeless: one sample."""
    workspace: int = -1
    error: float | None = None
    worst: float | None = None
    build_ms: float = 0.0
    mhz: float = 0.0
    """Lowest clock before a sample."""
    told: str = ""

    @property
    def median(self) -> float:
        """Median of the samples in microseconds, infinite without any."""
        return statistics.median(self.us) if self.us and self.status == "ok" else math.inf


def measure(
    bench: Bench,
    limits: Limits,
    seed: str,
    barred: Collection[int] = (),
    rivals: Sequence[str] = (DEFAULT,),
    say: Callable[[str], None] = lambda phase: None,
    choose: Callable[[Sequence[str]], int] | None = None,
) -> dict[str, Any]:
    """Measure one case. ``barred``: ranks of plans that killed a worker before. ``say`` is told what is in flight.

    With ``choose``, only the plan that it picks of the names, if any, and the library's own choice are measured.
    """
    begin = time.monotonic()
    stream = random.Random(seed)
    say("plans")
    plans = _distinct(bench.plans())
    pick = None if choose is None else choose([plan.name for plan in plans])
    tried = plans if pick is None else [plan for place, plan in enumerate(plans) if place == pick]
    bench.settle()
    best = math.inf
    for plan in stream.sample(tried, len(tried)):
        if plan.rank in barred:
            plan.status, plan.told = "crash", "it ended the worker"
        elif time.monotonic() - begin < limits.case_s:
            say(f"plan {plan.rank}")
            _try(bench, plan, limits, best)
            best = min(best, plan.median)
    timed = time.monotonic()
    contest = _contest(bench, plans, limits, stream, rivals, barred, say)
    return {
        **({} if pick is None else {"pick": None if pick < 0 else plans[pick].rank, "offered": len(plans)}),
        "plans": [_row(plan) for plan in plans if choose is None or plan.us or plan in tried],
        "contest": contest,
        "seconds": [round(timed - begin, 3), round(time.monotonic() - timed, 3)],
    }


def _distinct(names: Sequence[str]) -> list[Plan]:
    """One plan a name: the library's lists overlap."""
    seen: dict[str, Plan] = {}
    for rank, name in enumerate(names):
        seen.setdefault(name, Plan(rank, name))
    return list(seen.values())


def _try(bench: Bench, plan: Plan, limits: Limits, best: float) -> None:
    """Build, check and time one plan."""
    begin = time.monotonic()
    try:
        plan.workspace = bench.build(plan.rank)
        plan.build_ms = round(1000 * (time.monotonic() - begin), 2)
        if plan.workspace > limits.workspace:
            plan.told = f"it needs a workspace of {plan.workspace} bytes"
            return
        plan.error, plan.worst = bench.check(plan.rank)
        # Written so that NaN fails.
        if not (plan.error <= limits.error and plan.worst <= limits.worst):
            plan.status, plan.told = "wrong_result", "not finite" if math.isnan(plan.error) else "too far from fp32"
            return
        _sample(bench, plan, limits, best)
        plan.status = "ok"
    except Refused as refusal:
        plan.status, plan.told, plan.us = "unsupported", str(refusal)[:160], []


def _sample(bench: Bench, plan: Plan, limits: Limits, best: float) -> None:
    """Take the samples of one plan."""
    first, plan.mhz = bench.row(plan.rank, 1)
    if first > limits.hopeless * best:
        plan.us, plan.brief = [first], True
        return
    launches = row_length(bench, limits, first)
    while len(plan.us) < limits.samples + limits.more_samples:
        us, mhz = bench.row(plan.rank, launches)
        plan.us.append(us)
        plan.mhz = min(plan.mhz, mhz)
        if len(plan.us) == limits.samples and statistics.median(plan.us) > limits.close * best:
            return


def row_length(bench: Bench, limits: Limits, us: float) -> int:
    """Launches of a row, from the time of one."""
    return max(1, min(bench.most_launches, math.ceil(limits.sample_us / max(us, 1e-3))))


def _contest(
    bench: Bench,
    plans: Sequence[Plan],
    limits: Limits,
    stream: random.Random,
    rivals: Sequence[str],
    barred: Collection[int],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Time the fastest plans, the library's first one and PyTorch in turns, every turn in another order."""
    say("contest")
    ranked = sorted((plan for plan in plans if plan.status == "ok"), key=lambda plan: plan.median)
    near = [plan for plan in ranked if plan.median <= limits.close * ranked[0].median]
    chosen: dict[int | str, float] = {plan.rank: plan.median for plan in near[: limits.contenders]}
    first = _own_choice(bench, plans, limits, barred, say)
    if first is not None:
        chosen.setdefault(first.rank, first.median)
    told: dict[str, str] = {}
    errors: dict[str, tuple[float, float]] = {}
    for rival in rivals:
        say(rival)
        try:
            errors[rival] = bench.check(rival)
            chosen[rival] = bench.row(rival, 1)[0]
        except Refused as refusal:
            told[rival] = str(refusal)[:160]
    launches = {contender: row_length(bench, limits, us) for contender, us in chosen.items()}
    say("contest")
    bench.settle()
    for contender in chosen:
        bench.row(contender, launches[contender])
    times: dict[int | str, list[float]] = {contender: [] for contender in chosen}
    lowest, begin, turns = math.inf, time.monotonic(), 0
    while turns < limits.turns and (turns < limits.least_turns or time.monotonic() - begin < limits.contest_s):
        for contender in stream.sample(list(chosen), len(chosen)):
            us, mhz = bench.row(contender, launches[contender])
            times[contender].append(round(us, 3))
            lowest = min(lowest, mhz)
        turns += 1
    return {
        "first": None if first is None else first.rank,
        "us": {str(contender): row for contender, row in times.items()},
        "mhz": None if math.isinf(lowest) else round(lowest),
        "errors": {rival: [_number(value) for value in pair] for rival, pair in errors.items()},
        "told": told,
    }


def _own_choice(
    bench: Bench, plans: Sequence[Plan], limits: Limits, barred: Collection[int], say: Callable[[str], None]
) -> Plan | None:
    """The first plan in the library's order that runs and is right, measured if the time was out before."""
    for plan in plans:
        if plan.rank in barred:
            continue
        if plan.status == "skipped" and plan.workspace < 0:
            say(f"plan {plan.rank}")
            _try(bench, plan, limits, math.inf)
        if plan.status == "ok":
            return plan
    return None


def _row(plan: Plan) -> list[Any]:
    """A plan in the journal: see ``COLUMNS``."""
    return [
        plan.rank, plan.name, plan.status, [round(us, 3) for us in plan.us], int(plan.brief), plan.workspace,
        _number(plan.error), _number(plan.worst), plan.build_ms, round(plan.mhz), plan.told,
    ]  # fmt: skip


COLUMNS = ("rank", "name", "status", "us", "brief", "workspace", "error", "worst", "build_ms", "mhz", "told")


def _number(value: float | None) -> float | None:
    """A number as JSON has it: four digits, none for NaN."""
    return None if value is None or math.isnan(value) else float(f"{value:.4g}")
