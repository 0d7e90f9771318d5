"""What decides whether a stage runs again besides the files that its rule names: its settings and its code.

The code of a stage is a room of the package with the rooms that it stands on, its script, and the versions of Python
and of the packages that these import. It counts by its syntax: a comment, a docstring or other white space is no other
code.
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import platform
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tileseer.core.places import PACKAGE, project_of_checkout, workflow_folder
from tileseer.core.reading import read_bytes, read_utf8


class Stage(NamedTuple):
    """What a stage uses."""

    room: str
    """The last room that it uses; those before it in ``ROOMS`` count as well."""
    sections: tuple[str, ...] = ()
    """Sections of the configuration that it reads."""
    beside: tuple[str, ...] = ()
    """Packages of ours outside ``tileseer`` that it uses."""


ROOMS = ("core", "facts", "problems", "libraries", "build", "measure", "data", "learn", "judge", "serve")
"""Each room imports only rooms before it; import-linter checks this (``pyproject.toml``)."""
LATER = {
    "measure": ("tileseer/libraries/*/device*.py",),
    "learn": (
        "tileseer/libraries/features", "tileseer/libraries/reference_features.py", "tileseer/libraries/*/features.py",
    ),
    "serve": ("tileseer/libraries/*/importer.py", "tileseer/libraries/*/exporter.py"),
}  # fmt: skip
"""Code that stands beside its library, and the first room that uses it: another feature measures nothing."""
COMPILING = ("compile", "ck")
STAGES = {
    "arch_specs": Stage("facts"),
    "problems": Stage("problems", ("problems",)),
    "configs": Stage("libraries", ("configs", "ck")),
    "headers": Stage("libraries"),
    "compile": Stage("build", COMPILING),
    "libraries": Stage("build", COMPILING),
    "aliases": Stage("measure"),
    "support": Stage("measure"),
    "plans": Stage("measure", ("benchmark",)),
    "verdicts": Stage("measure", ("benchmark", *COMPILING), ("tileseer_emulated", "amdgpu_emulator")),
    "verdict_table": Stage("measure", (), ("tileseer_emulated",)),
    "benchmark": Stage("measure", ("benchmark",)),
    "dataset": Stage("data"),
    "model": Stage("learn", ("model",)),
    "serving": Stage("serve"),
    "evaluation": Stage("serve"),
    "publish": Stage("serve"),
    "report": Stage("serve"),
}
"""The stages by the name of their script. ``publish`` and ``report`` show the whole configuration."""
EXTRA = "workflow"
"""The extra whose packages count besides those that the package always needs."""
MODULES = {"pyelftools": "elftools", "pyyaml": "yaml"}
"""Modules of distributions that have another name."""


@cache
def code_of_stage(stage: str) -> str:
    """Return the digest of the code of a stage."""
    script, *files = files_of_stage(stage)
    imported = {name for file in (script, *files) if file.suffix == ".py" for name in _parsed(file).imports}
    versions = [f"{name} {version_of(name)}" for module, name in _declared().items() if module in imported]
    beside = map(identity_of_package, STAGES[stage].beside)
    return _digest(
        [_syntax_of_file(script), _digest_of_files(files), f"python {platform.python_version()}", *versions, *beside]
    )


def forget() -> None:
    """Read the code of stages anew when it is asked for again."""
    for cached in (code_of_stage, identity_of_package, _parsed):
        cached.cache_clear()


def files_of_stage(stage: str) -> list[Path]:
    """Return the script of a stage and the modules of ``tileseer`` that count for it."""
    rooms = ROOMS[: ROOMS.index(STAGES[stage].room) + 1]
    later = [pattern for room, patterns in LATER.items() if room not in rooms for pattern in patterns]
    files = {file for room in rooms for file in _python_files(PACKAGE / room)}
    files -= {file for pattern in later for file in _files_of(pattern)}
    return [workflow_folder() / f"workflow/scripts/{stage}.py", *sorted(files)]


@cache
def _declared() -> dict[str, str]:
    """Return the distributions that the package declares, which are locked, by their modules."""
    project = project_of_checkout()
    if project is not None:
        lines = [*project["dependencies"], *project["optional-dependencies"][EXTRA]]
    else:
        lines = [line for line in importlib.metadata.requires("tileseer") or () if _is_needed(line)]
    names = [re.split(r"[^\w.-]", line)[0] for line in lines]
    return {MODULES.get(name, name.replace("-", "_")): name for name in sorted(names)}


def _is_needed(line: str) -> bool:
    extra = re.search(r"extra == .(\w+)", line)
    return extra is None or extra[1] == EXTRA


@cache
def digest_of_code(*patterns: str) -> str:
    """Return the digest of modules and folders of ours, such as ``tileseer/libraries/*/cost.py``: all that they hold.

    ``ValueError`` for a pattern that matches no module: identities of measurements rest on these texts, and a module
    that was moved would count no longer.
    """
    return _digest_of_files({file for pattern in patterns for file in _files_of(pattern)})


@cache
def identity_of_package(name: str) -> str:
    """Return the version of a package of ours outside ``tileseer``, and the digest of its modules; "" without it.

    In a checkout its code changes, and its version does not.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return ""
    (folder,) = spec.submodule_search_locations
    return f"{name} {version_of(name)} {_digest_of_files(_python_files(Path(folder)), Path(folder))}"


def _files_of(pattern: str) -> set[Path]:
    """Return the modules that a pattern below the folder of the packages matches, at least one."""
    files = {file for path in PACKAGE.parent.glob(pattern) for file in _python_files(path)}
    if not files:
        raise ValueError(f"no module matches {pattern!r}")
    return files


def _python_files(path: Path) -> list[Path]:
    # A template beside a module, such as the C++ of a learner, and a table, such as that of solvers, are code too.
    return [file for ending in ("py", "j2", "csv") for file in path.rglob(f"*.{ending}")] if path.is_dir() else [path]


def _digest_of_files(files: Iterable[Path], folder: Path | None = None) -> str:
    named = {file.relative_to(folder or PACKAGE.parent).as_posix(): file for file in files}
    return _digest(f"{name} {_syntax_of_file(file)}" for name, file in sorted(named.items()))


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


class _Parsed(NamedTuple):
    """What a module says."""

    syntax: str
    """Digest of its syntax."""
    imports: frozenset[str]
    """First part of each module that it imports anywhere."""


def _syntax_of_file(path: Path) -> str:
    return _parsed(path).syntax if path.suffix == ".py" else _digest([read_utf8(path)])


@cache
def _parsed(path: Path) -> _Parsed:
    syntax: list[str] = []
    imports: set[str] = set()
    _write_syntax(ast.parse(read_bytes(path), filename=str(path)), syntax.append, imports)
    return _Parsed(_digest(syntax), frozenset(imports))


def _write_syntax(node: object, write: Callable[[str], None], imports: set[str]) -> None:
    """Write all that a tree holds, without texts that are statements: docstrings, and those behind attributes.

    The first part of each imported module is added to ``imports``.
    """
    # ``ast.dump`` of a tree without them takes three times as long, at every call of Snakemake.
    if isinstance(node, list):
        write("[")
        for each in node:
            _write_syntax(each, write, imports)
        write("]")
    elif not isinstance(node, ast.AST):
        write(repr(node))
    elif not (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ):
        if isinstance(node, ast.Import):
            imports.update(each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            imports.add((node.module or "").partition(".")[0])
        write(type(node).__name__)
        for name in node._fields:
            _write_syntax(getattr(node, name, None), write, imports)


@cache
def version_of(package: str) -> str | None:
    """Return the version of an installed distribution, or None without it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
