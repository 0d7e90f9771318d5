"""The details log beside a journal: every sample, the checks, the state of the GPU, and what the numbers depend on.

JSON, one event per line, only ever appended to, with the seconds since the session began (``at``). ``session`` says
where, when and with what the following was measured; ``pair`` is one attempt at a pair; ``batch`` closes the pairs
since the last one with the drift and the GPU's state.
"""

import json
import os
import platform
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


class Details:
    """An open log; without a path it keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._begin = time.monotonic()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, event: str, content: Mapping[str, Any]) -> None:
        """Append one event."""
        if self._path is None:
            return
        at = round(time.monotonic() - self._begin, 4)
        line = json.dumps({"event": event, "at": at, **content}, allow_nan=False) + "\n"
        # One write of a line to a file opened for appending: a killed writer loses at most its last line.
        with self._path.open("a") as log:
            log.write(line)


def provenance() -> dict[str, Any]:
    """Return where and when this runs: host, system, process and time."""
    machine = {"host": platform.node(), "system": platform.platform(), "python": platform.python_version()}
    return {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **machine, "pid": os.getpid()}
