"""Snakemake's output as ``tileseer run`` shows it: ``snakemake --logger tileseer``.

On a terminal a table of the jobs at work, elsewhere a line for each job that has ended, and one after a silence.
What a job does is the last line of its log. A dry run lists the jobs.

Snakemake imports this package before it reads the Snakefile, which may bring a ``tileseer`` of its own: nothing here
imports ``tileseer``.
"""

import logging
import re
import threading

from rich.console import Console
from rich.live import Live
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_tileseer.jobs import Jobs, count_jobs, printed

SILENT_S = 10.0
"""Without a terminal: after so long without a line, one says what is at work."""
HIDDEN = (
    "CalledProcessError in", "Exiting because a job execution failed", "At least one job did not complete",
    "Cannot restore ",
)  # fmt: skip
"""In errors of Snakemake that say nothing beside the end of the log of a job that failed."""
TARGET = "all"
"""Rule of the default target."""
INTERRUPTED = "Terminating processes on user request", "Will exit after finishing"
"""What Snakemake says first after Ctrl-C, and when it is asked to end."""
OF_SNAKEFILE = re.compile(r'(?:\w*Error|\w*Exception) in file "[^\n]*", line \d+:\n(.*?)(?=\n  File "|\Z)', re.DOTALL)
"""An error that the Snakefile raises on purpose, and where it does."""
NO_RULE = re.compile(r"No rule to produce (\S+)")
OF_USERS = ("WorkflowError", "MissingRuleException")
"""Kinds of Snakemake's errors that are a user's mistake."""
OURS = re.compile(r'File "[^"]*(/(src|site-packages)/tileseer/|\.smk"|Snakefile")')
"""A line of a traceback in our code; where there is none, Snakemake did not understand what it was given."""


class LogHandler(LogHandlerBase):
    """Shows the records of one call of Snakemake on standard error, those of a dry run on standard output."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = True
    has_formatter = True
    needs_rulegraph = False

    def __post_init__(self) -> None:
        """Called by the base class at the end of its constructor."""
        self._jobs = Jobs()
        self._console = Console(stderr=not self.common_settings.dryrun, soft_wrap=True, highlight=False, markup=False)
        self._live: Live | None = None
        self._ended = threading.Event()
        self._spoke = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Take what a record says of the run, and show it."""
        event = getattr(record, "event", None)
        text = record.getMessage()
        if event == LogEvent.RUN_INFO:
            # The default target does nothing of its own.
            self._begin(record.stats["total"] - record.stats.get(TARGET, 0))  # type: ignore[attr-defined]
        elif event == LogEvent.JOB_INFO and record.rule_name != TARGET:  # type: ignore[attr-defined]
            job = self._jobs.begin(vars(record))
            if self.common_settings.dryrun:
                self._say(f"{job.name}: {job.reason}")
        elif event == LogEvent.JOB_FINISHED and record.job_id in self._jobs:  # type: ignore[attr-defined]
            self._say(self._jobs.finish(record.job_id))  # type: ignore[attr-defined]
            if self._jobs.done() == self._jobs.total:
                # What the workflow prints at its end is the last on the screen.
                self._end()
        elif event == LogEvent.JOB_ERROR:
            self._say(self._jobs.fail(vars(record)))
        elif text.startswith(INTERRUPTED):
            if text.startswith(INTERRUPTED[1]) and not self._jobs.interrupted:
                self._say("asked to end: waiting for the jobs at work; Ctrl-C ends them too")
            self._jobs.interrupted = True
        elif _is_shown(record.levelno, text) and not self._jobs.interrupted:
            self._say(_in_one_line(text))

    def close(self) -> None:
        """End the view; say which jobs failed, or how many would run."""
        if not self._ended.is_set():
            self._end()
            if self.common_settings.dryrun and self._jobs.total:
                self._say(f"{count_jobs(self._jobs.total)} would run")
        super().close()

    def _end(self) -> None:
        """Stop the table and the lines after a silence."""
        self._ended.set()
        if self._live:
            self._live.stop()
        self._say(self._jobs.closing_line())

    def _begin(self, total: int) -> None:
        self._jobs.total = total
        if self.common_settings.dryrun or self._ended.is_set():
            return
        if self._console.is_terminal:
            self._live = Live(console=self._console, get_renderable=self._jobs.table, transient=True)
            self._live.start()
        else:
            threading.Thread(target=self._end_silence, daemon=True).start()

    def _end_silence(self) -> None:
        while not self._ended.is_set():
            if not self._spoke.wait(SILENT_S) and not self._ended.is_set():
                self._say(f"at work: {self._jobs.at_work() or 'nothing yet'}")
            self._spoke.clear()

    def _say(self, text: str) -> None:
        if text:
            self._spoke.set()
            self._console.print(printed(text), soft_wrap=True, highlight=False, markup=False)


def _in_one_line(text: str) -> str:
    """An error that the rules or the command line lead to, without where Snakemake met it."""
    if "Traceback (most recent call last):" in text and not OURS.search(text):
        return f"error: {text.rstrip().splitlines()[-1].partition(': ')[2]}"
    if text.startswith("WorkflowError in file ") and (match := OF_SNAKEFILE.match(text)):
        return "\n".join(f"error: {line}" for line in match[1].splitlines())
    if not any(f"{kind}:\n" in text for kind in OF_USERS):
        return text
    if missing := NO_RULE.search(text):
        return (
            f"error: nothing makes {missing[1]}; paths are relative to the folder of the run, such as "
            "results/models/ARCH or results/reports/ARCH.html, with an arch such as gfx950"
        )
    lines = text.partition("\nWildcards:")[0].partition("\nTraceback")[0].splitlines()
    reasons = [line.strip() for line in lines if not re.fullmatch(r"\s*\w*(Error|Exception)( in .*)?:", line)]
    return f"error: {' '.join(reasons)}"


def _is_shown(level: int, text: str) -> bool:
    """Whether to show what Snakemake says besides its events."""
    if level >= logging.WARNING:
        return not any(phrase in text for phrase in HIDDEN)
    return text.startswith(("Nothing to be done", "Would delete ", "Deleting "))
