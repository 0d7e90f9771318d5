import json
from pathlib import Path

from tileseer.core.script import Settings, stage_script


@stage_script
def main(
    training: list[Path], dataset: list[Path], kernels: list[Path],
    evaluation: list[Path], template: Path, page: Path, settings: Settings, call: str,
    cudnn: list[Path] = (), workflow: Path | None = None,
) -> str:  # fmt: skip
    """Show the results of one arch as one HTML page that needs no network.

    template: Jinja2 template of the page; its scripts are beside it
    call: command that made the results
    dataset: datasets, any order
    kernels: kernel lists of the serving stage, any order
    cudnn: times of cuDNN (cudnn.csv), in folders with the name of the operation
    """
    from tileseer.core.atomic import write_text
    from tileseer.core.cache import key
    from tileseer.core.checkout import source_of
    from tileseer.report.page import render_page
    from tileseer.report.results import Inputs
    from tileseer.serve.provenance import SOURCES

    # No input: a page that is restored names the commit of the run that made it, whose code and inputs were the same.
    source = source_of(workflow or Path(), SOURCES)
    inputs = Inputs(training, dataset, kernels, evaluation, cudnn)
    shown = inputs.read(source, key(json.dumps(settings, sort_keys=True)))
    write_text(page, render_page(shown, template, call))
    names = ", ".join(one.evaluation.operation for one in shown.operations)
    return f"{names} shown in {page} ({shown.device_kind} times)"
