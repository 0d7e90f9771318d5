"""The toolchain that the settings ask for. A new one is one row here and one word in ``settings/compile.py``."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tileseer.compile import ck_tree, compiler, cutlass_tree
from tileseer.compile.base import Toolchain
from tileseer.compile.header_tree import HeaderTree
from tileseer.compile.none import NoToolchain
from tileseer.core.cache import Cache, open_cache
from tileseer.core.errors import UserError
from tileseer.families.coefficients import Coefficients
from tileseer.families.registry import of_arch
from tileseer.gpu.hardware import Hardware
from tileseer.settings.compile import CacheSettings, CkSettings, CompileSettings, CutlassSettings

PYTHON_MIB = 512
"""Memory of a compile job itself, for its tables and the workflow's modules."""


@dataclass(frozen=True)
class Trees:
    """Where the headers are that kernels are compiled against."""

    ck: CkSettings
    cutlass: CutlassSettings


@dataclass(frozen=True)
class Target:
    """What a toolchain may ask about the GPU it builds for, and about this machine."""

    arch: str
    hardware: Hardware
    coefficients: Coefficients
    trees: Trees
    cache: CacheSettings
    native: Path
    """The folder of the launchers, workflow/native."""


TREES: dict[str, Callable[[Trees], HeaderTree]] = {
    "hipcc": lambda trees: ck_tree.tree(trees.ck),
    "nvcc": lambda trees: cutlass_tree.tree(trees.cutlass),
}
"""The headers for each compiling toolchain."""


def make(settings: CompileSettings, target: Target) -> Toolchain:
    """The toolchain of the settings; a ``UserError`` says what is missing on this machine."""
    if settings.toolchain == "none":
        return NoToolchain(target.hardware, target.coefficients)
    # Imported here: they need msgpack and pyelftools of the extra "workflow", and most runs compile nothing.
    from tileseer.compile.hipcc import HipccToolchain
    from tileseer.compile.nvcc import NvccToolchain

    tree, store = tree_of(settings, target.arch, target.trees), store_of(target.cache)
    kind = HipccToolchain if settings.toolchain == "hipcc" else NvccToolchain
    return kind(compiler.find(settings), tree, settings, store, target.native, target.hardware)


def tree_of(settings: CompileSettings, arch: str, trees: Trees) -> HeaderTree:
    """Headers that kernels of an arch are compiled against; ``UserError`` for an arch of another vendor."""
    right = of_arch(arch).toolchain
    if settings.toolchain != right:
        raise UserError(f"compile.toolchain: {settings.toolchain} builds nothing for {arch}; write {right}")
    return TREES[right](trees)


def store_of(settings: CacheSettings) -> Cache:
    """Cache that results are kept in."""
    return open_cache(settings.folder, settings.max_gib)


def fingerprint(settings: CompileSettings, trees: Trees) -> str:
    """Digest of what results depend on outside of the workflow: compiler and header tree.

    It changes with every header of the tree, more often than results do: the compile stage runs again, and finds in
    the cache what is as it was.
    """
    if settings.toolchain == "none":
        return "none"
    tree = TREES[settings.toolchain](trees).whole_digest()
    return hashlib.sha256(f"{compiler.find(settings).version}\n{tree}".encode()).hexdigest()[:16]


def describe(settings: CompileSettings, trees: Trees) -> dict[str, str | None]:
    """Toolchain, compiler and header tree for the provenance of models, without folders of this machine."""
    if settings.toolchain == "none":
        return {"toolchain": "none"}
    tree = TREES[settings.toolchain](trees)
    return {
        "toolchain": settings.toolchain,
        "compiler": compiler.find(settings).version,
        f"{tree.folder}_commit": ck_tree.commit(tree.include.parent),
        f"{tree.folder}_sha256": tree.whole_digest(),
    }


def memory_mib(settings: CompileSettings) -> int:
    """Memory that a job declares to the scheduler: the limit of its one compiler run, and Python beside it."""
    return settings.memory_mib + PYTHON_MIB if settings.toolchain == "hipcc" else PYTHON_MIB
