"""What was measured, a line of JSON a case, in one xz file a run: appended in parts, each a stream of its own.

What is in the file is whole whenever the run ends, and the next run leaves out the cases that are in it.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

PATTERN = "cases.*.jsonl.xz"


def files(folders: Iterable[Path]) -> list[Path]:
    """The journals of some folders."""
    return sorted(path for folder in folders for path in folder.glob(PATTERN))


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a file; a part that was cut off is left out."""
    lines = b""
    data = path.read_bytes()
    while data:
        decoder = lzma.LZMADecompressor()
        try:
            lines += decoder.decompress(data)
        except lzma.LZMAError:
            break
        data = decoder.unused_data
    for line in lines.split(b"\n")[:-1]:
        yield json.loads(line)


def done(paths: Iterable[Path]) -> set[str]:
    """Names of the cases that need not be measured again."""
    return {event["case"] for path in paths for event in read(path) if event["event"] == "case"}


class Journal:
    """Appends to a file; ``flush`` makes a part of what was added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[str] = []

    def add(self, event: dict[str, Any]) -> None:
        """Keep an event for the next part."""
        self._lines.append(json.dumps(event, separators=(",", ":")))

    def flush(self) -> None:
        """Write what was added."""
        if self._lines:
            part = lzma.compress("".join(f"{line}\n" for line in self._lines).encode(), preset=6)
            with self._path.open("ab") as file:
                file.write(part)
            self._lines.clear()
