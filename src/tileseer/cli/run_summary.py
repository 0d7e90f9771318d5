"""What a run of the workflow prints last: which models are on disk, what their times are worth, how good they are."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tileseer.cli import options
from tileseer.core.errors import UserError, plain_output
from tileseer.core.reading import read_utf8
from tileseer.judge.evaluation import Evaluation
from tileseer.judge.verdict import meaning_of_times, next_step, verdict_words
from tileseer.learn import model_files
from tileseer.libraries.library import INSTALLED, WAYS
from tileseer.serve.model_page import figures_of, read_evaluations

COLUMNS = ("mean", "P10", "best of 2", "time over the fastest")


def print_summary(calls: Mapping[str, str]) -> None:
    """Print what is on disk of each arch, how good it is and what to do next; ``calls``: the command that makes it."""
    with plain_output():
        for arch, call in calls.items():
            try:
                print(*lines_of(arch, call), sep="\n", flush=True)
            except UserError as error:
                print(f"error: {error}", file=sys.stderr)


def lines_of(arch: str, call: str) -> Iterator[str]:
    """Yield the summary of an arch: these models speak, whatever the last run was for."""
    models, report = Path("results/models", arch), Path(f"results/reports/{arch}.html")
    shown = report if report.exists() else f"not made; {call}"
    if not (models / model_files.INDEX).is_file():
        yield f"models: missing: {models}"
        yield f"report:   {shown}"
        yield f"next:     {call}"
        return
    index = model_files.read_index(models)
    evaluations = read_evaluations(models, index)
    yield f"models:   {models} ({index.device_kind} times of {index.device})"
    yield f"report:   {shown}"
    yield "picks:    efficiency, % of the fastest candidate, and speed relative to what runs without the model"
    yield from (f"          {line}" for line in options.table_lines(list(map(_figures, evaluations.values()))))
    for name, one in evaluations.items():
        yield f"verdict:  {name}: {verdict_words(one)}"
    yield f"          {meaning_of_times(index.device_kind, index.device)}"
    text, command = next_step(arch, evaluations.values(), call)
    yield f"next:     {text}:"
    yield f"          {command}"
    for path in INSTALLED.glob(f"*/{arch}/{WAYS}"):
        yield "          on this machine, for the version that is installed:"
        yield from (f"          {line}" for line in read_utf8(path).splitlines())


def _figures(one: Evaluation) -> dict[str, str]:
    figures, worst = figures_of(one), "worst network" if one.networks else "worst layer"
    speeds = {f"x {name}": f"{speed:.3f}" for name, speed in one.speeds.items()}
    return {"operation": one.operation, **{name: figures[name] for name in (*COLUMNS, worst)}, **speeds}
