"""Which toolchain the settings ask for. A new one is one function here and one word in ``settings/compile.py``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tilewright.cache import open_cache
from tilewright.devices.coefficients import Coefficients
from tilewright.hardware import Hardware
from tilewright.settings.cache import CacheSettings
from tilewright.settings.compile import CkSettings, CompileSettings
from tilewright.toolchain import ck_tree, compiler
from tilewright.toolchain.base import Toolchain
from tilewright.toolchain.ck_tree import CkTree
from tilewright.toolchain.host_check import HostCompiler
from tilewright.toolchain.none import NoToolchain


@dataclass(frozen=True)
class Target:
    """What a toolchain may ask about the GPU it builds for, and about this machine."""

    arch: str
    hardware: Hardware
    coefficients: Coefficients
    ck: CkSettings
    cache: CacheSettings


def make(settings: CompileSettings, target: Target) -> Toolchain:
    """Return the toolchain of the settings; a ``UserError`` says what is missing on this machine."""
    return _MAKERS[settings.toolchain](settings, target)


def fingerprint(settings: CompileSettings, ck: CkSettings) -> str:
    """Return what results of the toolchain depend on outside of the workflow: compiler and CK tree.

    It changes with every header of the tree, more often than results do: the compile stage runs again, and finds in
    the cache what is as it was.
    """
    if settings.toolchain == "none":
        return "none"
    found = compiler.find(settings)
    return hashlib.sha256(f"{found.version}\n{CkTree(ck_tree.find(ck)).whole_digest()}".encode()).hexdigest()[:16]


def host_compiler(settings: CompileSettings, ck: CkSettings, cache: CacheSettings, native: Path) -> HostCompiler:
    """Return what asks the compiled library's own host-side checks; ``native`` is the folder of hip_stand_in.cpp."""
    store = open_cache(cache.folder, cache.max_gib)
    return HostCompiler(compiler.find(settings), CkTree(ck_tree.find(ck)), settings, native, store)


def _none(settings: CompileSettings, target: Target) -> Toolchain:
    return NoToolchain(target.hardware, target.coefficients)


def _hipcc(settings: CompileSettings, target: Target) -> Toolchain:
    # Imported here: it needs the packages of the extra "workflow", and most runs compile nothing.
    from tilewright.toolchain.hipcc import HipccToolchain

    store = open_cache(target.cache.folder, target.cache.max_gib)
    tree = CkTree(ck_tree.find(target.ck))
    return HipccToolchain(compiler.find(settings), tree, settings, target.hardware, store)


_MAKERS: dict[str, Callable[[CompileSettings, Target], Toolchain]] = {"none": _none, "hipcc": _hipcc}
