"""Progress of long work: how much is done, how fast, how long the rest takes, the best so far, failures.

On a terminal it is one line that changes; elsewhere, in a log, a plain line now and then. A run of the workflow gets it
as events. Work inside of work that is already counted is not counted on its own. A job that counts nothing says how
long it has worked.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Self, TextIO

from tileseer.core import events

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

FIRST = 8
"""Things that are done under a budget before the time of one is known."""
LINE_EVERY_S, EVENT_EVERY_S = 5.0, 0.5
"""Seconds between two plain lines, and between two events; work that is done sooner prints none."""
SILENT_S = 8.0
"""After so many seconds without a plain line a job says that it still works."""


class Progress:
    """A count of what is done of ``total`` things; a context."""

    _outermost: ClassVar["Progress | None"] = None
    told: ClassVar[float] = 0.0
    """When the last plain line of this process was printed."""

    def __init__(
        self, title: str, total: int, unit: str, budget_s: float | None = None, stream: TextIO | None = None
    ) -> None:
        self.done = 0
        self.failed = 0
        self._title, self._total, self._unit, self._budget_s = title, total, unit, budget_s
        self._best = ""
        self._spent_s = 0.0
        self._stream = sys.stderr if stream is None else stream
        self._begin = self._last = self._line = self._event = time.monotonic()
        self._bar: Bar | None = None

    def __enter__(self) -> Self:
        if Progress._outermost is None:
            Progress._outermost = self
            self._tell()
            if self._stream.isatty():
                # Every job imports this module, and few jobs have a terminal.
                from rich.console import Console
                from rich.progress import BarColumn, TextColumn
                from rich.progress import Progress as Bar

                columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"))
                self._bar = Bar(*columns, console=Console(file=self._stream))
                self._task = self._bar.add_task(self._title, total=self._total, told="")
                self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if Progress._outermost is self:
            Progress._outermost = None
        if self._bar is not None:
            self._bar.stop()

    def add(self, count: int = 1, failed: int = 0, best: str = "", charged_s: float | None = None) -> None:
        """Count ``count`` more; ``best`` is the best so far, with its unit.

        ``charged_s``: their part of the budget, if it is not the time since the last ones.
        """
        now = time.monotonic()
        self._spent_s += now - self._last if charged_s is None else charged_s
        self._last = now
        self.done += count
        self.failed += failed
        self._best = best or self._best
        if Progress._outermost is not self:
            return
        if now - self._event >= EVENT_EVERY_S or self.done >= self._total:
            self._event = now
            self._tell()
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, told=self.text())
        elif now - self._line >= LINE_EVERY_S:
            self._line = Progress.told = now
            print(f"{self._title}: {self.text()}", file=self._stream, flush=True)

    def affordable(self, most: int) -> int:
        """Number of further things, at least one, that the rest of the budget pays for at the rate so far."""
        if self._budget_s is None:
            return most
        if self._spent_s <= 0:
            return min(most, FIRST)
        return max(1, min(most, int((self._budget_s - self._spent_s) * self.done / self._spent_s)))

    @property
    def is_spent(self) -> bool:
        """Whether the budget is used up; never without one."""
        return self._budget_s is not None and self._spent_s >= self._budget_s

    def text(self) -> str:
        """Everything in one line."""
        words = [f"{self.done:,} of {self._total:,} {self._unit}"]
        if rate := self._rate():
            words += [rate_text(rate), f"{duration((self._total - self.done) / rate)} left"]
        if self._budget_s is not None:
            words.append(f"{duration(max(0.0, self._budget_s - self._spent_s))} of the budget left")
        words.append(f"{self.failed:,} failed")
        return ", ".join([*words, *([f"best {self._best}"] if self._best else [])])

    def _rate(self) -> float:
        """Things a second; 0 while it is unknown."""
        waited = self._last - self._begin
        return self.done / waited if waited > 0 else 0.0

    def _tell(self) -> None:
        rate = self._rate()
        left = (self._total - self.done) / rate if rate else None
        events.tell(
            "progress", now=self._title, done=self.done, total=self._total, unit=self._unit, rate=rate, left_s=left
        )


@contextmanager
def never_silent(title: str) -> Iterator[None]:
    """While it is open, print a line on standard error whenever ``SILENT_S`` went by without one of progress."""
    ended = threading.Event()
    begin = Progress.told = time.monotonic()

    def watch() -> None:
        while not ended.wait(max(0.0, Progress.told + SILENT_S - time.monotonic())):
            now = time.monotonic()
            if now - Progress.told >= SILENT_S:
                Progress.told = now
                print(f"{title}: {duration(now - begin)} so far", file=sys.stderr, flush=True)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def rate_text(rate: float) -> str:
    """Things a second, or how long one takes."""
    return f"{rate:,.0f} a second" if rate >= 1 else f"{1 / rate:,.0f} s each"


def duration(seconds: float) -> str:
    """Seconds, or from 100 of them hours, minutes and seconds."""
    return f"{seconds:.0f} s" if seconds < 100 else str(timedelta(seconds=round(seconds)))
