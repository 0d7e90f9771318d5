"""What the code of a script is: the syntax of the modules that it imports, however deep, and the packages they use.

A comment, a docstring or other white space is no other code. A module enters under its dotted name.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tileseer.core.places import PACKAGE

SOURCE = PACKAGE.parent
"""Folder of the package ``tileseer`` and of the emulator."""
OWN_PACKAGES = ("tileseer", "amdgpu_emulator")
SCRIPT = "__main__"
"""Name of the script among its modules."""


class Code(NamedTuple):
    """The code of a script."""

    modules: dict[str, str]
    """Digest of the syntax of each module, by its dotted name; the script itself is ``SCRIPT``."""
    packages: dict[str, str]
    """Version of each distribution that one of the modules imports."""


@cache
def code_of(script: Path) -> Code:
    """The code of a script: what an import anywhere in it, or in a module that it imports, runs."""
    files = {SCRIPT: script} | modules_of(script)
    imported = {name.split(".")[0] for path in files.values() for name in _module(path).imports}
    others = imported - sys.stdlib_module_names - {*OWN_PACKAGES}
    distributions = {name for package in others for name in _distributions().get(package, ())}
    versions = {name: importlib.metadata.version(name) for name in sorted(distributions)}
    return Code({name: _module(path).digest for name, path in sorted(files.items())}, versions)


def code_now(script: Path) -> Code:
    """The code of a script, read again."""
    for cached in (code_of, modules_of, _module, _run_by_import):
        cached.cache_clear()
    return code_of(script)


@cache
def modules_of(script: Path) -> dict[str, Path]:
    """Files of our packages that a script imports, directly or through others, by dotted name."""
    found: dict[str, Path] = {}
    todo = [script]
    while todo:
        names = (name for name in _module(todo.pop()).imports if name.split(".")[0] in OWN_PACKAGES)
        new = {module: path for name in names for module, path in _run_by_import(name) if module not in found}
        found |= new
        todo += new.values()
    return dict(sorted(found.items()))


def digest_of_modules(names: Iterable[str]) -> str:
    """Digest of the syntax of some modules of our packages."""
    lines = (f"{name} {_module(path).digest}\n" for name in sorted(names) for _, path in _run_by_import(name)[-1:])
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def path_of_module(name: str, script: Path) -> Path:
    """File of a module of ``Code``."""
    return script if name == SCRIPT else _run_by_import(name)[-1][1]


def state_of_files(paths: Iterable[Path]) -> str:
    """Digest of what the file system says of files: another one after every edit, however small, and after a touch."""
    states = ((path, path.stat()) for path in paths)
    lines = (f"{path.name} {s.st_ino} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns}\n" for path, s in states)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class _Module(NamedTuple):
    imports: frozenset[str]
    """Dotted names; of ``from tileseer.learn import fit`` both, since ``fit`` may be a module or a member."""
    digest: str


# A workflow has some twenty stages that share most modules.
@cache
def _module(path: Path) -> _Module:
    tree = ast.parse(path.read_bytes(), filename=str(path))
    names: set[str] = set()
    for node in _statements_at_run_time(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    syntax: list[str] = []
    _write_syntax(tree, syntax.append)
    return _Module(frozenset(names), hashlib.sha256("\n".join(syntax).encode()).hexdigest())


def _statements_at_run_time(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements of a file, however deep, without those that only type checkers read."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            yield node
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                inside = getattr(node, field, [])
                todo += inside if isinstance(inside, list) else []


def _write_syntax(node: object, write: Callable[[str], None]) -> None:
    """Write all that a tree holds, without texts that are statements: docstrings, and those behind attributes."""
    # ``ast.dump`` of a tree without them takes three times as long, at every call of Snakemake.
    if isinstance(node, list):
        write("[")
        for each in node:
            _write_syntax(each, write)
        write("]")
    elif not isinstance(node, ast.AST):
        write(repr(node))
    elif not _is_text(node):
        write(type(node).__name__)
        for name in node._fields:
            _write_syntax(getattr(node, name, None), write)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@cache
def _run_by_import(name: str) -> list[tuple[str, Path]]:
    """Modules that importing ``name`` runs: the packages above it, and the module itself."""
    parts = name.split(".")
    packages = [
        (".".join(parts[:depth]), SOURCE.joinpath(*parts[:depth], "__init__.py")) for depth in range(1, len(parts) + 1)
    ]
    module = (name, SOURCE.joinpath(*parts).with_suffix(".py"))
    return [(found, path) for found, path in (*packages, module) if path.is_file()]


@cache
def _distributions() -> dict[str, list[str]]:
    """Distributions by the package that they bring: PyYAML brings ``yaml``."""
    return {package: sorted(set(names)) for package, names in importlib.metadata.packages_distributions().items()}


@cache
def version_of(package: str) -> str | None:
    """Version of an installed distribution."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
