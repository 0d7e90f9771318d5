"""What ``tileseer run`` prints last: which models are on disk, what their times are worth, how good what ships is."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tileseer.cli import options
from tileseer.core.errors import UserError
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
from tileseer.serve.verdict import faults, verdict_words


def summary_of(arch: str) -> dict[str, Any]:
    """What exists of an arch; None where it does not."""
    models, report = Path("results/models", arch), Path(f"results/reports/{arch}.html")
    exists = (models / model_files.INDEX).is_file()
    return {
        "arch": arch,
        "models": models if exists else None,
        "report": report if report.exists() else None,
        **(_published(models) if exists else {}),
        "next": f"tileseer select {models} --problem {EXAMPLE}" if exists else f"tileseer run --arch {arch}",
    }


def _published(models: Path) -> dict[str, Any]:
    """The models that are on disk: these speak, whatever the last run was for."""
    index = model_files.read_index(models)
    evaluations = read_evaluations(models, index)
    digest = publication.digest_of_models(models)
    published = [one for one in publication.read_history(Path("results/history.jsonl")) if one.arch == index.arch]
    last = next((one.time for one in reversed(published) if one.models_sha256 == digest), None)
    return {
        "device": index.device,
        "device_kind": index.device_kind,
        "meaning": meaning(index),
        "published": last,
        "operations": {
            name: one.model_dump(mode="json") | {"good": not list(faults(one)), "verdict": verdict_words(one)}
            for name, one in evaluations.items()
        },
        "figures": {name: figures_of(one) for name, one in evaluations.items()},
        "libraries": {name: words for name, one in evaluations.items() if (words := libraries_of(one))},
        "since": publication.changes_since_last(published, digest),
        "gpu": unused_gpu(index),
    }


def unused_gpu(index: model_files.Index) -> str | None:
    """The command that measures a GPU of the arch that is visible here, if these models are not of its times."""
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


def lines_of(made: Mapping[str, Any]) -> Iterator[str]:
    """The summary of an arch as lines; the verdict is the last but for what to do next."""
    if made["models"] is None:
        yield f"models: missing: results/models/{made['arch']}"
    else:
        when = f", published {made['published']}" if made["published"] else ""
        yield f"models:   {made['models']} ({made['device_kind']} times of {made['device']}{when})"
    yield f"report:   {made['report'] or 'not made; tileseer run --arch ' + made['arch']}"
    if made.get("figures"):
        yield "how good: efficiency of the picks that ship, %"
        rows = [{"operation": name, **figures} for name, figures in made["figures"].items()]
        yield from (f"          {line}" for line in options.table_lines(rows))
        yield from (f"          {name}: {words}" for name, words in made["libraries"].items())
    if made.get("since"):
        yield f"since:    {made['since']}"
    for name, one in made.get("operations", {}).items():
        yield f"verdict:  {name}: {one['verdict']}"
    if made["models"] is not None:
        yield f"          {made['meaning']}"
    if made.get("gpu"):
        yield f"your GPU: this machine has a GPU of this arch, which these models were not measured on: {made['gpu']}"
    yield f"next:     {made['next']}"
