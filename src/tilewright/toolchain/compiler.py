"""The HIP compiler: where it is, and one run of it under limits of time and memory."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.cache import default_folder
from tilewright.errors import UserError
from tilewright.settings.compile import CompileSettings

HOW = "install ROCm, run `make toolchain`, or set compile.compiler to the path of hipcc"
_NO_SPACE = "No space left on device"
_NO_MEMORY = ("out of memory", "std::bad_alloc", "Cannot allocate memory", "failed to allocate")


def rocm_folders() -> list[Path]:
    """Return where a ROCm install would be: ``$ROCM_PATH``, then ``/opt/rocm``."""
    named = os.environ.get("ROCM_PATH", "")
    return [Path(folder) for folder in dict.fromkeys((named, "/opt/rocm")) if folder]


def brought_compiler() -> Path:
    """Return where ``make toolchain`` puts its compiler."""
    return default_folder() / "toolchain" / "bin" / "hipcc"


@dataclass(frozen=True)
class Compiler:
    """A HIP compiler that answered."""

    path: Path
    origin: str
    """Where it was found, in words."""
    version: str
    """What it says of itself, without the folder it lies in."""


def find(settings: CompileSettings) -> Compiler:
    """Return the compiler of the settings, of ROCm, of PATH or of ``make toolchain``, in this order."""
    if settings.compiler:
        return _asked(Path(settings.compiler).expanduser(), "compile.compiler")
    on_path = shutil.which("hipcc")
    places = [(folder / "bin/hipcc", "ROCm install") for folder in rocm_folders()]
    places += [(Path(on_path), "PATH")] if on_path else []
    places += [(brought_compiler(), "make toolchain")]
    for path, origin in places:
        if path.is_file():
            return _asked(path, origin)
    raise UserError(f"no HIP compiler in {', '.join(str(path) for path, _ in places)}; {HOW}")


def _asked(path: Path, origin: str) -> Compiler:
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"{origin}: {path} --version does not answer ({error}); {HOW}") from error
    lines = [line for line in answer.stdout.splitlines() if line.strip() and not line.startswith("InstalledDir")]
    if not lines:
        raise UserError(f"{origin}: {path} --version says nothing; {HOW}")
    return Compiler(path, origin, "\n".join(lines))


@dataclass(frozen=True)
class Run:
    """What became of one run of the compiler."""

    outcome: str
    """ok, error, timeout or memory."""
    log: str
    seconds: float
    """CPU seconds of the run and all that it started."""
    peak_mib: float
    """Largest resident memory of one of its processes."""


def run(command: Sequence[str | Path], folder: Path, timeout: float, memory_mib: int) -> Run:
    """Run a command in ``folder``; a full disk is a ``UserError``, everything else a result.

    The processes of the run are one group, which ends with the time.
    """
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20)),
        )  # fmt: skip
        expired = threading.Event()
        timer = threading.Timer(timeout, _expire, (process.pid, expired))
        timer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        finally:
            timer.cancel()
        log.seek(0)
        text = log.read().decode(errors="replace")
    if _NO_SPACE in text:
        raise UserError(f"the disk of {folder} is full: the compiler cannot write there; free space or set TMPDIR")
    outcome = _outcome(process.returncode, text, expired.is_set())
    return Run(outcome, text, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def _expire(group: int, expired: threading.Event) -> None:
    expired.set()
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return  # It has ended just now.


def _outcome(status: int, log: str, expired: bool) -> str:
    if status == 0:
        return "ok"
    if expired:
        return "timeout"
    # The system's own out-of-memory killer leaves no words.
    if status in (-signal.SIGKILL, 128 + signal.SIGKILL) or any(words in log for words in _NO_MEMORY):
        return "memory"
    return "error"
