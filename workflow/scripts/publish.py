from __future__ import annotations

import json
from pathlib import Path

from tileseer.core.stage import Input, Output, Place, Settings, commit_of_code, stage


@stage(workflow=commit_of_code)
def main(
    training: list[Input], validation: list[Input], serving: list[Input], models: Output, arch: str = "",
    operations: list[str] = (), made_from: list[Input] = (), compiler: str = "{}", workflow: Input | None = None,
    files: list[Place] = (), history: Place | None = None, settings: Settings = "{}",
) -> str:  # fmt: skip
    """Publish the trained and validated models of one arch as the directory that a client loads.

    validation: reports of the validation stage, any order
    training: folders that the model stage wrote
    serving: folders of the serving stage, any order
    models: model directory to write
    operations: those that made_from is about
    made_from: tables that the models were made from, as many for each operation, its dataset first
    compiler: what compiled the kernels as JSON, for the provenance
    workflow: folder of the Snakefile, to name its commit
    files: what stages read and none made, for the provenance
    history: file that each publication is appended to
    """
    from tileseer.model import index as published
    from tileseer.publish import history as publications
    from tileseer.publish import model_folder, provenance

    # First, so that a damaged history stops the stage before anything is published.
    earlier = publications.read(history) if history else []
    told = None
    if made_from:
        compiled_by, folder = json.loads(compiler), workflow or Path()
        told = provenance.collect(arch, settings, compiled_by, operations, made_from, folder, files)
    index = model_folder.publish(training, validation, serving, models, told)
    published.verify(models)
    if history and told:
        publications.append(history, earlier, index, validation, told)
    return f"published {', '.join(index.operations)}; device kind: {index.device_kind}"
