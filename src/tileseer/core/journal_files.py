"""Which files a journal is in: the parts of jobs that have ended, then the CSV that lines are appended to.

::

    0.1.parquet   # Rows of the first job that measured.
    0.2.csv       # Those of the next one, if it was killed before they were columns, or a line is damaged.
    0.csv         # Lines of a job that is running, or was interrupted.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

_JOURNAL_NAME = re.compile(r"([^.].*?)(?:\.(\d+))?\.(csv|parquet)")


def journal_files(journal: Path) -> list[Path]:
    """Files of a journal that exist, in the order of their rows."""
    parts: dict[int, Path] = {}
    for path, number, file in _named(journal.parent, journal.stem):
        # A job that was killed before it removed the lines leaves both.
        if path == journal and number and (file.suffix == ".parquet" or number not in parts):
            parts[number] = file
    return [*(parts[number] for number in sorted(parts)), *([journal] if journal.exists() else [])]


def journals_in(folder: Path) -> list[Path]:
    """Journals of a folder, by name."""
    return sorted({path for path, *_ in _named(folder)})


def next_part(journal: Path) -> Path:
    """Name of the next part of a journal."""
    numbers = (number for path, number, _ in _named(journal.parent, journal.stem) if path == journal)
    number = 1 + max(numbers, default=0)
    return journal.with_suffix(f".{number}.csv")


def _named(folder: Path, begin: str = "") -> Iterator[tuple[Path, int, Path]]:
    """Yield journal, number of the part (0: none) and path of each file of a folder whose name begins like this."""
    for name in os.listdir(folder) if folder.is_dir() else ():
        # A folder may have thousands of journals.
        if name.startswith(begin) and (match := _JOURNAL_NAME.fullmatch(name)):
            yield folder / f"{match[1]}.csv", int(match[2] or 0), folder / name
