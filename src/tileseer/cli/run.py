"""``tileseer run``: call Snakemake with the view ``tileseer``."""

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tileseer.core import places
from tileseer.core.errors import UserError

EXAMPLES = (
    "tileseer run",
    "tileseer run --arch gfx950_mi355x",
    "tileseer run results/models/sm_90 --cores 4",
    "tileseer run -n",
)
TAKES_MORE = True
"""What the parser does not know is Snakemake's."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.usage = "tileseer run [--arch ARCH] [words of snakemake]"
    parser.add_argument("--arch", help="make the models and the report of this arch (default: that of the config)")
    parser.epilog = (
        "Every other word is Snakemake's: files to make, -n to list the jobs, --cores 4, --configfile FILE. "
        "The profile of the folder (profiles/default) has the rest."
    )


def run(args: argparse.Namespace, words: Sequence[str]) -> NoReturn:
    """Become Snakemake, with its view ``tileseer``."""
    if importlib.util.find_spec("snakemake") is None:
        raise UserError(f"the packages of the workflow are missing: {places.install('workflow')}")
    targets = [f"results/models/{args.arch}", f"results/reports/{args.arch}.html"] if args.arch else []
    # The jobs call `python`: this one, also where its environment is not active.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    command = [sys.executable, "-m", "snakemake", *targets, "--logger=tileseer", *words]
    os.execve(sys.executable, command, os.environ | {"PATH": path})
