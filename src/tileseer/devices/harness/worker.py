"""The process that touches the GPU: it loads kernel libraries, and measures what it is told on its standard input.

Requests and replies are JSON, one a line. Replies go to a pipe of their own and have the parent's token, so that
nothing which a kernel prints or scribbles can be taken for one. Before each step that may kill or hang the process it
says which step that is.

A process above it, its keeper, ends all that it has started, in whatever session: when the worker ends, and when the
parent ends or closes the requests.
"""

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from tileseer.devices.harness import abi

PRINTED_BYTES = 1 << 24
"""Largest file that a worker may write: it ends a kernel that prints for ever."""

EMULATED = b"emulated"
"""Backend of the driver whose GPU is emulated."""
EMULATED_ORDERS = 3
"""Orders of the waves in which each pair is executed there."""

Request = dict[str, Any]
Reply = dict[str, Any]
Say = Callable[[Reply], None]


class Session:
    """What one worker has loaded."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._library: abi.Library | None = None
        self._modules: dict[str, ctypes.CDLL] = {}
        self._executor: Any = None

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
            if self._library.has_stand_in:
                # Only here: numpy and the decoder of instructions take half a second.
                from tileseer.devices.emulated.executor import Executor

                self._executor = Executor()
                self._executor.install(self._library.handle)
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
        if library.backend() == EMULATED:
            return self._emulate(library, index, problem, options)
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

    def _emulate(self, library: abi.Library, index: int, problem: abi.Problem, options: abi.Options) -> Reply:
        """Verify in several orders of the waves; ``opcodes``: those executed in the first one. Nothing is timed."""
        self._say({"phase": "verify"})
        checks, before = [], self._executor.opcodes()
        opcodes: dict[str, int] = {}
        for order in range(EMULATED_ORDERS):
            self._executor.seed = order
            check = abi.Check()
            code = library.verify(index, ctypes.byref(problem), ctypes.byref(options), ctypes.byref(check))
            if code != abi.OK:
                return _outcome(library, code)
            checks.append(abi.as_dict(check))
            opcodes = opcodes or dict(self._executor.opcodes() - before)
        wrong = [check["wrong"] for check in checks]
        worst = checks[wrong.index(max(wrong))]
        return {"code": abi.OK, "error": "", "check": worst, "wrong": wrong, "opcodes": opcodes}


def _outcome(library: abi.Library, code: int) -> Reply:
    return {"code": code, "error": "" if code > 0 else library.error()}


def _limit(memory_bytes: int) -> None:
    """Leave no core file, do not fill the disk and the memory, and take no signal that is for the keeper's group.

    What a process reserves and does not use, as drivers of GPUs do, is no part of its data.
    """
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (PRINTED_BYTES, PRINTED_BYTES))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "prctl")


def _keep(worker: int) -> int:
    """Wait until the worker or its parent ends, end all that is left of it, and return the worker's wait status."""
    ends = select.poll()
    ends.register(os.pidfd_open(worker), select.POLLIN)
    # Nothing is read here: what ends is that anybody can still write requests.
    ends.register(sys.stdin.fileno(), 0)
    ends.poll()
    status = 0
    # An orphan becomes a child of its keeper.
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as children:
            for pid in children.read().split():
                os.kill(int(pid), signal.SIGKILL)
        try:
            ended_one, found = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        status = found if ended_one == worker else status


def _end_as(status: int) -> NoReturn:
    """End as another process has ended."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def start() -> Say:
    """Become a worker, before any library is loaded; return what sends a reply.

    Arguments of the program: number of the pipe for replies, token, and memory in MiB.
    """
    pipe, token, memory_mib = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    pr_set_pdeathsig, pr_set_child_subreaper = 1, 36
    _prctl(pr_set_child_subreaper, 1)
    if worker := os.fork():
        os.close(pipe)
        _end_as(_keep(worker))
    _prctl(pr_set_pdeathsig, signal.SIGKILL)
    _limit(memory_mib << 20)
    os.set_inheritable(pipe, False)
    replies = os.fdopen(pipe, "w")

    def say(reply: Reply) -> None:
        replies.write(json.dumps({"token": token, "pid": os.getpid(), **reply}) + "\n")
        replies.flush()

    return say


def main() -> None:
    """Answer requests until the input ends."""
    say = start()
    session = Session(say)
    for line in iter(sys.stdin.readline, ""):
        say({"done": session.answer(json.loads(line))})


if __name__ == "__main__":
    main()
