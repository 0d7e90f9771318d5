"""Commit of a git checkout."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tileseer.core.strict_tables import StrictModel


class Source(StrictModel):
    """A checkout; everything is None if the folder is none, or if git is missing."""

    commit: str | None = None
    date: str | None = None
    """Day of the commit."""
    uncommitted: list[str] | None = None
    """Files that differ from the commit."""


def source_of(folder: Path, parts: Sequence[str] = (".",)) -> Source:
    """Return the commit and uncommitted changes of ``folder``, as far as files in its ``parts`` are concerned."""
    try:
        commit, date = _git(folder, "log", "-1", "--format=%H %cs").split()
        changed = _git(folder, "status", "--porcelain", "-z", "--no-renames", "--", *parts).split("\0")
    # No git, no checkout, or one whose owner git does not trust: there is no commit to name.
    except (OSError, subprocess.CalledProcessError):
        return Source()
    return Source(commit=commit, date=date, uncommitted=sorted(line[3:] for line in changed if line))


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(
        command, check=True, capture_output=True, encoding="utf-8", errors="replace", timeout=60
    ).stdout
