"""``python -m tileseer``: the command line."""

import sys

from tileseer.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
