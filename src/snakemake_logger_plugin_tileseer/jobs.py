"""The jobs of one run: which are at work, what the last line of each log says, and how they ended."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.table import Table

TAIL_BYTES = 10_000
TAIL_LINES = 20


@dataclass
class Job:
    """One job of the run; ``state`` is running, done or failed."""

    name: str
    reason: str
    log: Path | None
    state: str = "running"
    begun: float = field(default_factory=time.time)

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
        self.interrupted = False
        """By the user: jobs that fail from then on were ended with it."""
        self._jobs: dict[int, Job] = {}

    def begin(self, record: Mapping[str, Any]) -> Job:
        """Add the job of an event ``JOB_INFO``; a job that is tried again begins again."""
        wildcards = [f"chunk {value}" if name == "chunk" else value for name, value in record["wildcards"].items()]
        rule, log = record["rule_name"], next(map(Path, record["log"]), None)
        job = Job(" ".join([rule, *wildcards]), _first_reason(record["reason"]), log)
        self._jobs[record["jobid"]] = job
        return job

    def __contains__(self, number: int) -> bool:
        """Whether a job of this number began."""
        return number in self._jobs

    def finish(self, number: int) -> str:
        """A job has ended well; return the line to show, if any."""
        job = self._jobs[number]
        job.state = "done"
        return f"[{self.done()}/{self.total}] {job.last_line() or job.name} ({job.elapsed()})"

    def fail(self, record: Mapping[str, Any]) -> str:
        """A job has failed; return the lines to show, with the end of its log."""
        job = self._jobs[record["jobid"]]
        job.state = "failed"
        if self.interrupted:
            return ""
        if record["rule_msg"]:
            return f"{job.name} failed: {record['rule_msg']}"
        tail = job.tail() or ["it wrote nothing; was it killed?"]
        return "\n".join([f"{job.name} failed; the end of {job.log}:", *(f"    {line}" for line in tail)])

    def done(self) -> int:
        """How many jobs have ended well."""
        return sum(job.state == "done" for job in self._jobs.values())

    def closing_line(self) -> str:
        """What to say at the end of a run in which jobs failed; empty if none did."""
        if self.interrupted:
            return f"interrupted: {self.done()} of {self.total} jobs are done; the same command goes on from there"
        failed = [job.name for job in self._jobs.values() if job.state == "failed"]
        return f"error: {count_jobs(len(failed))} failed: {', '.join(failed)}; fix it and run again" if failed else ""

    def at_work(self) -> str:
        """The jobs at work and what they do, in one line."""
        return "; ".join(job.last_line() or f"{job.name} ({job.elapsed()})" for job in self._running())

    def table(self) -> Table:
        """The jobs at work as a table, below the number of those that are done."""
        title = f"{self.done():,} of {self.total:,} jobs done"
        table = Table(title=title, title_justify="left", box=None, expand=True)
        for name, ratio in (("job", 2), ("time", 1), ("what it does", 4)):
            table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=ratio)
        for job in self._running():
            table.add_row(job.name, job.elapsed(), printed(job.last_line()))
        return table

    def _running(self) -> list[Job]:
        return [job for job in list(self._jobs.values()) if job.state == "running"]


def _first_reason(text: str) -> str:
    """The first of Snakemake's reasons for a job, without its list of files."""
    return text.partition(";")[0].partition(":")[0]


def count_jobs(number: int) -> str:
    """So many jobs, in words."""
    return "1 job" if number == 1 else f"{number:,} jobs"


def printed(text: str) -> str:
    """A job's text as a terminal may get it: control characters as escapes, but for line ends."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
