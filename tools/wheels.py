"""Build the wheels of Tileseer, of what is in ``packages``, and of published models.

One package of models an arch, such as ``tileseer-models-sm90-cudnn``:

    python tools/wheels.py results/models/sm_90_cudnn --output dist

A package of models depends on the releases of Tileseer that read it, and says by an entry point which arch it is for.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tileseer.core.errors import UserError, reports_user_errors
from tileseer.learn import model_files
from tileseer.torch.model_packages import GROUP, MODEL, package_of_arch

ROOT = Path(__file__).parents[1]
PARTS = (
    "src", "Snakefile", "config", "envs", "profiles", "workflow", "pyproject.toml", "setup.py", "README.md", "LICENSE",
    "NOTICE",
)  # fmt: skip
MOST_BYTES = 15 << 20
"""Of a package of models; an index of packages, and its users, want small ones."""
PROJECT = """
[build-system]
requires = ["setuptools>=75"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "{version}"
description = "Models of Tileseer for {arch}: which convolution kernel to run"
license = {{text = "MIT"}}
requires-python = ">=3.11"
dependencies = ["tileseer{readers}"]

[project.entry-points."{group}"]
{arch} = "{package}"

[tool.setuptools]
packages = ["{package}"]

[tool.setuptools.package-data]
{package} = ["**/*"]
"""


@reports_user_errors
def main() -> None:
    """Build all wheels and print their paths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="*", help="folders of published models")
    parser.add_argument("--output", type=Path, default=Path("dist"))
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "tileseer")  # a copy, since setuptools leaves its own files in the folder
        for part in PARTS:
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy2
            (source / part).parent.mkdir(parents=True, exist_ok=True)
            copy(ROOT / part, source / part)
        print(_build(source, args.output))
        for package in sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml")):
            shutil.copytree(package, Path(folder, package.name), ignore=shutil.ignore_patterns("*.egg-info", "build"))
            print(_build(Path(folder, package.name), args.output))
        for models in args.models:
            wheel = _build(_project(models, Path(folder, models.name)), args.output)
            if wheel.stat().st_size > MOST_BYTES:
                raise UserError(f"{wheel}: has {wheel.stat().st_size >> 20} MiB, more than {MOST_BYTES >> 20}")
            print(wheel)


def _project(models: Path, folder: Path) -> Path:
    """Write the project of a package of models; return its folder."""
    index = model_files.read_index(models)
    name = package_of_arch(index.arch)
    package = name.replace("-", "_")
    files = (models / model_files.INDEX, *(models / path for path in index.sha256))
    for file in files:
        target = folder / package / MODEL / file.relative_to(models)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
    (folder / package / "__init__.py").write_text(f'"""Models of Tileseer for {index.arch}."""\n', encoding="utf-8")
    text = PROJECT.format(
        name=name, version=_version(), arch=index.arch, readers=index.tileseer, group=GROUP, package=package
    )
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


def _version() -> str:
    import tomllib

    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def _build(project: Path, output: Path) -> Path:
    """Return the wheel of a project; the same content gives the same bytes."""
    script = f"from setuptools import build_meta; print(build_meta.build_wheel({str(output.resolve())!r}))"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "315532800"}
    run = subprocess.run([sys.executable, "-c", script], cwd=project, env=environment, capture_output=True, text=True)
    if run.returncode:
        raise UserError(f"{project.name}: the wheel cannot be built: {run.stderr.strip().splitlines()[-1:]}")
    return output / run.stdout.split()[-1]


if __name__ == "__main__":
    raise SystemExit(main())
