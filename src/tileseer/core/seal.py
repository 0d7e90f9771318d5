"""Seals: the SHA-256 of a stage's output in a hidden file beside it, so that damage is never read as data.

A Parquet file, a JSON file or a model with one wrong bit is mostly still one, and gives other results. A file without
a seal, of a user or of another program, is read as it is.
"""

import hashlib
import os
from pathlib import Path

from tileseer.core.errors import UserError


def seal_path(path: Path) -> Path:
    """Path of the seal of a file."""
    return path.with_name(f".{path.name}.sha256")


def write_seal(path: Path, content: Path) -> None:
    """Write the seal of ``path``, whose content is at ``content`` until it is renamed.

    A kill between the two leaves a job that Snakemake runs again.
    """
    target = seal_path(path)
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(file_digest(content) + "\n")
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def check_seal(path: Path) -> None:
    """Refuse a file that is not what was written: a ``UserError`` says how to make it again."""
    try:
        expected = seal_path(path).read_text(errors="replace").strip()
        actual = file_digest(path)
    except FileNotFoundError:
        # No seal, or no file, which the reader reports.
        return
    if actual != expected:
        raise UserError(
            f"{path}: the file was changed or damaged after it was written: its SHA-256 is not that of "
            f"{seal_path(path).name} beside it; delete both and run again"
        )


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
