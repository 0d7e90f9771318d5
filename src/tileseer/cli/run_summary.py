"""What a run of the workflow prints last: what it made, what its times are worth, how good the picks are."""

import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from tileseer.cli import options
from tileseer.core.documents import read_document
from tileseer.core.errors import UserError, plain_output
from tileseer.core.reading import read_utf8
from tileseer.judge.evaluation import Evaluation
from tileseer.judge.verdict import meaning_of_times, next_step, verdict_words
from tileseer.learn import model_files
from tileseer.libraries.library import INSTALLED, WAYS
from tileseer.serve.model_page import figures_of, read_evaluations

COLUMNS = ("mean", "P10", "best of 2", "time over the fastest")


def print_summary(arch: str, name: str, call: str, with_models: bool, stops: Collection[str] = ()) -> None:
    """Print what a run made of an arch, how good it is and what to do next.

    ``name`` is that of the folder of its models and of its report, ``call`` the command that makes both. Without
    models the run was for the report alone, whatever models are on the disk. ``stops``: where the call ended the run.
    """
    with plain_output():
        try:
            print(*lines_of(arch, name, call, with_models, stops), sep="\n", flush=True)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)


def lines_of(arch: str, name: str, call: str, with_models: bool, stops: Collection[str] = ()) -> Iterator[str]:
    """Yield these lines."""
    if stops:
        yield f"made:     results, for {arch}, as far as the call lets ({', '.join(sorted(stops))})"
        yield f"models:   not part of this run; {call}"
        return
    models, report = Path("results/models", name), Path(f"results/reports/{name}.html")
    if with_models:
        evaluations = read_evaluations(models, model_files.read_index(models))
    else:
        judged = sorted(Path("results/evaluation", arch).glob("*.json"))
        evaluations = {path.stem: read_document(path, Evaluation) for path in judged}
    first = next(iter(evaluations.values()))
    made = models if with_models else f"not part of this run; {call}"
    yield f"models:   {made} ({first.device_kind} times of {first.device})"
    yield f"report:   {report if report.exists() else f'not made; {call}'}"
    yield "picks:    efficiency, % of the fastest candidate, and speed relative to what runs without the model"
    yield from (f"          {line}" for line in options.table_lines(list(map(_figures, evaluations.values()))))
    for operation, one in evaluations.items():
        yield f"verdict:  {operation}: {verdict_words(one)}"
    yield f"          {meaning_of_times(first.device_kind, first.device)}"
    text, command = next_step(arch, evaluations.values(), call, name)
    yield f"next:     {text}:"
    yield f"          {command}"
    for path in INSTALLED.glob(f"*/{arch}/{WAYS}"):
        yield "          on this machine, for the version that is installed:"
        yield from (f"          {line}" for line in read_utf8(path).splitlines())


def _figures(one: Evaluation) -> dict[str, str]:
    figures, worst = figures_of(one), "worst network" if one.networks else "worst layer"
    speeds = {f"x {name}": f"{speed:.3f}" for name, speed in one.speeds.items()}
    return {"operation": one.operation, **{name: figures[name] for name in (*COLUMNS, worst)}, **speeds}
