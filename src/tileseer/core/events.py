"""What the jobs of a run tell while it runs: one JSON object a line in a file of the run that all of them append to.

Every line has ``state`` and, of a job, ``job``, the path of its log:

* ``run``: the ``arch`` of a run that begins; ``plan``: how many ``jobs`` it has, and what it ``told`` of their cost
* ``begin``: a job's ``stage``, ``of`` (its operation, chunk, or arch) and what it ``does``
* ``progress``: ``now``, ``done``, ``total``, ``unit``, ``rate`` (a second) and ``left_s``
* ``computed``, ``restored``: the job has ended well, with what it ``told``; one that fails says nothing more
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EVENTS, LOG = "TILESEER_EVENTS", "TILESEER_LOG"
"""Environment of a job: the file, and the path of its log."""
FILE = "tileseer.events.{}"
"""The file, in Snakemake's folder, by the run's process."""


def tell(state: str, **more: Any) -> None:
    """Append an event of this job; nothing where no run asks for it."""
    if path := os.environ.get(EVENTS):
        line = json.dumps({"state": state, "job": os.environ.get(LOG, ""), **more}) + "\n"
        # One write: the lines of jobs that append at the same time stay whole.
        with open(path, "ab", buffering=0) as stream:
            stream.write(line.encode())


def read(path: Path, begin: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Events from a position of the file on, each with the position behind it; a half written one is left."""
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return
    with stream:
        stream.seek(begin)
        for line in stream:
            if not line.endswith(b"\n"):
                return
            begin += len(line)
            yield begin, json.loads(line)
