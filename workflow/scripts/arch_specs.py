from pathlib import Path

from tileseer.core.script import stage_script


@stage_script
def main(source: Path, json: Path) -> str:
    """Check the facts about GPU targets, and write them as the one text that all equal tables have.

    source: table of arch facts (JSON)
    """
    from tileseer.core.atomic import write_text
    from tileseer.gpus.arch import ArchSpecs, render_json

    specs = ArchSpecs.load(source)
    write_text(json, render_json(specs))
    return f"the facts of {len(specs.archs)} archs are checked"
