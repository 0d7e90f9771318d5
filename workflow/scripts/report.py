import json
from pathlib import Path

from tileseer.core.script import Settings, stage_script


@stage_script
def main(
    evaluation: list[Path], kernels: list[Path], dataset: Path, template: Path, page: Path, layers: Path,
    settings: Settings, call: str, workflow: Path | None = None,
) -> str:  # fmt: skip
    """Show the results of one arch as one HTML page that needs no network, and all judged layers as CSV.

    evaluation: evaluations, any order, the table of layers beside each
    kernels: kernel lists of the serving stage, any order
    dataset: dataset of one operation, which says how all were measured
    template: Jinja2 template of the page
    call: command that made the results
    """
    from tileseer.core.atomic import write_text
    from tileseer.core.cache import key
    from tileseer.core.checkout import source_of
    from tileseer.core.documents import read_document
    from tileseer.data.dataset_files import describe
    from tileseer.judge.report import layers_as_csv, read_operations, render_report
    from tileseer.serve.provenance import SOURCES
    from tileseer.serve.serving_files import Kernels

    # No input: a page that is restored names the commit of the run that made it, whose code and inputs were the same.
    source, digest = source_of(workflow or Path(), SOURCES), key(json.dumps(settings, sort_keys=True))
    operations = read_operations(evaluation, [read_document(path, Kernels) for path in kernels])
    recording, _ = describe(dataset)
    write_text(layers, layers_as_csv(operations))
    write_text(page, render_report(operations, recording, template, call, source, digest, layers.name))
    names = ", ".join(one.name for one in operations)
    return f"{names} shown in {page} ({recording.kind} times)"
