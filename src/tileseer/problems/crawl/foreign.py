"""Imports of the packages that models come from."""

import importlib
import sys
import types


def do_without_operators_of_torchvision() -> None:
    """Let torchvision be imported beside a torch that it was not compiled for.

    Its operators are missing then, and registering their shapes fails. No convolution needs them.
    """
    name = "torchvision._meta_registrations"
    sys.modules.setdefault(name, types.ModuleType(name))


def module(name: str) -> types.ModuleType:
    """Import a module; if that fails for want of torchvision's operators, once more without them."""
    try:
        return importlib.import_module(name)
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    do_without_operators_of_torchvision()
    return importlib.import_module(name)
