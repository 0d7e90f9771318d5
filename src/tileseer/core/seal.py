"""Seals: the SHA-256 of a file in a hidden file beside it, for what nobody can make again: a journal's Parquet parts.

A Parquet file with one wrong bit is mostly still one, and gives other times.
"""

import hashlib
from pathlib import Path

from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.core.reading import read_bytes, regular_file


def seal_path(path: Path) -> Path:
    """Return the path of the seal of a file."""
    return path.with_name(f".{path.name}.sha256")


def write_seal(path: Path) -> None:
    """Write the seal of a file that is whole."""
    write_text(seal_path(path), file_digest(path) + "\n")


def check_seal(path: Path) -> None:
    """Raise a ``UserError`` if a file is not what was sealed; one without a seal is not checked."""
    if not seal_path(path).exists():
        return
    if file_digest(path) != read_bytes(seal_path(path)).strip().decode(errors="replace"):
        raise UserError(f"{path}: its SHA-256 is not that of {seal_path(path).name} beside it; restore it from a copy")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with regular_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
