"""The process that touches the GPU: it loads kernel libraries, and measures what it is told on its standard input.

Requests and replies are JSON, one a line. Replies go to a pipe of their own, so that nothing which a kernel prints
can be taken for one. Before each step that may kill or hang the process it says which step that is.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from tileseer.devices.harness import abi

PRINTED_BYTES = 1 << 24
"""Largest file that a worker may write: it ends a kernel that prints for ever."""

Request = dict[str, Any]
Reply = dict[str, Any]


class Session:
    """What one worker has loaded."""

    def __init__(self, say: Callable[[Reply], None]) -> None:
        self._say = say
        self._library: abi.Library | None = None
        self._modules: dict[str, ctypes.CDLL] = {}

    def answer(self, request: Request) -> Reply:
        """Do what a request says; the last reply to it."""
        self._say({"phase": "load"})
        try:
            library = self._load(request["libraries"])
        except OSError as error:
            return {"code": abi.BAD_ARGUMENT, "error": str(error)}
        do: Callable[[abi.Library, Request], Reply] = getattr(self, f"_{request['do']}")
        return do(library, request)

    def _load(self, paths: list[str]) -> abi.Library:
        """Load the driver (first path) and modules (the others), each once."""
        driver, *modules = paths
        if self._library is None:
            self._library = abi.Library(driver)
        for path in modules:
            if path not in self._modules:
                self._modules[path] = ctypes.CDLL(path)
        return self._library

    def _device(self, library: abi.Library, request: Request) -> Reply:
        found = abi.Device()
        outcome = _outcome(library, library.device(ctypes.byref(found)))
        made = {"backend": library.backend().decode(), "version": library.version().decode()}
        return {**outcome, **made, **abi.as_dict(found)}

    def _kernels(self, library: abi.Library, request: Request) -> Reply:
        return {"code": abi.OK, "error": "", "kernels": library.kernels()}

    def _probe(self, library: abi.Library, request: Request) -> Reply:
        self._say({"phase": "probe"})
        return _outcome(library, library.probe())

    def _supports(self, library: abi.Library, request: Request) -> Reply:
        index = library.find_kernel(request["kernel"].encode())
        problem = abi.Problem(*request["problem"])
        code = index if index < 0 else library.supports(index, ctypes.byref(problem))
        return _outcome(library, code)

    def _measure(self, library: abi.Library, request: Request) -> Reply:
        index = library.find_kernel(request["kernel"].encode())
        if index < 0:
            return _outcome(library, index)
        problem, options = abi.Problem(*request["problem"]), abi.Options(**request["options"])
        check, result, resources = abi.Check(), abi.Result(), abi.Resources()
        reply: Reply = {"check": None, "result": None, "samples_ms": [], "resources": None, "verify_s": 0.0}
        if request["verify"]:
            self._say({"phase": "verify"})
            begin = time.monotonic()
            code = library.verify(index, ctypes.byref(problem), ctypes.byref(options), ctypes.byref(check))
            reply["verify_s"] = round(time.monotonic() - begin, 4)
            if code != abi.OK:
                return reply | _outcome(library, code)
            reply["check"] = abi.as_dict(check)
            if check.wrong:
                return reply | {"code": abi.OK, "error": ""}
        self._say({"phase": "time"})
        samples = (ctypes.c_double * options.max_samples)()
        code = library.measure(
            index, ctypes.byref(problem), ctypes.byref(options), samples, len(samples), ctypes.byref(result)
        )
        reply |= _outcome(library, code)
        if code == abi.OK:
            reply["result"] = abi.as_dict(result)
            reply["samples_ms"] = samples[: result.samples]
            library.resources(index, ctypes.byref(resources))
            reply["resources"] = abi.as_dict(resources)
        return reply


def _outcome(library: abi.Library, code: int) -> Reply:
    return {"code": code, "error": "" if code > 0 else library.error()}


def serve(requests: Iterator[str], replies: TextIO) -> None:
    """Answer every request until the input ends."""

    def say(reply: Reply) -> None:
        replies.write(json.dumps(reply) + "\n")
        replies.flush()

    session = Session(say)
    for line in requests:
        request = json.loads(line)
        say({"done": session.answer(request)})


def _limit() -> None:
    """End with the parent, leave no core file, and do not fill the disk."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (PRINTED_BYTES, PRINTED_BYTES))


def main() -> None:
    """Serve on standard input and the pipe whose number is the only argument."""
    _limit()
    replies = os.fdopen(int(sys.argv[1]), "w")
    serve(iter(sys.stdin.readline, ""), replies)


if __name__ == "__main__":
    main()
