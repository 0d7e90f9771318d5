"""A process that measures cases on one GPU: requests on standard input, answers into the pipe that is its argument.

The only process that touches that GPU. ``cudnn_plans.record`` starts it, and a new one after a fault.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, Protocol

from tileseer.devices.harness.worker import Say, start


class Session(Protocol):
    """The library on the one GPU that is visible."""

    def facts(self) -> dict[str, Any]:
        """What the numbers depend on."""

    def measure(self, request: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
        """Measure a case. ``say`` is told what is in flight."""


def serve(say: Say, opened: Callable[[], Session]) -> None:
    """Answer until the input ends; the first request opens the session."""
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
    say = start()
    from cudnn_plans import library

    serve(say, library.opened)


if __name__ == "__main__":
    main()
