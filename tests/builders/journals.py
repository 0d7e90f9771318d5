"""Journals in tests: their rows as text, and lines again where a test interrupts or damages them."""

import json
from contextlib import suppress

from tileseer.measure.journal import Journal, journal_files, journals_in, read_journal


def journal_rows(folder):
    """Return the rows of all journals below a folder, as text."""
    folders = sorted({path.parent for path in folder.rglob("*.*") if path.is_file()})
    tables = [read_journal(path)[0] for place in folders for path in journals_in(place)]
    return [str(row) for table in tables for row in table.to_pylist()]


def as_lines(journal):
    """Make a journal one CSV, as an interrupted job leaves it; return its path."""
    rows, _ = read_journal(journal)
    for path in journal_files(journal):
        path.unlink()
    with Journal(journal) as book:
        book.append(rows)
    return journal


def read_details(path):
    """Return the events of a details log, without a line torn by a dying writer."""
    events = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):
            events.append(json.loads(line))
    return events
