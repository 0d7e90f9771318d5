from tileseer.core.script import Input, Output, stage_script


@stage_script()
def main(source: Input, template: Input, json: Output, python: Output) -> str:
    """Check the arch specification and write it in two forms: normalised JSON, and a Python module of its own.

    source: table of arch facts (JSON)
    template: Jinja2 template of the Python module
    """
    from tileseer.core.atomic import write_text
    from tileseer.gpus.arch import ArchSpecs, render_json
    from tileseer.gpus.arch_render import render_python

    specs = ArchSpecs.load(source)
    module = render_python(specs, template)
    write_text(json, render_json(specs))
    write_text(python, module)
    return f"the facts of {len(specs.archs)} archs are rendered"
