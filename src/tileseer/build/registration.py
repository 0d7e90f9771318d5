"""What compiling needs of this machine: compiler, header tree and cache, as the settings ask for them."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from tileseer.build import compiler
from tileseer.build.compiler import Compiler
from tileseer.build.source_trees import HeaderTree, tree_commit, tree_of
from tileseer.core.cache import Cache, open_cache
from tileseer.core.errors import UserError
from tileseer.core.script import Settings
from tileseer.facts.compile import SECTIONS_OF_LIBRARIES, CacheSettings, CompileSettings
from tileseer.libraries.registry import library_of_arch

PYTHON_MIB = 512
"""Memory of a compile job itself, for its tables and the workflow's modules."""


def builder_parts(
    settings: Settings, arch: str, native: Path
) -> tuple[Compiler, HeaderTree, CompileSettings, Cache, Path]:
    """Return what a ``Builder`` for an arch is made of; a ``UserError`` says what is missing on this machine."""
    requested, cache = CompileSettings.of(settings, "compile"), CacheSettings.of(settings, "cache")
    library = library_of_arch(arch)
    if library.offered:
        # Nothing but the measuring driver is built, which needs no library's headers.
        program = driver_compiler(requested)
        return program, HeaderTree(native), requested, open_cache(cache.folder, cache.max_gib), native
    refuse_other_toolchain(requested, arch)
    roots = {name: section.of(settings, name).root for name, section in SECTIONS_OF_LIBRARIES.items()}
    return (
        compiler.find_compiler(requested),
        tree_of(requested.toolchain, roots),
        requested,
        open_cache(cache.folder, cache.max_gib),
        native,
    )


def refuse_other_toolchain(settings: CompileSettings, arch: str) -> None:
    """Raise a ``UserError`` where the compiler of the settings is none for an arch."""
    right = library_of_arch(arch).toolchain
    if settings.toolchain != right:
        raise UserError(f"compile.toolchain: {settings.toolchain} builds nothing for {arch}; write {right}")


def driver_compiler(settings: CompileSettings) -> Compiler:
    """Return the compiler of the measuring driver where a library offers the kernels: ``toolchain`` names none."""
    return compiler.find_compiler(settings.model_copy(update={"toolchain": "nvcc"}))


def fingerprint(settings: CompileSettings, roots: Mapping[str, str | None]) -> str:
    """Return the digest of what results depend on outside of the workflow: compiler and header tree.

    ``roots``: top folders of the libraries' trees, where the settings name them. It changes with every header of the
    tree, more often than results do: the compile stage runs again, and finds in the cache what is as it was.
    """
    if settings.toolchain == "none":
        return "none"
    tree = tree_of(settings.toolchain, roots).digest()
    used = compiler.find_compiler(settings)
    return hashlib.sha256(f"{used.version}\n{tree}\n".encode() + used.script()).hexdigest()[:16]


def describe_toolchain(settings: CompileSettings, roots: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the toolchain, compiler and header tree for the provenance of models, without folders of this machine."""
    if settings.toolchain == "none":
        return {"toolchain": "none"}
    tree = tree_of(settings.toolchain, roots)
    return {
        "toolchain": settings.toolchain,
        "compiler": compiler.find_compiler(settings).version,
        f"{tree.folder}_commit": tree_commit(tree.include.parent),
        f"{tree.folder}_sha256": tree.digest(),
    }


def memory_mib(settings: CompileSettings) -> int:
    """Return the memory that a job declares to the scheduler: that of its one compiler run, and Python's."""
    return settings.memory_mib + PYTHON_MIB if settings.toolchain != "none" else PYTHON_MIB
