"""What a run of the workflow prints last: which models are on disk, what their times are worth, how good they are."""

import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tileseer.cli import options
from tileseer.core.errors import UserError, plain_output
from tileseer.gpus.hardware import target
from tileseer.kernels.libraries import library_of_arch
from tileseer.learn import model_files
from tileseer.measure.harness.telemetry import boards
from tileseer.problems.problem import EXAMPLE
from tileseer.serve import publication
from tileseer.serve.model_page import (
    figures_of,
    libraries_of,
    meaning,
    measuring_command,
    read_evaluations,
)
from tileseer.serve.verdict import verdict_words


def print_summary(archs: Iterable[str], configfiles: Sequence[str] = ()) -> None:
    """Print what is on disk of each arch, how good it is and what to do next; ``configfiles``: of the call."""
    words = "".join(f" --configfile {shlex.quote(path)}" for path in configfiles)
    with plain_output():
        for arch in archs:
            try:
                print(*lines_of(arch, words), sep="\n", flush=True)
            except UserError as error:
                print(f"error: {error}", file=sys.stderr)


def lines_of(arch: str, words: str = "") -> Iterator[str]:
    """Yield the summary of an arch: these models speak, whatever the last run was for; ``words`` go behind commands."""
    models, report = Path("results/models", arch), Path(f"results/reports/{arch}.html")
    shown = report if report.exists() else f"not made; tileseer run --arch {arch}{words}"
    if not (models / model_files.INDEX).is_file():
        yield f"models: missing: {models}"
        yield f"report:   {shown}"
        yield f"next:     tileseer run --arch {arch}{words}"
        return
    index = model_files.read_index(models)
    evaluations = read_evaluations(models, index)
    digest = publication.digest_of_models(models)
    published = [one for one in publication.read_history(Path("results/history.jsonl")) if one.arch == index.arch]
    last = next((f", published {one.time}" for one in reversed(published) if one.models_sha256 == digest), "")
    yield f"models:   {models} ({index.device_kind} times of {index.device}{last})"
    yield f"report:   {shown}"
    if evaluations:
        yield "how good: efficiency of the picks that ship, %"
        rows = [{"operation": name, **figures_of(one)} for name, one in evaluations.items()]
        yield from (f"          {line}" for line in options.table_lines(rows))
        libraries = {name: libraries_of(one) for name, one in evaluations.items()}
        yield from (f"          {name}: {words}" for name, words in libraries.items() if words)
    if since := publication.changes_since_last(published, digest):
        yield f"since:    {since}"
    for name, one in evaluations.items():
        yield f"verdict:  {name}: {verdict_words(one)}"
    yield f"          {meaning(index)}"
    if gpu := unused_gpu(index):
        yield f"your GPU: this machine has a GPU of this arch, which these models were not measured on: {gpu}"
    yield f"next:     tileseer select {models} --problem {EXAMPLE}"


def unused_gpu(index: model_files.Index) -> str | None:
    """Return the command that measures a visible GPU of the arch, if these models are not of its times."""
    command = measuring_command(index.arch)
    measured_with = library_of_arch(index.arch).measured_with
    if index.device_kind == "measured" or command is None or measured_with is None:
        return None
    try:
        visible = {board.arch for board in boards(measured_with[0], warn=False)}
    except UserError:
        # A driver that does not answer: nothing here needs its GPU.
        return None
    return command if target(index.arch).removesuffix("a") in visible else None
