"""The process that touches the GPU: it loads kernel libraries, and answers the requests on its standard input.

Requests and replies are JSON, one per line. Replies go to a pipe of their own and have the parent's token, so that
nothing which a kernel prints or scribbles can be taken for one. Before each step that may kill or hang the process it
says which step that is.

A process above it, its keeper, ends all that it has started, in whatever session: when the worker ends, and when the
parent ends or closes the requests.
"""

import ctypes
import json
import os
import pkgutil
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from tileseer.measure.harness import abi

PRINTED_BYTES = 1 << 24
"""Largest file that a worker may write: it ends a kernel that prints for ever."""

EMULATED = b"emulated"
"""Backend of the driver whose GPU is emulated; another backend may run on the emulator's HIP runtime too."""

Reply = dict[str, Any]
Say = Callable[[Reply], None]
Pair = tuple[Any, ...]
"""Number of a kernel with its problem and options, as the driver's functions take them."""


class WorkerSession:
    """What one worker has loaded: a driver, and what its kernels come from."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._library: Any = None
        self._modules: set[str] = set()
        self._plans: Any = None
        self._emulated: Any = None

    def answer(self, request: Reply) -> Reply:
        """Do what a request says; the last reply to it."""
        self._say({"phase": "load"})
        try:
            self._load(request["libraries"], request.get("plans", ""))
        except OSError as error:
            return {"code": abi.BAD_ARGUMENT, "error": str(error)}
        do: Callable[[Reply], Reply] = getattr(self, f"_{request['do']}")
        return do(request)

    def _load(self, paths: list[str], plans: str) -> None:
        """Load the driver (first path), and the others, each once.

        These are modules, or with ``plans`` a library that offers its kernels: its ``Library.plans``.
        """
        driver, *others = paths
        if self._library is None:
            self._library = abi.DriverLibrary(driver)
            if self._library.has_stand_in:
                # Only here: the emulator takes a tenth of a second to import.
                from tileseer_emulated.driver import EmulatedDriver

                self._emulated = EmulatedDriver(self._library.handle)
        for path in others:
            if plans:
                self._plans = self._plans or pkgutil.resolve_name(plans)(self._library)
                self._plans.require(path)
            elif path not in self._modules:
                self._library.load_module(path)
                self._modules.add(path)

    def _outcome(self, code: int) -> Reply:
        return {"code": code, "error": "" if code >= 0 else self._library.error()}

    def _device(self, request: Reply) -> Reply:
        device = abi.ConvDevice()
        outcome = self._outcome(self._library.device(ctypes.byref(device)))
        made = {"backend": self._library.backend().decode(), "version": self._library.version().decode()}
        plans = {"plans": self._plans.version} if self._plans else {}
        return {**outcome, **made, **plans, **abi.as_dict(device)}

    def _probe(self, request: Reply) -> Reply:
        self._say({"phase": "probe"})
        return self._outcome(self._library.probe())

    def _supporting(self, request: Reply) -> Reply:
        """Return the names of the kernels that can run a problem by their own checks."""
        problem = abi.ConvProblem(*request["problem"])
        names = enumerate(self._library.kernels())
        able = [name for index, name in names if self._library.supports(index, ctypes.byref(problem)) == 1]
        return self._outcome(abi.OK) | {"kernels": able}

    def _offered(self, request: Reply) -> Reply:
        """Return the names of the plans that the library offers for a problem, in its order."""
        assert self._plans is not None
        self._say({"phase": "plans"})
        problem = abi.ConvProblem(*request["problem"])
        try:
            plans = self._plans.convolution(problem, request["dtype"], request["ndim"]).plans
        except Exception as error:  # The frontend has exceptions of several kinds for a problem that it refuses.
            return {"code": abi.UNSUPPORTED, "error": str(error)}
        return self._outcome(abi.OK) | {"plans": plans}

    def _launches(self, request: Reply) -> Reply:
        """Return the instances of a kernel that are launched for a problem; nothing is executed."""
        self._emulated.is_dry = True
        try:
            reply = self._measure(request)
        finally:
            self._emulated.is_dry = False
        if reply["code"] == abi.NO_KERNEL:
            return reply
        # A kernel that does not refuse the problem counts, whatever it launches.
        names = sorted(self._emulated.bound) or [""] * (reply["code"] == abi.OK)
        return self._outcome(abi.OK) | {"instances": names}

    def _measure(self, request: Reply) -> Reply:
        problem, options = abi.ConvProblem(*request["problem"]), abi.ConvOptions(**request["options"])
        if self._plans:
            index = self._plans.find(request["kernel"], problem.direction)
        else:
            index = self._library.find_kernel(request["kernel"].encode())
        if index < 0:
            return self._outcome(index)
        pair = index, ctypes.byref(problem), ctypes.byref(options)
        if self._library.backend() == EMULATED:
            return self._emulate(pair)
        reply: Reply = {"check": None, "result": None, "samples_ms": [], "resources": None, "verify_s": 0.0}
        if request["verify"]:
            reply |= self._verify(pair)
            if reply["code"] != abi.OK or reply["check"]["wrong"]:
                return reply
        return reply | self._time(pair, options.max_samples)

    def _verify(self, pair: Pair) -> Reply:
        self._say({"phase": "verify"})
        begin, check = time.monotonic(), abi.ConvCheck()
        reply = self._outcome(self._library.verify(*pair, ctypes.byref(check)))
        reply["verify_s"] = round(time.monotonic() - begin, 4)
        if reply["code"] != abi.OK:
            return reply
        if self._plans and self._plans.is_right(check):
            check.wrong = 0
        return reply | {"check": abi.as_dict(check)}

    def _time(self, pair: Pair, most: int) -> Reply:
        self._say({"phase": "time"})
        result, resources, samples = abi.ConvResult(), abi.ConvResources(), (ctypes.c_double * most)()
        reply = self._outcome(self._library.measure(*pair, samples, most, ctypes.byref(result)))
        if reply["code"] != abi.OK:
            return reply
        self._library.resources(pair[0], ctypes.byref(resources))
        measured = {"result": abi.as_dict(result), "samples_ms": samples[: result.samples]}
        return reply | measured | {"resources": abi.as_dict(resources)}

    def _emulate(self, pair: Pair) -> Reply:
        """Verify, with what the waves executed and what is wrong with their accesses. Nothing is timed."""
        emulated = self._emulated
        for earlier in (emulated.opcodes, emulated.races, emulated.unwritten, emulated.bound):
            earlier.clear()
        reply = self._verify(pair)
        executed = {"opcodes": dict(emulated.opcodes), "instances": emulated.instances()}
        executed |= {"not_executed": emulated.not_executed()}
        if reply["code"] == abi.DEVICE_FAULT:
            # Nothing is lost: this device does not outlive a launch.
            return {"code": abi.OK, "failed": emulated.failed, "error": reply["error"], **executed}
        if reply["code"] != abi.OK:
            return reply
        accesses = {"races": emulated.races, "unwritten": emulated.unwritten}
        return reply | executed | {name: list(map(str, noted)) for name, noted in accesses.items()}


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
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="utf-8") as children:
            for pid in children.read().split():
                os.kill(int(pid), signal.SIGKILL)
        try:
            ended_one, wait_status = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        status = wait_status if ended_one == worker else status


def start() -> Say:
    """Become a worker, before any library is loaded; return what sends a reply.

    Arguments of the program: number of the pipe for replies, token, and memory in MiB.
    """
    pipe, token, memory_mib = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    pr_set_pdeathsig, pr_set_child_subreaper = 1, 36
    _prctl(pr_set_child_subreaper, 1)
    if worker := os.fork():
        os.close(pipe)
        ended = os.waitstatus_to_exitcode(_keep(worker))
        os._exit(ended if ended >= 0 else abi.SIGNAL_BASE - ended)
    _prctl(pr_set_pdeathsig, signal.SIGKILL)
    _limit(memory_mib << 20)
    os.set_inheritable(pipe, False)
    replies = os.fdopen(pipe, "w", encoding="utf-8")

    def say(reply: Reply) -> None:
        replies.write(json.dumps({"token": token, "pid": os.getpid(), **reply}) + "\n")
        replies.flush()

    return say


def main() -> None:
    """Answer requests until the input ends."""
    say = start()
    session = WorkerSession(say)
    for line in iter(sys.stdin.readline, ""):
        say({"done": session.answer(json.loads(line))})


if __name__ == "__main__":
    main()
