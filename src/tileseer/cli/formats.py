"""The formats of ``tileseer import`` and ``tileseer export``: modules of the libraries whose formats they are."""

import argparse
import importlib
from collections.abc import Mapping

from tileseer.libraries import registry

IMPORTERS = {word: name for library in registry.installed() for word, name in library.importers.items()}
"""Modules that read times that others measured, by the word of the format."""
EXPORTERS = {word: name for library in registry.installed() for word, name in library.exporters.items()}
"""Modules that write the choices of models for other programs."""


def examples_of(modules: Mapping[str, str]) -> list[str]:
    """Return the calls that the modules show."""
    return [example for name in modules.values() for example in importlib.import_module(name).EXAMPLES]


def add_formats(parser: argparse.ArgumentParser, modules: Mapping[str, str]) -> None:
    """Declare a subcommand a format, with the arguments that its module declares."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="FORMAT")
    for word, name in modules.items():
        module = importlib.import_module(name)
        own = actions.add_parser(word, help=module.SUMMARY)
        module.configure(own)
        own.set_defaults(run=module.run)


def run(args: argparse.Namespace) -> int:
    """Do what the module of the format does."""
    status: int = args.run(args)
    return status
