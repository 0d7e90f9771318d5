"""Progress of long work: how much is done, how fast, how long the rest takes, the best so far, failures.

It is a plain line on standard error now and then. In a job of the workflow that is the job's log, whose last line
the view of a run shows. Work inside of work that is already counted is not counted on its own.
"""

import sys
import time
from datetime import timedelta
from typing import ClassVar, Self

COUNT_BEFORE_RATE_IS_KNOWN = 8
"""Things that are done under a budget before the time of one is known."""
LINE_EVERY_S = 5.0
"""Seconds between two lines; work that is done sooner prints none."""


class Progress:
    """A count of what is done of ``total`` things; a context."""

    _outermost: ClassVar["Progress | None"] = None

    def __init__(self, title: str, total: int, unit: str, budget_s: float | None = None) -> None:
        self.done = 0
        self.failed = 0
        self._title, self._total, self._unit, self._budget_s = title, total, unit, budget_s
        self._best = ""
        self.spent_s = 0.0
        """Seconds that were charged so far."""
        self._begin = self._last = self._line = time.monotonic()

    def __enter__(self) -> Self:
        if Progress._outermost is None:
            Progress._outermost = self
        return self

    def __exit__(self, *error: object) -> None:
        if Progress._outermost is self:
            Progress._outermost = None

    def add(self, count: int = 1, failed: int = 0, best: str = "", charged_s: float | None = None) -> None:
        """Count ``count`` more; ``best`` is the best so far, with its unit.

        ``charged_s``: their part of the budget, if it is not the time since the last ones.
        """
        now = time.monotonic()
        self.spent_s += now - self._last if charged_s is None else charged_s
        self._last = now
        self.done += count
        self.failed += failed
        self._best = best or self._best
        if Progress._outermost is self and now - self._line >= LINE_EVERY_S:
            self._line = now
            print(f"{self._title}: {self.text()}", file=sys.stderr, flush=True)

    def affordable(self, most: int) -> int:
        """Return how many more things, at least one, the rest of the budget pays for at the rate so far."""
        if self._budget_s is None:
            return most
        if self.spent_s <= 0:
            return min(most, COUNT_BEFORE_RATE_IS_KNOWN)
        return max(1, min(most, int((self._budget_s - self.spent_s) * self.done / self.spent_s)))

    @property
    def is_spent(self) -> bool:
        """Whether the budget is used up; never without one."""
        return self._budget_s is not None and self.spent_s >= self._budget_s

    def text(self) -> str:
        """Return everything in one line."""
        words = [f"{self.done:,} of {self._total:,} {self._unit}"]
        elapsed = self._last - self._begin
        if elapsed > 0 and self.done:
            rate = self.done / elapsed
            words += [f"{rate:,.0f} a second" if rate >= 1 else f"{1 / rate:,.0f} s each"]
            words += [f"{_duration((self._total - self.done) / rate)} left"]
        if self._budget_s is not None:
            words.append(f"{_duration(max(0.0, self._budget_s - self.spent_s))} of the time limit left")
        if self.failed:
            words.append(f"{self.failed:,} failed")
        return ", ".join([*words, *([f"best {self._best}"] if self._best else [])])


def _duration(seconds: float) -> str:
    # From 100 seconds with hours and minutes.
    return f"{seconds:.0f} s" if seconds < 100 else str(timedelta(seconds=round(seconds)))
