"""Where the workflow lies whose package this is."""

import tomllib
from pathlib import Path
from typing import Any

from tileseer.core.errors import UserError
from tileseer.core.reading import read_utf8

PACKAGE = Path(__file__).resolve().parents[1]
"""Folder of the package ``tileseer``."""


def install(extra: str) -> str:
    """Say how to get the packages of an extra; no index of packages has Tileseer."""
    return f"pip install -e '.[{extra}]' in a checkout of Tileseer"


def workflow_folder() -> Path:
    """Return the folder of ``Snakefile``, ``workflow`` and ``config``: the checkout, or what the package brings.

    A copy of the checkout with its ``src`` is a checkout of its own. A wheel has the three in ``tileseer/shipped``.
    """
    checkout = PACKAGE.parents[1]
    return checkout if (checkout / "Snakefile").is_file() else PACKAGE / "shipped"


def project_of_checkout() -> dict[str, Any] | None:
    """Return the table ``project`` of the checkout's ``pyproject.toml``: what is installed may be an earlier one.

    None outside of a checkout.
    """
    path = PACKAGE.parents[1] / "pyproject.toml"
    return tomllib.loads(read_utf8(path)).get("project", {}) if path.is_file() else None


def refuse_braces(folder: str) -> None:
    """Raise a ``UserError`` for a path in which Snakemake's formats would see a name."""
    if set("{}") & set(folder):
        raise UserError(f"{folder}: Snakemake cannot work in a folder with a brace in its path; rename the folder")


def find_file(path: Path) -> Path:
    """Return ``path`` seen from the working folder, or the workflow's own file of that name where there is none.

    Without either it stays as it is, so that a message names what was asked for.
    """
    own = workflow_folder() / path
    return own if own.exists() and not path.exists() else path
