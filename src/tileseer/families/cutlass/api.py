"""CUTLASS 2.x has one API level, and the templates write it without a table of names."""

from pathlib import Path

NEWEST = ""


def detect(table: str | Path, root: Path) -> str:
    """API level of a tree."""
    return NEWEST
