import json
from pathlib import Path

from tileseer.core.script import Settings, stage_script


@stage_script
def main(
    training: list[Path], evaluation: list[Path], serving: list[Path], template: Path, models: Path,
    settings: Settings,
    arch: str = "", operations: list[str] = (), made_from: list[Path] = (), compiler: str = "{}",
    workflow: Path | None = None, files: list[Path] = (),
) -> str:  # fmt: skip
    """Publish the trained and evaluated models of one arch as the directory that a client loads.

    serving: folders of the serving stage, any order
    template: of the README.md of the directory
    models: model directory to write
    operations: those that made_from is about
    made_from: tables that the models were made from, as many for each operation, its dataset first
    compiler: what compiled the kernels as JSON, for the provenance
    files: what stages read and none made, for the provenance
    """
    from tileseer.facts.config import PublishSettings
    from tileseer.serve import provenance, publication

    replace = PublishSettings.of(settings, "publish").replace

    about = arch, settings, json.loads(compiler), operations, made_from, workflow or Path(), files
    made = provenance.collect_provenance(*about) if made_from else None
    index = publication.publish_models(training, evaluation, serving, models, made, page=template, replace=replace)
    return f"{', '.join(index.operations)} published in {models} ({index.device_kind} times)"
