"""``tileseer run``: run the workflow and say what was made, how good it is and what to do next."""

import argparse
import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import yaml

from tileseer.cli import options
from tileseer.cli.run_summary import lines_of, summary_of
from tileseer.cli.run_words import Words
from tileseer.core import atomic, places
from tileseer.core.errors import UserError
from tileseer.core.tables import check_config_file

EXAMPLES = (
    "tileseer run",
    "tileseer run --arch gfx950_mi355x",
    "tileseer run results/models/sm_90 --cores 4",
    "tileseer run -n",
)
TAKES_MORE = True
"""What the parser does not know is Snakemake's."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals after which a run is to end."""
ARCH = re.compile(r"results/(?:models|reports)/(\w+)")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.usage = "tileseer run [TARGET ...] [--arch ARCH] [--json] [flags of snakemake]"
    parser.add_argument("--arch", help="make the models and the report of this arch (default: that of the config)")
    parser.epilog = (
        "TARGET is a file or a rule as snakemake takes them; without one and without --arch, the models and the report "
        "of the config. All cores are used unless --cores limits them. Every flag of snakemake works: -n lists the "
        "jobs, --configfile and --workflow-profile change the run. "
        "--config takes YAML: benchmark.seed=3 model='{seed: 2}'."
    )


def run(args: argparse.Namespace, words: Sequence[str]) -> int:
    """Call Snakemake with its view ``tileseer``; at the end of a run, print what exists of each arch."""
    if importlib.util.find_spec("snakemake") is None:
        raise UserError(f"the packages of the workflow are missing: {places.install('workflow')}")
    call = Words.parse(words)
    if args.arch and call.targets:
        raise UserError(f"--arch {args.arch} and {call.targets[0]}: write only one of them, an arch or a target")
    call.check()
    of_arch = [f"results/models/{args.arch}", f"results/reports/{args.arch}.html"] if args.arch else []
    targets = [*of_arch, *call.targets]
    cores = () if call.chooses_cores else ("--cores", "all")
    # The jobs call `python`: this one, also where its environment is not active.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    with (
        tempfile.TemporaryDirectory() as folder,
        Path(folder, "out").open("w+b") as out,
        _config_flags(call) as config,
    ):
        view = ["--logger", "tileseer", "--logger-tileseer-summary", f"{folder}/summary.json"]
        command = [sys.executable, "-m", "snakemake", *view, *cores, *config, *call.flags, "--", *targets]
        status = _call(command, out, os.environ | {"PATH": path})
        written = Path(folder, "summary.json")
        summary = json.loads(written.read_text(encoding="utf-8")) if written.exists() else {"is_run": False}
        if not summary.pop("is_run"):
            # A dry run or a graph: what Snakemake prints is the answer. In a run its jobs print what their logs hold.
            out.seek(0)
            shutil.copyfileobj(out, sys.stdout.buffer)
            sys.stdout.flush()
            return status
    return status or _ended(args, summary, [*targets, *(word for word in words if word not in targets)])


@contextlib.contextmanager
def _config_flags(call: Words) -> Iterator[list[str]]:
    """Flags for the configuration: its files, and one more for what ``--config`` sets.

    That one is in the folder of the run, where the jobs of a cluster can read it.
    """
    files, settings = call.config_files, call.settings
    own = Path(".snakemake", f"tileseer.config.{os.getpid()}.yaml").absolute()
    try:
        if settings:
            atomic.write_text(own, yaml.safe_dump(settings))
            check_config_file(own)
            files.append(own)
        yield ["--configfile", *map(str, files)] if files else []
    finally:
        own.unlink(missing_ok=True)


def _call(command: Sequence[str], out: IO[bytes], environment: Mapping[str, str]) -> int:
    """Exit status of Snakemake; ``KeyboardInterrupt`` when it has ended after a signal to this process.

    It and its jobs have a session of their own: so they are interrupted once, whether the signal was for all that the
    terminal runs or for this process alone. Snakemake then ends its jobs and removes what is half made.
    """
    groups: list[int] = []
    received: list[int] = []

    def send(number: int) -> None:
        for group in groups:
            # It may have ended this moment.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, number)

    def pass_on(number: int, _: object) -> None:
        if number in ENDING:
            received.append(number)
            send(signal.SIGINT)
        else:
            send(signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            send(signal.SIGCONT)

    with _handled((*ENDING, signal.SIGTSTP), pass_on):
        process = subprocess.Popen(command, stdout=out, env=environment, start_new_session=True)
        groups.append(process.pid)
        if received:
            send(signal.SIGINT)
        process.wait()
    if received:
        raise KeyboardInterrupt
    return process.returncode


@contextlib.contextmanager
def _handled(signals: Sequence[signal.Signals], handler: Callable[[int, object], None]) -> Iterator[None]:
    """Handle signals, but for those that are ignored, as under nohup: a child that begins here takes all of them."""
    before = {number: signal.getsignal(number) for number in signals}
    try:
        for number, action in before.items():
            signal.signal(number, handler if action is not signal.SIG_IGN else lambda *_: None)
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)


def _ended(args: argparse.Namespace, counts: dict[str, int], words: Sequence[str]) -> int:
    archs = list(dict.fromkeys(arch for word in words for arch in ARCH.findall(word)))
    if not archs and (not words or words[0].startswith("-")):
        archs = [_configured_arch(words)]
    made = [summary_of(arch) for arch in archs]
    lines = [line for one in made for line in lines_of(one)]
    return options.answer(args, {**counts, "made": made}, lines or [f"made: {' '.join(words)}"])


def _configured_arch(words: Sequence[str]) -> str:
    return Words.parse(words).arch
