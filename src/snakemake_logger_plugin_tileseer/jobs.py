"""The jobs of one run: which are at work, what the last line of each log says, and how they ended."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.table import Table

RESTORED = "unchanged, restored"
"""How the last line of a job's log ends when the stage store had its outputs (``tileseer.core.script``)."""
SETTINGS_RULE = "stage_file"
"""The rule that writes the settings of each stage: no stage, and no line of the view."""
TAIL_BYTES = 10_000
TAIL_LINES = 20


@dataclass
class Job:
    """One job of the run; ``state`` is running, computed, restored or failed."""

    rule: str
    name: str
    reason: str
    log: Path | None
    state: str = "running"
    begun: float = field(default_factory=time.time)

    @property
    def is_shown(self) -> bool:
        """Whether the view has lines about it."""
        return self.rule != SETTINGS_RULE

    def tail(self) -> list[str]:
        """The last lines of the log; none before the job, or the cluster's disk, has written it."""
        try:
            with open(self.log or os.devnull, "rb") as stream:
                if self.log and os.fstat(stream.fileno()).st_mtime < self.begun - 1:
                    return []  # Of an earlier run.
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL_BYTES))
                return stream.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
        except FileNotFoundError:
            return []

    def last_line(self) -> str:
        """What the job said last."""
        return next((line for line in reversed(self.tail()) if line.strip()), "")

    def elapsed(self) -> str:
        """Time since its begin."""
        seconds = round(time.time() - self.begun)
        return f"{seconds} s" if seconds < 100 else str(timedelta(seconds=seconds))


class Jobs:
    """The jobs of one run by Snakemake's number."""

    def __init__(self) -> None:
        self.total = 0
        self._jobs: dict[int, Job] = {}

    def begin(self, record: Mapping[str, Any]) -> Job:
        """Add the job of an event ``JOB_INFO``; a job that is tried again begins again."""
        wildcards = [f"chunk {value}" if name == "chunk" else value for name, value in record["wildcards"].items()]
        rule, log = record["rule_name"], next(map(Path, record["log"]), None)
        job = Job(rule, " ".join([rule, *wildcards]), _first_reason(record["reason"]), log)
        self._jobs[record["jobid"]] = job
        return job

    def finish(self, number: int) -> str:
        """A job has ended well; return the line to show, if any."""
        job = self._jobs[number]
        line = job.last_line()
        job.state = "restored" if line.endswith(RESTORED) else "computed"
        done = sum(job.state in ("computed", "restored") for job in self._jobs.values())
        return f"[{done}/{self.total}] {line or job.name} ({job.elapsed()})" if job.is_shown else ""

    def fail(self, record: Mapping[str, Any]) -> str:
        """A job has failed; return the lines to show, with the end of its log."""
        job = self._jobs[record["jobid"]]
        job.state = "failed"
        if record["rule_msg"]:
            return f"{job.name} failed: {record['rule_msg']}"
        tail = job.tail() or ["it wrote nothing; was it killed?"]
        return "\n".join([f"{job.name} failed; the end of {job.log}:", *(f"    {line}" for line in tail)])

    def counts(self) -> dict[str, int]:
        """How many stages were computed and restored; the target ``all`` is none, and has no log."""
        states = [job.state for job in self._jobs.values() if job.log and job.is_shown]
        return {state: states.count(state) for state in ("computed", "restored")}

    def closing_lines(self) -> list[str]:
        """What to say at the end of a run."""
        counts = self.counts()
        lines = [f"stages: {counts['computed']:,} computed, {counts['restored']:,} restored unchanged"]
        failed = [job.name for job in self._jobs.values() if job.state == "failed"]
        if failed:
            names = ", ".join(failed)
            lines.append(f"error: {len(failed)} jobs failed: {names}; fix it and run again; completed stages are kept")
        return lines

    def at_work(self) -> str:
        """The jobs at work and what they do, in one line."""
        return "; ".join(job.last_line() or f"{job.name} ({job.elapsed()})" for job in self._running())

    def table(self) -> Table:
        """The jobs at work as a table, below the number of those that are done."""
        counts = self.counts()
        done = sum(job.state in ("computed", "restored") for job in self._jobs.values())
        title = (
            f"{done:,} of {self.total:,} jobs done: "
            f"{counts['computed']:,} computed, {counts['restored']:,} restored unchanged"
        )
        table = Table(title=title, title_justify="left", box=None, expand=True)
        for name, ratio in (("job", 2), ("time", 1), ("what it does", 4)):
            table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=ratio)
        for job in self._running():
            table.add_row(job.name, job.elapsed(), printed(job.last_line()))
        return table

    def _running(self) -> list[Job]:
        return [job for job in list(self._jobs.values()) if job.state == "running" and job.is_shown]


def _first_reason(text: str) -> str:
    """The first of Snakemake's reasons for a job, without its list of files."""
    return text.partition(";")[0].partition(":")[0]


def printed(text: str) -> str:
    """A job's text as a terminal may get it: control characters as escapes, but for line ends."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
