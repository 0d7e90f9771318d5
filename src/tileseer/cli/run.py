"""``tileseer run``: run the workflow and show what it does, one line a job at work."""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from tileseer.cli import options
from tileseer.cli.run_view import View
from tileseer.core import documents, events
from tileseer.core.errors import UserError, printed
from tileseer.publish import history
from tileseer.validation import verdict
from tileseer.validation.schema import Validation

EXAMPLES = (
    "tileseer run",
    "tileseer run --arch gfx950_mi355x",
    "tileseer run results/models/sm_90 --cores 4",
    "tileseer run -n",
)
TAKES_MORE = True
"""What the parser does not know is Snakemake's."""
LOOK_EVERY_S = 0.2
LAST_LINES = 20
QUIET = ("--quiet", "rules", "host", "--nocolor")
OWN_CORES = ("-c", "--cores", "-j", "--jobs", "--profile", "--workflow-profile", "-e", "--executor")
"""Flags after which this command does not choose how many jobs run side by side."""
ARCH = re.compile(r"results/(?:models|reports)/(\w+)")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.usage = "tileseer run [TARGET ...] [--arch ARCH] [--json] [flags of snakemake]"
    parser.add_argument("--arch", help="make the models and the report of this arch (default: that of the config)")
    parser.epilog = (
        "TARGET is a file or a rule as snakemake takes them; without one and without --arch, the models and the report "
        "of the config. All cores are used unless --cores says otherwise. Every flag of snakemake works: -n lists the "
        "jobs, --configfile and --workflow-profile change the run."
    )


def run(args: argparse.Namespace, words: Sequence[str]) -> int:
    """Call Snakemake, show its jobs, and end with what was made, how good it is and what to do next."""
    if importlib.util.find_spec("snakemake") is None:
        raise UserError("the packages of the workflow are missing: pip install 'tileseer[workflow]'")
    if not (Path("Snakefile").exists() or {"-s", "--snakefile"} & set(words)):
        raise UserError("Snakefile: there is none in this folder; go to the checkout, or use tileseer init FOLDER")
    targets = [f"results/models/{args.arch}", f"results/reports/{args.arch}.html"] if args.arch else []
    if targets and words and not words[0].startswith("-"):
        raise UserError(f"--arch {args.arch} and {words[0]}: give one of them, an arch or a target")
    chosen = any(word.startswith(flag) for word in words for flag in OWN_CORES)
    cores = () if chosen else ("--cores", "all")
    command = [sys.executable, "-m", "snakemake", *QUIET, *cores, *targets, *words]
    # The jobs call `python`: this one, also where its environment is not active.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=os.environ | {"PATH": path})
        view = View(Path(".snakemake", events.FILE.format(process.pid)))
        with view:
            try:
                while process.poll() is None:
                    view.look()
                    time.sleep(LOOK_EVERY_S)
            except KeyboardInterrupt:
                # Snakemake got the signal as well: it ends its jobs and removes what is half made.
                process.wait()
                raise
            view.look()
        if view.planned is None and not _nothing_to_do(err):
            # A dry run, a graph, a mistake in the configuration: what Snakemake says is the answer.
            _copy(out, sys.stdout)
            _copy(err, sys.stderr)
            return process.returncode
        if process.returncode:
            return _failed(view, err, process.returncode)
    return _ended(args, view, [*targets, *words])


def _nothing_to_do(err: IO[bytes]) -> bool:
    err.seek(0)
    return b"Nothing to be done" in err.read()


def _copy(source: IO[bytes], to: IO[str]) -> None:
    source.seek(0)
    to.write(source.read().decode(errors="replace"))
    to.flush()


def _failed(view: View, err: IO[bytes], status: int) -> int:
    """Show the last lines of every job that did not end well, and say how many these are."""
    failed = view.unfinished()
    for job in failed:
        path = Path(job.log)
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        shown = [f"    {line}" for line in lines[-LAST_LINES:]] or ["    it wrote nothing; was it killed?"]
        print("\n".join([f"{job.name} failed; the end of {job.log}:", *map(printed, shown)]), file=sys.stderr)
    if failed:
        names = ", ".join(job.name for job in failed)
        print(f"error: {len(failed)} jobs failed: {names}; mend it and run again: what is made stays", file=sys.stderr)
    else:
        _copy(err, sys.stderr)
    return status


def _ended(args: argparse.Namespace, view: View, words: Sequence[str]) -> int:
    archs = list(dict.fromkeys(found for word in words for found in ARCH.findall(word)))
    if not archs and (not words or words[0].startswith("-")):
        archs = [view.arch]
    made: list[dict[str, Any]] = [_made(arch) for arch in archs]
    lines = [line for one in made for line in _lines(one)]
    content = {"computed": view.count("computed"), "restored": view.count("restored"), "made": made}
    counts = f"{content['computed']:,} jobs computed, {content['restored']:,} restored unchanged"
    return options.answer(args, content, lines or [f"made: {' '.join(words)} ({counts})"])


def _made(arch: str) -> dict[str, Any]:
    """What there is of an arch; None where it is not there."""
    models, report = Path("results/models", arch), Path(f"results/reports/{arch}.html")
    reports = sorted(Path("results/validation", arch).glob("*.json")) if models.exists() else []
    validated = [documents.read(path, Validation) for path in reports]
    figures = {report.operation: history.figures(report) for report in validated}
    published = [one for one in history.read(Path("results/history.jsonl")) if one.arch == arch]
    return {
        "arch": arch,
        "models": models if models.exists() else None,
        "report": report if report.exists() else None,
        "operations": {
            report.operation: figures[report.operation].model_dump() | {"verdict": verdict.words(report)}
            for report in validated
        },
        "since": history.since(published, figures),
        "next": f"tileseer select {models} --problem {options.EXAMPLE}" if models.exists() else "tileseer run",
    }


def _lines(made: dict[str, Any]) -> Iterator[str]:
    good = "; ".join(
        f"{name} {figures['mean']:.1f} % of the fastest on {figures['n_problems']:,} unseen problems, without a model "
        f"{figures['without_model']:.1f}: {figures['verdict']}"
        for name, figures in made["operations"].items()
    )
    yield f"models:   {made['models'] or 'not made'}"
    yield f"report:   {made['report'] or 'not made; tileseer run --arch ' + made['arch']}"
    yield f"how good: {good or 'not known'}"
    if made["since"]:
        yield f"since:    {made['since']}"
    yield f"next:     {made['next']}"
