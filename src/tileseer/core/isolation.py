"""A call in a process of its own, for a library that a file of others may crash or lead to no end."""

import multiprocessing
import resource
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from tileseer.core.errors import UserError

Result = TypeVar("Result")
SECONDS, BYTES = 30, 2**30
"""Of CPU time, and of memory beyond that of the caller and what a call asks for."""
ELAPSED_SECONDS = 2 * SECONDS
"""For a call that waits; twice as much, since the machine may have other work."""


def call_apart(subject: str, more_bytes: int, function: Callable[..., Result], *arguments: object) -> Result:
    """Return what ``function`` returns, or raise its ``UserError``; another end of it is one that names ``subject``."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, more_bytes + BYTES, function, arguments), daemon=True)
    process.start()
    sender.close()
    if not receiver.poll(ELAPSED_SECONDS):
        process.kill()
    try:
        answer = receiver.recv()
    except EOFError:
        answer = None
    process.join()
    if answer is None:
        raise UserError(
            f"{subject}: reading it ended with status {process.exitcode}; it is damaged, or needs more than "
            f"{SECONDS} s of CPU time, {ELAPSED_SECONDS} s in all or {(more_bytes + BYTES) >> 20} MiB"
        )
    result, fault = answer
    if fault is not None:
        raise UserError(fault)
    returned: Result = result
    return returned


def _answer(sender: Connection, most: int, function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
    with open("/proc/self/statm", encoding="ascii") as pages:
        own = int(pages.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (own + most, own + most))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        sender.send((function(*arguments), None))
    except UserError as error:
        sender.send((None, str(error)))
    except MemoryError as error:
        raise SystemExit(1) from error
