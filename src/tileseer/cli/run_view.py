"""What a run of the workflow shows while it runs: on a terminal a live table, elsewhere a line a job."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tileseer.core import events
from tileseer.core.errors import printed
from tileseer.core.progress import duration, rate_text

SILENT_S = 10.0
"""Without a terminal: after so long without a line, one says what is at work."""
ENDED = ("computed", "restored")


@dataclass
class Job:
    """One job of the run."""

    log: str
    stage: str
    of: str
    does: str
    begun: float = field(default_factory=time.monotonic)
    state: str = "begin"
    progress: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its stage, arch, operation and chunk."""
        return f"{self.stage} {self.of}".strip()

    def cells(self) -> list[str]:
        """Stage, operation, what it does now, how much of it, rate, time left."""
        told = self.progress
        if not told:
            return [self.stage, self.of, self.does, "", "", f"{duration(time.monotonic() - self.begun)} so far"]
        left = "" if told["left_s"] is None else duration(told["left_s"])
        rate = rate_text(told["rate"]) if told["rate"] else ""
        return [self.stage, self.of, told["now"], f"{told['done']:,}/{told['total']:,} {told['unit']}", rate, left]


class Jobs:
    """The state of a run, read from its events."""

    def __init__(self, path: Path) -> None:
        self.planned: int | None = None
        self.arch = ""
        self._jobs: dict[str, Job] = {}
        self._path, self._at = path, 0

    def read(self) -> Iterator[tuple[str, str]]:
        """Read what is new; give state and line of what there is to say of it."""
        for end, event in events.read(self._path, self._at):
            self._at = end
            yield from self._take(event)

    def unfinished(self) -> list[Job]:
        """Jobs that began and did not end well."""
        return [job for job in self._jobs.values() if job.state not in ENDED]

    def count(self, state: str) -> int:
        """How many jobs are in a state."""
        return sum(job.state == state for job in self._jobs.values())

    def done(self) -> int:
        """How many jobs have ended well."""
        return sum(map(self.count, ENDED))

    def _take(self, event: dict[str, Any]) -> Iterator[tuple[str, str]]:
        state, log = event["state"], event["job"]
        if state == "run":
            self.arch = event["arch"]
        elif state == "plan":
            self.planned = event["jobs"]
            if event["told"]:
                yield state, event["told"].rstrip()
        elif state == "begin":
            self._jobs[log] = Job(log, event["stage"], event["of"], event["does"])
        elif state == "progress":
            self._jobs[log].progress = event
        elif state in ENDED:
            job = self._jobs[log]
            job.state = state
            took = duration(time.monotonic() - job.begun)
            yield state, f"[{self.done()}/{self.planned}] {job.name}: {event['told']} ({took})"


class View(Jobs):
    """A run that is shown on standard error: a context."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._begun = self._spoken = time.monotonic()
        console = Console(stderr=True)
        self._live = Live(console=console, refresh_per_second=4) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.update("")
            self._live.stop()

    def look(self) -> None:
        """Read what is new and show it."""
        for state, line in self.read():
            if state == "plan" or not self._live:
                self._say(line)
        if self._live:
            self._live.update(self._table())
        elif time.monotonic() - self._spoken >= SILENT_S:
            working = "; ".join(" ".join(filter(None, job.cells())) for job in self.unfinished())
            self._say(f"at work: {working or 'Snakemake looks for what is to be made'}")

    def _say(self, line: str) -> None:
        self._spoken = time.monotonic()
        print(printed(line), file=sys.stderr, flush=True)

    def _table(self) -> Table:
        spent = duration(time.monotonic() - self._begun)
        if self.planned is None:
            title = f"looking for what is to be made, {spent}"
        else:
            counts = f"{self.count('computed'):,} computed, {self.count('restored'):,} restored unchanged"
            title = f"{self.done():,} of {self.planned:,} jobs done, {counts}, {spent}"
        table = Table(title=title, title_justify="left", box=None, expand=True)
        for name in ("stage", "of", "now", "done", "rate", "left"):
            table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=2 if name in ("of", "now") else 1)
        for job in self.unfinished():
            table.add_row(*job.cells())
        return table
