"""The vendor's compiler: where it is, and one run of it under limits of time and memory."""

from __future__ import annotations

import importlib.util
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tileseer.core.cache import default_folder
from tileseer.core.errors import UserError
from tileseer.settings.compile import CompileSettings

_NO_SPACE = "No space left on device"
_NO_MEMORY = ("out of memory", "std::bad_alloc", "Cannot allocate memory", "failed to allocate")
_CRASHED = ("PLEASE submit a bug report", "command failed due to signal", "died due to signal")
"""What the drivers of clang and nvcc say of a part of theirs that a signal ended."""
_SIGNALS = frozenset(
    (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGTERM)
)


def rocm_folders() -> list[Path]:
    """Return where a ROCm install would be: ``$ROCM_PATH``, then ``/opt/rocm``."""
    named = os.environ.get("ROCM_PATH", "")
    return [Path(folder) for folder in dict.fromkeys((named, "/opt/rocm")) if folder]


def brought(folder: str) -> Path:
    """Return where ``make toolchain`` (``toolchain``) and ``make cuda-toolchain`` (``cuda-toolchain``) put theirs."""
    return default_folder() / folder


def _hip_places() -> list[tuple[Path, str]]:
    return [(folder / "bin/hipcc", "ROCm install") for folder in rocm_folders()]


def _cuda_places() -> list[tuple[Path, str]]:
    named = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    return [
        (Path(folder) / "bin/nvcc", "CUDA install") for folder in dict.fromkeys((*named, "/usr/local/cuda")) if folder
    ]


def _cuda_packages() -> list[tuple[Path, str]]:
    # NVIDIA's wheels share one namespace package, with a folder a major version.
    found = importlib.util.find_spec("nvidia")
    roots = found.submodule_search_locations if found else None
    folders = sorted(path for root in roots or () for path in Path(root).glob("cu[0-9]*"))
    return [(folder / "bin/nvcc", "PyPI package nvidia-cuda-nvcc") for folder in folders]


@dataclass(frozen=True)
class Vendor:
    """One of the compilers that there are."""

    program: str
    what: str
    says: str
    """A pattern of what its ``--version`` says, in whatever case."""
    how: str
    """How to get it, for messages."""
    installs: Callable[[], list[tuple[Path, str]]]
    """Where an install would have it, and what that is called; asked before PATH."""
    packages: Callable[[], list[tuple[Path, str]]]
    """The same, asked behind PATH."""


HIPCC = Vendor(
    "hipcc",
    "HIP compiler",
    "clang|hip",
    "install ROCm, run `make toolchain`, or set compile.compiler to the path of hipcc",
    _hip_places,
    lambda: [(brought("toolchain") / "bin/hipcc", "make toolchain")],
)
NVCC = Vendor(
    "nvcc",
    "CUDA compiler",
    "cuda|nvcc",
    "install CUDA, run `make cuda-toolchain`, or set compile.compiler to the path of nvcc",
    _cuda_places,
    lambda: [*_cuda_packages(), (brought("cuda-toolchain") / "bin/nvcc", "make cuda-toolchain")],
)
VENDORS = {vendor.program: vendor for vendor in (HIPCC, NVCC)}


@dataclass(frozen=True)
class Compiler:
    """A compiler that answered."""

    path: Path
    origin: str
    """Where it was found, in words."""
    version: str
    """What it says of itself, without the folder it lies in."""
    vendor: Vendor


def find(settings: CompileSettings) -> Compiler:
    """Return the compiler of the settings, of an install, of PATH or of a package, in this order.

    Where the toolchain is ``none``, it is hipcc that is looked for.
    """
    return find_of(VENDORS.get(settings.toolchain, HIPCC), settings.compiler)


def find_of(vendor: Vendor, named: str | None = None) -> Compiler:
    """Return one vendor's compiler; ``named``: the path that the settings give."""
    if named:
        return _asked(Path(named).expanduser(), "compile.compiler", vendor)
    on_path = shutil.which(vendor.program)
    places = [*vendor.installs(), *([(Path(on_path), "PATH")] if on_path else []), *vendor.packages()]
    for path, origin in places:
        if path.is_file():
            return _asked(path, origin, vendor)
    raise UserError(f"no {vendor.what} in {', '.join(str(path) for path, _ in places)}; {vendor.how}")


def _asked(path: Path, origin: str, vendor: Vendor) -> Compiler:
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"{origin}: {path} --version does not answer ({error}); {vendor.how}") from error
    lines = [line for line in answer.stdout.splitlines() if line.strip() and not line.startswith("InstalledDir")]
    if not lines:
        raise UserError(f"{origin}: {path} --version says nothing; {vendor.how}")
    if not re.search(vendor.says, answer.stdout, re.IGNORECASE):
        raise UserError(f"{origin}: {path} is no {vendor.what}: its --version says {lines[0]!r}; {vendor.how}")
    return Compiler(path, origin, "\n".join(lines), vendor)


@dataclass(frozen=True)
class Run:
    """What became of one run of the compiler."""

    outcome: str
    """ok, error, crash, timeout, memory, or broken: it ended without an error, but what it wrote cannot be used."""
    log: str
    seconds: float
    """CPU seconds of the run and all that it started."""
    peak_mib: float
    """Largest resident memory of one of its processes."""


def run(command: Sequence[str | Path], folder: Path, timeout: float, memory_mib: int) -> Run:
    """Run a command in ``folder``; a full disk is a ``UserError``, everything else a result.

    The processes of the run are one group, which ends with the time.
    """
    # In memory: on a full disk there would be no room to say so.
    with os.fdopen(os.memfd_create("compiler output"), "w+b") as log:
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
    if -status in _SIGNALS or status - 128 in _SIGNALS or any(words in log for words in _CRASHED):
        return "crash"
    return "error"
