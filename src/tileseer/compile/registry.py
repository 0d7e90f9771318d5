"""What compiling needs of this machine: compiler, header tree and cache, as the settings ask for them."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tileseer.compile import compiler
from tileseer.compile.compiler import Compiler
from tileseer.compile.trees import CK, CUTLASS, HeaderTree, commit
from tileseer.core.cache import Cache, open_cache
from tileseer.core.errors import UserError
from tileseer.core.stage import Settings
from tileseer.families.registry import of_arch
from tileseer.settings.compile import CacheSettings, CkSettings, CompileSettings, CutlassSettings

PYTHON_MIB = 512
"""Memory of a compile job itself, for its tables and the workflow's modules."""


@dataclass(frozen=True)
class Trees:
    """Where the headers are that kernels are compiled against."""

    ck: CkSettings
    cutlass: CutlassSettings


LIBRARIES = {"hipcc": CK, "nvcc": CUTLASS}
"""The library that each compiling toolchain is for."""


def tree_of(toolchain: str, trees: Trees) -> HeaderTree:
    """Headers that kernels of a toolchain are compiled against."""
    library = LIBRARIES[toolchain]
    return library.tree(getattr(trees, library.section).root)


def parts(settings: Settings, arch: str, native: Path) -> tuple[Compiler, HeaderTree, CompileSettings, Cache, Path]:
    """What a ``Builder`` for an arch is made of; a ``UserError`` says what is missing on this machine."""
    asked, cache = CompileSettings.of(settings, "compile"), CacheSettings.of(settings, "cache")
    right = of_arch(arch).toolchain
    if asked.toolchain != right:
        raise UserError(f"compile.toolchain: {asked.toolchain} builds nothing for {arch}; write {right}")
    trees = Trees(CkSettings.of(settings, "ck"), CutlassSettings.of(settings, "cutlass"))
    found, tree = compiler.find(asked), tree_of(right, trees)
    return found, tree, asked, open_cache(cache.folder, cache.max_gib), native


def fingerprint(settings: CompileSettings, trees: Trees) -> str:
    """Digest of what results depend on outside of the workflow: compiler and header tree.

    It changes with every header of the tree, more often than results do: the compile stage runs again, and finds in
    the cache what is as it was.
    """
    if settings.toolchain == "none":
        return "none"
    tree = tree_of(settings.toolchain, trees).whole_digest()
    return hashlib.sha256(f"{compiler.find(settings).version}\n{tree}".encode()).hexdigest()[:16]


def describe(settings: CompileSettings, trees: Trees) -> dict[str, str | None]:
    """Toolchain, compiler and header tree for the provenance of models, without folders of this machine."""
    if settings.toolchain == "none":
        return {"toolchain": "none"}
    tree = tree_of(settings.toolchain, trees)
    return {
        "toolchain": settings.toolchain,
        "compiler": compiler.find(settings).version,
        f"{tree.folder}_commit": commit(tree.include.parent),
        f"{tree.folder}_sha256": tree.whole_digest(),
    }


def memory_mib(settings: CompileSettings) -> int:
    """Memory that a job declares to the scheduler: the limit of its one compiler run, and Python beside it."""
    return settings.memory_mib + PYTHON_MIB if settings.toolchain == "hipcc" else PYTHON_MIB
