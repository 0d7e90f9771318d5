"""A process that measures cases on one GPU: requests on standard input, answers into the pipe that is its argument.

The only process that touches that GPU. ``cudnn_plans.record`` starts it, and a new one after a fault.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol


class Session(Protocol):
    """The library on the one GPU that is visible."""

    def facts(self) -> dict[str, Any]:
        """What the numbers depend on."""

    def measure(self, request: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
        """Measure a case. ``say`` is told what is in flight."""


def _end_with(parent: int) -> None:
    """End when the parent is gone, whichever of its threads started this process."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def serve(opened: Callable[[], Session]) -> None:
    """Answer until the input ends; the first request opens the session."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    replies = os.fdopen(int(sys.argv[1]), "w")

    def say(reply: dict[str, Any]) -> None:
        replies.write(json.dumps(reply) + "\n")
        replies.flush()

    session = None
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        if session is None:
            say({"phase": "open"})
            session = opened()
        if request["do"] == "facts":
            say({"done": session.facts()})
        else:
            say({"done": session.measure(request, lambda phase: say({"phase": phase}))})


def main() -> None:
    """Serve with cuDNN."""
    from cudnn_plans import library

    serve(library.opened)


if __name__ == "__main__":
    main()
