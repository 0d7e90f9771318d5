"""``tileseer init``: a folder from which the workflow of the installed package runs."""

import argparse
import shlex
from pathlib import Path

from tileseer.cli import options
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.core.places import install, workflow_folder
from tileseer.core.reading import read_utf8

COPIED = ("config/config.yaml", "profiles/default/config.yaml")
"""What a study changes. Other tables come from the package; one of the same path in the study goes before it."""
SNAKEFILE = """# The workflow of the installed tileseer, with the config of this folder. Rules of your own may follow.
from tileseer.core.places import workflow_folder


include: str(workflow_folder() / "Snakefile")


# An included file cannot name the default target.
rule everything:
    default_target: True
    input:
        rules.all.input,
"""
EXAMPLES = ("tileseer init my-study",)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the folder to create")
    parser.epilog = f"Running it needs the packages of the workflow: {install('workflow')}."


def run(args: argparse.Namespace) -> int:
    """Write a config, a Snakefile and a profile; files that exist already are an error."""
    files = {"Snakefile": SNAKEFILE}
    files |= {name: read_utf8(workflow_folder() / name) for name in COPIED}
    if args.folder.is_file() or (args.folder.is_dir() and any(args.folder.iterdir())):
        raise UserError(f"{args.folder}: exists already and is no empty folder; name a new one")
    for name, text in files.items():
        write_text(args.folder / name, text)
    steps = [f"cd {shlex.quote(str(args.folder))}", "tileseer run"]
    lines = [f"{args.folder}: {', '.join(sorted(files))}", f"Next: {' && '.join(steps)}"]
    return options.answer(args, {"folder": args.folder, "files": sorted(files), "next": steps}, lines)
