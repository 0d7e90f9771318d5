from pathlib import Path

from tileseer.core.script import stage_script


@stage_script
def main(source: Path, template: Path, json: Path, python: Path) -> str:
    """Check the facts about GPU targets, and write them in two forms: normalised JSON, and a Python module of its own.

    source: table of arch facts (JSON)
    template: Jinja2 template of the Python module
    """
    from tileseer.core.atomic import write_text
    from tileseer.facts.arch import ArchSpecs, render_json
    from tileseer.facts.arch_render import render_python

    specs = ArchSpecs.load(source)
    module = render_python(specs, template)
    write_text(json, render_json(specs))
    write_text(python, module)
    return f"facts of {len(specs.archs)} archs written"
