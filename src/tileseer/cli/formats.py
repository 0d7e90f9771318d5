"""The formats of ``tileseer import`` and ``tileseer export``: modules of the libraries whose formats they are."""

import argparse
import importlib
from collections.abc import Mapping
from types import ModuleType

from tileseer.libraries import registry


def importers() -> dict[str, ModuleType]:
    """Return what reads times that others measured, by the word of the format."""
    return _modules([library.importers for library in registry.installed()])


def exporters() -> dict[str, ModuleType]:
    """Return what writes the choices of models for other programs, by the word of the format."""
    return _modules([library.exporters for library in registry.installed()])


def _modules(listed: list[Mapping[str, str]]) -> dict[str, ModuleType]:
    return {word: importlib.import_module(name) for own in listed for word, name in own.items()}


def add_formats(parser: argparse.ArgumentParser, modules: Mapping[str, ModuleType]) -> None:
    """Declare a subcommand a format, with the arguments that its module declares."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="FORMAT")
    for word, module in modules.items():
        own = actions.add_parser(word, help=module.SUMMARY)
        module.configure(own)
        own.set_defaults(run=module.run)


def run(args: argparse.Namespace) -> int:
    """Do what the module of the format does."""
    status: int = args.run(args)
    return status
