"""The ``tilewright`` command: a table of subcommands, each a module that is imported when it is used."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable

from tilewright.errors import reports_user_errors

COMMANDS = {
    "bench": "measure a few kernels on one convolution",
    "cache": "say what the shared cache holds, make room in it, check it",
    "codegen": "list, count or emit the kernels of a rule set, or emit one kernel",
    "compare": "say what changed between two datasets or the picks of two models",
    "crawl": "find the convolutions of a network and write them as a table of problems",
    "doctor": "say what this machine has of what the workflow can use, and how to get the rest",
    "explain": "show what every rule says of a kernel",
    "score": "score any kernels on any problems with a published model",
    "select": "rank the kernels of a published model for one convolution",
    "status": "say what of a workflow is done and how long the rest takes",
}
"""Subcommand to the line that ``--help`` shows; the module is ``tilewright.commands.NAME``, with - as _."""


@reports_user_errors
def main(argv: list[str] | None = None) -> int | None:
    """Run one subcommand; return its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    # Only the wanted module is imported: LightGBM and pandas take a second that --help does not need.
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    parser = argparse.ArgumentParser(prog="tilewright", description=__doc__.split(":")[0] + ".")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run: Callable[[argparse.Namespace], int | None]
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        if name == wanted:
            module = importlib.import_module(f"tilewright.commands.{name.replace('-', '_')}")
            module.configure(subparser)
            run = module.run
    args = parser.parse_args(arguments)
    return run(args)


if __name__ == "__main__":
    raise SystemExit(main())
