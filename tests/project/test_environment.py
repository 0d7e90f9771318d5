"""The two forms of the environment name the same packages, and they are the ones that the code imports."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tileseer.cli import main

ROOT = Path(__file__).parents[2]
CONDA_NAMES = {"msgpack": "msgpack-python", "snakemake": "snakemake-minimal"}


LOCKS = {"requirements.lock": ("workflow", "gpu"), "requirements-dev.lock": ("workflow", "gpu", "dev")}
"""What users and developers install: the file, and the extras that it covers."""


def locked(name="requirements.lock"):
    lines = (ROOT / "envs" / name).read_text().splitlines()
    # A package may have two versions, by that of Python; conda's environment has Python 3.11.
    found = [re.match(r"([a-z0-9-]+)==([^ ;\\]+)", line) for line in lines if ">= '3.12'" not in line]
    return dict(match.groups() for match in found if match)


def required(*extras):
    """What the project asks for, base and extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project["dependencies"] + [one for extra in extras for one in project["optional-dependencies"][extra]]


@pytest.mark.parametrize("path", [*(f"envs/{name}" for name in LOCKS), "config/problems/crawl.txt"])
def test_every_locked_package_has_a_hash(path):
    blocks = re.split(r"\n(?=[A-Za-z0-9_-]+==)", (ROOT / path).read_text())
    assert len(blocks) > 50
    assert all("--hash=sha256:" in block for block in blocks[1:])


def test_developers_have_what_users_have_and_users_nothing_of_theirs():
    users, developers = locked(), locked("requirements-dev.lock")
    assert users.items() < developers.items()
    assert not {"mypy", "playwright", "mkdocs", "pytest", "ruff", "scikit-learn"} & set(users)


def test_conda_and_lock_file_agree_on_the_direct_dependencies():
    direct = [re.match(r"[A-Za-z0-9-]+", requirement)[0] for requirement in required(*LOCKS["requirements.lock"])]
    conda = yaml.safe_load((ROOT / "envs/tileseer.yaml").read_text())["dependencies"]
    pinned = dict(re.fullmatch(r"([a-z0-9-]+) =(\S+)", entry).groups() for entry in conda)
    assert pinned.pop("python") == "3.11"
    # A post-release is the same software packed again; conda has its own build numbers for that.
    expected = {CONDA_NAMES.get(name, name): re.sub(r"\.post\d+$", "", locked()[name]) for name in direct}
    assert pinned == expected


@pytest.mark.parametrize(("name", "extras"), LOCKS.items())
def test_the_pinned_versions_lie_within_the_bounds_of_the_project(name, extras):
    pinned = {canonicalize_name(package): version for package, version in locked(name).items()}
    for requirement in map(Requirement, required(*extras)):
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} is locked at {version}"
    # The workflow refuses an older Snakemake by itself, and says so.
    asked = re.search(r'min_version\("([\d.]+)"\)', (ROOT / "Snakefile").read_text())[1]
    bound = next(Requirement(text) for text in required("workflow") if Requirement(text).name == "snakemake")
    assert f">={asked}" in str(bound)


IMPORT_NAMES = {
    "pyyaml": "yaml",
    "nvidia-ml-py": "pynvml",
    "pyelftools": "elftools",
}
"""Packages that are imported under another name; the others have - for _."""
# What a subcommand needs beyond the core: the extra that brings it.
EXTRA_OF_COMMAND = {"crawl": "crawl"}
# Taken where they are installed; without cuDNN its plans are not measured, and nothing is emulated without the other.
OPTIONAL = {"cudnn", "tileseer_emulated"}


def third_party(paths):
    found = set()
    for path in paths:
        for node in ast.walk(ast.parse(Path(path).read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"tileseer"}


def declared(*extras):
    names = {re.match(r"[A-Za-z0-9-]+", requirement)[0] for requirement in required(*extras)}
    # Pydantic's types of errors are in a package of its own, of one version with it; _typeshed is mypy's, no package.
    return {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in names} | {"pydantic_core", "_typeshed"}


IMPORTS = grimp.build_graph("tileseer", exclude_type_checking_imports=True)
"""What import-linter sees."""


@pytest.mark.parametrize("command", sorted(main.COMMANDS))
def test_a_command_needs_only_what_pip_install_brings(command):
    module = ROOT / f"src/tileseer/cli/{command}.py"
    names = {f"tileseer.cli.{module.stem}"} | IMPORTS.find_upstream_modules(f"tileseer.cli.{module.stem}")
    paths = [ROOT / "src" / name.replace(".", "/") for name in names]
    used = third_party(path / "__init__.py" if path.is_dir() else path.with_suffix(".py") for path in paths)
    extra = EXTRA_OF_COMMAND.get(command)
    assert used - OPTIONAL <= declared(*([extra] if extra else []))


def test_a_disk_that_was_full_for_a_while_leaves_nothing_that_python_fails_on(tmp_path):
    """No file above 4 KiB can be written: like a full disk, that cuts what Python writes of a module's byte code."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    words = [sys.executable, "-c", "from tileseer.cli.main import main; raise SystemExit(main(['--version']))"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = kept | {"PYTHONPATH": str(tmp_path / "src")}
    for limit in ("ulimit -f 4; ", ""):
        command = ["bash", "-c", f'{limit}exec "$@"', "bash", *words]
        subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True)
