"""Check the arch specification and write it in two forms: normalised JSON, and a Python module of its own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tileseer.core.atomic import write_text
from tileseer.core.errors import reports_user_errors
from tileseer.gpu.arch import ArchSpecs, render_json
from tileseer.gpu.arch_render import render_python


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Write both forms; nothing is written if the source is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="table of arch facts (JSON)")
    parser.add_argument("--template", type=Path, required=True, help="Jinja2 template of the Python module")
    parser.add_argument("--out-json", type=Path, required=True, help="normalised JSON to write")
    parser.add_argument("--out-python", type=Path, required=True, help="Python module to write")
    options = parser.parse_args(argv)

    specs = ArchSpecs.load(options.source)
    module = render_python(specs, options.template)
    write_text(options.out_json, render_json(specs), sealed=True)
    write_text(options.out_python, module)


if __name__ == "__main__":
    raise SystemExit(main())
