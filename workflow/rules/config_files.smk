# Snakemake keeps the last of two equal keys, and runs what a template in a configuration says: so the files are looked
# at before it reads them.
import os
import shlex
import sys
from pathlib import Path

# A Snakefile that was copied with its src runs that code; one that was installed, the package that brings it.
SRC = Path((lambda: 0).__code__.co_filename).resolve().parents[2] / "src"
if SRC.is_dir():
    sys.path.insert(0, str(SRC))

from tileseer.core.errors import UserError, lines_of
from tileseer.core.places import find_file
from tileseer.facts.config import read_config_file

# That of the working folder, or the workflow's own.
CONFIG_FILE = str(find_file(Path("config/config.yaml")))
CALLED_WITH = [os.path.relpath(path) for path in workflow.configfiles]


def call_of(arch):
    """The command of this run for an arch: what report and closing lines say to call again."""
    configfiles = ["--configfile", *CALLED_WITH] if CALLED_WITH else []
    return shlex.join(["tileseer", "run", "--arch", arch, *configfiles])


try:
    for path in map(Path, [CONFIG_FILE, *workflow.configfiles]):
        if path.exists():
            read_config_file(path)
except UserError as error:
    # The last line on the screen.
    print(lines_of(error), file=sys.stderr)
    raise SystemExit(2) from None
