"""Which toolchain the settings ask for. A new one is one function here and one word in ``settings/compile.py``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.devices.coefficients import Coefficients
from tilewright.hardware import Hardware
from tilewright.settings.compile import CompileSettings
from tilewright.toolchain.base import Toolchain
from tilewright.toolchain.none import NoToolchain


@dataclass(frozen=True)
class Target:
    """What a toolchain may ask about the GPU it builds for."""

    arch: str
    hardware: Hardware
    coefficients: Coefficients


def make(settings: CompileSettings, target: Target) -> Toolchain:
    """Return the toolchain of the settings; a ``UserError`` says what is missing on this machine."""
    return _MAKERS[settings.toolchain](settings, target)


def _none(settings: CompileSettings, target: Target) -> Toolchain:
    return NoToolchain(target.hardware, target.coefficients)


_MAKERS: dict[str, Callable[[CompileSettings, Target], Toolchain]] = {"none": _none}
