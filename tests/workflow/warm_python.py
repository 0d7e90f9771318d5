"""Python programs in forks of a process that has imported the large packages: starting one costs a tenth.

This module imports nothing of Tileseer: the workflow brings its own. All forks share one seed of hashes, so a test of
equal bytes starts its programs for real.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

PACKAGES = (
    "jinja2", "lightgbm", "numpy", "pandas", "pyarrow.compute", "pyarrow.csv", "pyarrow.parquet", "pydantic",
    "snakemake.cli", "snakemake_executor_plugin_slurm", "yaml",
)  # fmt: skip
SHIM = """#!{python} -IS
import json, os, signal, socket, sys

words = sys.argv[1:]
if not words or words[0].startswith("-"):
    os.execv(sys.executable, ["python", *words])
descriptors = [int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{{name}}")]
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect({path!r})
    request = [words, os.getcwd(), dict(os.environ), descriptors]
    socket.send_fds(server, [json.dumps(request).encode()], descriptors)
    status = int(server.recv(20))
if status < 0:
    if status != -signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
raise SystemExit(status)
"""
"""The program ``python``: what it has open and its command line go to the server; it ends as the server's fork does."""
LONGEST_REQUEST = 1 << 20
FREE = 100
"""No file descriptor that a program expects has this number or a higher one."""


def run(words, folder, environment, **options) -> subprocess.CompletedProcess[str]:
    """Start a Python program in ``folder`` with these words and wait for its end; its jobs' ``python`` is warm too."""
    return subprocess.run([_shim(), *words], cwd=folder, env=_with_shim(environment), text=True, **options)


def start(words, folder, environment) -> subprocess.Popen[str]:
    """Start a Python program, in whose output are its errors as well; it ends where the process is killed."""
    together = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([_shim(), *words], cwd=folder, env=_with_shim(environment), **together)


def _with_shim(environment):
    return {**environment, "PATH": f"{os.path.dirname(_shim())}{os.pathsep}{environment['PATH']}"}


@cache
def _shim() -> str:
    """Path of a program ``python`` that lets a server do the work; the server ends with this process."""
    folder = tempfile.TemporaryDirectory()
    path, shim = f"{folder.name}/socket", Path(folder.name, "python")
    shim.write_text(SHIM.format(python=sys.executable, path=path))
    shim.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    # Threads of a library do not live on in a fork.
    environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    server = subprocess.Popen(
        [sys.executable, __file__, path], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    server.stdout.readline()
    atexit.register(lambda: (server.stdin.close(), server.wait(), folder.cleanup()))
    return str(shim)


def _serve(path: str) -> None:
    """Fork for each request, and answer with the exit status. A program whose asker died is killed."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(64)
    print("ready", flush=True)
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        askers = {asker: pid for pid, asker in running.values()}
        ready, _, _ = select.select([sys.stdin, listener, *running, *askers], [], [])
        if sys.stdin in ready:
            return
        for end in running.keys() & {*ready}:
            pid, asker = running.pop(end)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with suppress(OSError):
                asker.send(str(status).encode())
            asker.close()
            os.close(end)
        for asker in askers.keys() & {*ready}:
            with suppress(ProcessLookupError):
                os.killpg(askers[asker], signal.SIGKILL)
        if listener in ready:
            asker, _ = listener.accept()
            request, descriptors, _, _ = socket.recv_fds(asker, LONGEST_REQUEST, FREE)
            pid = os.fork()
            if not pid:
                return _become(descriptors, *json.loads(request))
            for descriptor in descriptors:
                os.close(descriptor)
            running[os.pidfd_open(pid)] = pid, asker


def _become(descriptors: list[int], words: list[str], folder: str, environment: dict[str, str], numbers: list[int]):
    """Be what starting the program would have started."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # Out of the way first, since one may have the number that another is to have.
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, FREE) for each in descriptors]
    for descriptor, number in zip(moved, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.argv = words
    sys.path[:1] = [os.path.dirname(words[0]), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    for package in PACKAGES:
        import_module(package)
    gc.collect()
    gc.freeze()
    _serve(sys.argv[1])
