"""Run the networks of a zoo file and write the tables of their layers (make problems)."""

import argparse
import sys
from pathlib import Path

from tileseer.core.errors import reports_user_errors
from zoo import entries, run, tables


@reports_user_errors
def main() -> None:
    """Crawl, write, and say how many runs failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zoo", type=Path, required=True, help="zoo file: which networks run on which inputs")
    parser.add_argument("--output", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    args = parser.parse_args()
    named = entries.load(args.zoo)
    networks = tables.network_rows(named)
    result = run.crawl_all(named, args.jobs, lambda line: print(line, file=sys.stderr))
    tables.write(args.output, networks, result.layers, result.left_out)
    failed = sum(not count for *_, count in result.left_out)
    print(f"{args.output}: {len(result.layers)} layers of {len(networks)} networks; {failed} runs failed")


if __name__ == "__main__":
    raise SystemExit(main())
