"""The ``tileseer`` command: a table of subcommands, each a module that is imported when it is used."""

import argparse
import importlib
import importlib.metadata
import sys
from collections.abc import Collection
from types import ModuleType
from typing import cast

from tileseer.core.errors import reports_user_errors

COMMANDS = {
    "codegen": "list or emit the kernels of a rule set",
    "crawl": "find the convolutions of a network and write them as a table of problems",
    "doctor": "list the compilers, libraries and GPUs of this machine, and how to get what is missing",
    "explain": "explain why a model picks a kernel",
    "export": "write a model's choices in the form that another program reads",
    "import": "make a recording of times that others measured",
    "init": "create a folder that runs the workflow of this package",
    "provenance": "show the origin of a published model",
    "run": "run the workflow and show what it does",
    "score": "score any kernels on any problems with a published model",
    "select": "rank the kernels of a published model for one convolution",
    "ship": "choose the fewest kernels that lose little, with their price, and write their sources",
    "tune": "time the short list of each problem once, and remember the fastest beside the model",
    "verify": "check that models, datasets, recordings or results are intact, or that kernels compute correctly",
}
"""Subcommand to the line that ``--help`` shows; the module is ``tileseer.cli.NAME``.

A module has ``configure(parser)``, ``run(args)`` and ``EXAMPLES``, calls that the help text ends with. One with
``TAKES_MORE`` gets the words that its parser does not know as a second argument."""


@reports_user_errors
def main(argv: list[str] | None = None) -> int | None:
    """Run one subcommand; return its exit status."""
    # Behind the errors, which Ctrl-C is one of.
    from tileseer.cli import options

    arguments = sys.argv[1:] if argv is None else argv
    # Only the module of the subcommand is imported: LightGBM and pandas take a second that --help does not need.
    word = next((argument for argument in arguments if not argument.startswith("-")), None)
    command_line = parser([name for name in COMMANDS if name == word])
    if not arguments:
        command_line.print_help()
        return 0
    args, rest = command_line.parse_known_args(arguments)
    options.check_paths(args)
    command = module(args.command)
    more = (rest,) if getattr(command, "TAKES_MORE", False) else ()
    return cast("int | None", command.run(args, *more))


def parser(complete: Collection[str]) -> argparse.ArgumentParser:
    """Return the parser of the command line; only the subcommands in ``complete`` have their options."""
    from tileseer.cli import options

    top = options.Parser(prog="tileseer", description=f"{(__doc__ or '').split(':')[0]}.")
    top.add_argument("--version", action="version", version=f"tileseer {importlib.metadata.version('tileseer')}")
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        if name in complete:
            command = module(name)
            command.configure(subparser)
            # What the parser of a subcommand does not know reaches that of the whole line too.
            subparser.takes_more = hasattr(command, "TAKES_MORE")
            top.takes_more |= subparser.takes_more
            for call in [] if hasattr(command, "TAKES_MORE") else options.calls(subparser):
                call.add_argument("--json", action="store_true", help="print one JSON object instead of text")
            subparser.epilog = options.epilog(subparser.epilog, command.EXAMPLES)
    return top


def module(name: str) -> ModuleType:
    """Return the module of a subcommand."""
    return importlib.import_module(f"tileseer.cli.{name}")


if __name__ == "__main__":
    raise SystemExit(main())
