"""Files of the package that a script uses, read from the imports, wherever in a file they stand, and transitively."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

PACKAGE = "tileseer"


def used_by(script: Path, source: Path) -> list[Path]:
    """Package files that ``script`` imports, directly or through others, sorted.

    ``source`` is the folder that holds the package; the paths start with it as it was given.
    """
    return sorted(_closure(script, source) - {script})


def packages_used_by(script: Path, source: Path) -> set[str]:
    """Other packages that ``script`` and its modules import, the standard library left out."""
    roots = {name.split(".")[0] for path in _closure(script, source) for name in _imports(path, source)}
    return roots - sys.stdlib_module_names - {PACKAGE}


@cache
def version(package: str) -> str | None:
    """Version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def _closure(script: Path, source: Path) -> set[Path]:
    found = {script}
    todo = [script]
    while todo:
        names = (name for name in _imports(todo.pop(), source) if name.split(".")[0] == PACKAGE)
        new = {file for name in names for file in _files(name, source)} - found
        found |= new
        todo += new
    return found


# Most stages share most modules: read once, they are a third less for each call of Snakemake to do.
@cache
def _imports(path: Path, source: Path) -> set[str]:
    """Names that a file imports; ``from tileseer.devices import simulated`` may name a module or a member."""
    text = path.read_text()
    # ``part`` with a word imports the module of that name of a family that only the run knows: all of them.
    parts = re.findall(r'\.part\("(\w+)"\)', text)
    names = {f"{PACKAGE}.families.{folder}.{part}" for part in parts for folder in _families(source)}
    for node in _run_time_statements(ast.parse(text, filename=str(path))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


@cache
def _families(source: Path) -> list[str]:
    """Folders of the kernel families."""
    return sorted(path.parent.name for path in source.glob(f"{PACKAGE}/families/*/__init__.py"))


def _run_time_statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements of a file, however deep, without what only type checkers read."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            yield node
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                inside = getattr(node, field, [])
                todo += inside if isinstance(inside, list) else []


@cache
def _files(name: str, source: Path) -> list[Path]:
    """Files that importing ``name`` runs: the packages above it, and the module itself."""
    parts = name.split(".")
    files = [source.joinpath(*parts[:depth], "__init__.py") for depth in range(1, len(parts) + 1)]
    files.append(source.joinpath(*parts).with_suffix(".py"))
    return [file for file in files if file.is_file()]
