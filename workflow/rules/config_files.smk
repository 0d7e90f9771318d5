# Snakemake keeps the last of two equal keys, and runs what a template in a configuration says: so the files are looked
# at before it reads them.
import os
import sys
from pathlib import Path

# A Snakefile that was copied with its src runs that code; one that was installed, the package that brings it.
SRC = Path((lambda: 0).__code__.co_filename).resolve().parents[2] / "src"
if SRC.is_dir():
    sys.path.insert(0, str(SRC))

from tileseer.core.errors import UserError, lines_of
from tileseer.core.places import find_file
from tileseer.core.tables import check_config_file

# That of the working folder, or the workflow's own.
CONFIG_FILE = str(find_file(Path("config/config.yaml")))
# What the call names beside it, for the commands of the closing summary.
CALLED_WITH = [os.path.relpath(path) for path in workflow.configfiles]
try:
    for path in map(Path, [CONFIG_FILE, *workflow.configfiles]):
        if path.exists():
            check_config_file(path)
except UserError as error:
    # The last line on the screen.
    raise SystemExit(lines_of(error)) from None
