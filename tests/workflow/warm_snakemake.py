"""Snakemake in a fork of a process that has imported it: a call costs half of what starting the program costs.

This module imports nothing of Tileseer: the workflow brings its own.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path


def call(words: Sequence[str], folder: Path, environment: Mapping[str, str], timeout: float) -> tuple[int, str]:
    """Exit status and output of the program ``snakemake``, started in ``folder`` with these words."""
    server = _server()
    with tempfile.NamedTemporaryFile() as output:
        print(json.dumps([words, str(folder), dict(environment), output.name]), file=server.stdin, flush=True)
        killer = threading.Timer(timeout, os.killpg, (int(server.stdout.readline()), signal.SIGKILL))
        killer.start()
        status = int(server.stdout.readline())
        killer.cancel()
        return status, output.read().decode()


@cache
def _server() -> subprocess.Popen[str]:
    """One for the whole process, until its end."""
    server = subprocess.Popen([sys.executable, __file__], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def end() -> None:
        server.stdin.close()
        server.wait()

    atexit.register(end)
    return server


def _serve() -> None:
    """Fork for each line of stdin; tell the process and, when it has ended, its status."""
    for line in sys.stdin:
        process = os.fork()
        if not process:
            _become(*json.loads(line))
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


def _become(words: list[str], folder: str, environment: dict[str, str], output: str) -> None:
    """Be what starting the program would have started."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for path, flags, number in ((os.devnull, os.O_RDONLY, 0), (output, os.O_WRONLY | os.O_APPEND, 1)):
        stream = os.open(path, flags)
        os.dup2(stream, number)
        os.close(stream)
    os.dup2(1, 2)
    sys.argv = words
    sys.path[0] = os.path.dirname(words[0])
    cli.main()
    raise SystemExit


if __name__ == "__main__":
    import snakemake_executor_plugin_slurm  # noqa: F401 - Snakemake imports what is installed, and this is its half.
    from snakemake import cli

    _serve()
