"""The vendor's compiler: where it is, and one run of it under limits of time and memory."""

import importlib.util
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tileseer.build.source_trees import HeaderTree
from tileseer.core.cache import Cache
from tileseer.core.errors import UserError
from tileseer.core.reading import read_bytes
from tileseer.facts.compile import CompileSettings
from tileseer.libraries.source_tree import brought, folders, rocm_folders

NATIVE_SOURCES = Path("workflow/native")
_ERROR_LINE = re.compile(r"(?:(?:fatal )?error|ptxas fatal) *(?:#[\w-]+)?: (.*)")
_NO_SPACE = "No space left on device"
_NO_MEMORY = ("out of memory", "std::bad_alloc", "Cannot allocate memory", "failed to allocate")
_CRASHED = ("PLEASE submit a bug report", "command failed due to signal", "died due to signal")
"""What the drivers of clang and nvcc print when a signal ended a part of theirs."""
_SIGNALS = frozenset(
    (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGTERM)
)


@dataclass(frozen=True)
class Run:
    """Result of one run of the compiler."""

    outcome: str
    """ok, error, crash, timeout, memory, or broken: it ended without an error, but what it wrote cannot be used."""
    log: str


@dataclass(frozen=True)
class Vendor:
    """One of the compilers that there are."""

    program: str
    backend: str
    """Its backend of the measuring driver."""
    what: str
    says: str
    """Pattern in what its ``--version`` prints, in whatever case."""
    how: str
    """How to get it, for messages."""
    places: Callable[[], list[tuple[Path, str]]]
    """Where it would be, in the order of search, and what that is called."""


LARGEST_SCRIPT = 1 << 20
"""Bytes; a compiler itself is larger."""


@dataclass(frozen=True)
class Compiler:
    """A compiler that answered."""

    path: Path
    origin: str
    """Where it was found, in words."""
    version: str
    """What it prints of itself, without the folder it lies in."""
    vendor: Vendor

    def script(self) -> bytes:
        """Return the compiler's text if it is a script around one: that prints the same version, and may do more."""
        return read_bytes(self.path) if self.path.stat().st_size <= LARGEST_SCRIPT else b""

    def run(self, arguments: Sequence[str | Path], folder: Path, timeout: float, memory_mib: int) -> Run:
        """Run it in ``folder``. ``UserError``: it cannot be started, or the disk is full.

        The processes of the run are one group, which ends with the time.
        """
        # In memory: on a full disk there would be no room to say so.
        with os.fdopen(os.memfd_create("compiler output"), "w+b") as log:
            try:
                process = subprocess.Popen(
                    [self.path, *arguments],
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20)),
                )
            except OSError as error:
                raise UserError(f"{self.path}: cannot be run: {error.strerror}; {self.vendor.how}") from error
            expired = False
            try:
                process.wait(timeout)
            except BaseException as error:
                # Not reaped yet, so the number of the group is still its own.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                expired = isinstance(error, subprocess.TimeoutExpired)
                if not expired:
                    raise
            log.seek(0)
            text = log.read().decode(errors="replace")
        if _NO_SPACE in text:
            raise UserError(f"the disk of {folder} is full: the compiler cannot write there; free space or set TMPDIR")
        return Run(_outcome(process.returncode, text, expired), text)


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


@dataclass(eq=False)
class Builder:
    """What every use of a compiler needs. ``native`` holds the sources of driver and launchers (workflow/native)."""

    compiler: Compiler
    tree: HeaderTree
    settings: CompileSettings
    cache: Cache
    native: Path

    def call(self, arguments: Sequence[str | Path], folder: Path, kernels: float = 1) -> Run:
        """Run the compiler in ``folder`` under the limits of the settings, for so many kernels."""
        timeout = self.settings.timeout_seconds * kernels
        return self.compiler.run(arguments, folder, timeout, self.settings.memory_mib)


@contextmanager
def workspace(files: Mapping[str, bytes]) -> Iterator[Path]:
    """Yield a temporary folder with ``files``, contents by name; ``UserError`` if they cannot be written there."""
    with tempfile.TemporaryDirectory(prefix="tileseer-") as name:
        try:
            for path, content in files.items():
                Path(name, path).write_bytes(content)
        except OSError as error:
            raise UserError(f"{name}: cannot be written: {error.strerror}; free space or set TMPDIR") from error
        yield Path(name)


def _on_path(program: str) -> list[tuple[Path, str]]:
    path = shutil.which(program)
    return [(Path(path), "PATH")] if path else []


def _cuda_packages() -> list[tuple[Path, str]]:
    # NVIDIA's wheels share one namespace package, with a folder a major version.
    spec = importlib.util.find_spec("nvidia")
    roots = spec.submodule_search_locations if spec else None
    folders = sorted(path for root in roots or () for path in Path(root).glob("cu[0-9]*"))
    return [(folder / "bin/nvcc", "PyPI package nvidia-cuda-nvcc") for folder in folders]


HIPCC = Vendor(
    "hipcc",
    "hip",
    "HIP compiler",
    "clang|hip",
    "install ROCm, run `make toolchain`, or set compile.compiler to the path of hipcc",
    lambda: [
        *((folder / "bin/hipcc", "ROCm install") for folder in rocm_folders()),
        *_on_path("hipcc"),
        (brought("toolchain") / "bin/hipcc", "make toolchain"),
    ],
)
NVCC = Vendor(
    "nvcc",
    "cuda",
    "CUDA compiler",
    "cuda|nvcc",
    "install CUDA, run `make cuda-toolchain`, or set compile.compiler to the path of nvcc",
    lambda: [
        *((path / "bin/nvcc", "CUDA install") for path in folders("CUDA_HOME", "CUDA_PATH", default="/usr/local/cuda")),
        *_on_path("nvcc"),
        *_cuda_packages(),
        (brought("cuda-toolchain") / "bin/nvcc", "make cuda-toolchain"),
    ],
)
_WARNINGS = ("-Wno-undefined-func-template", "-Wno-float-equal")
HIPCC_FLAGS = ("-O3", "-fPIC", "-D__HIP_PLATFORM_AMD__", "-mllvm", "-enable-noalias-to-md-conversion=0", *_WARNINGS)
"""The reference's flags, so that the code is the reference's."""
WITHOUT_ID = "-fuse-cuid=none"
HIP_FLAGS = ("-x", "hip", "-DTILESEER_HIP", WITHOUT_ID, *HIPCC_FLAGS)
# The warnings are about the kernel library's own headers.
CUDA_FLAGS = ("-O3", "-x", "cu", "-DTILESEER_CUDA", "-Xcompiler", "-fPIC", "--disable-warnings")
VENDORS = {vendor.program: vendor for vendor in (HIPCC, NVCC)}


def arch_options(vendor: Vendor, arch: str) -> list[str]:
    """Return the options that ask for machine code of one arch, and of no other."""
    if vendor is NVCC:
        return ["-gencode", f"arch=compute_{arch.removeprefix('sm_')},code={arch}"]
    return [f"--offload-arch={arch}"]


def flags_of(vendor: Vendor) -> tuple[str, ...]:
    """Return the options of objects that have kernels, besides folders and arch."""
    return ("-std=c++17", *(CUDA_FLAGS if vendor is NVCC else HIP_FLAGS))


def program_flags(vendor: Vendor) -> tuple[str, ...]:
    """Return the options of a program that has kernels: its linker needs an id for each object."""
    return tuple(flag for flag in flags_of(vendor) if flag != WITHOUT_ID)


def find_compiler(settings: CompileSettings) -> Compiler:
    """Return the compiler of the settings, of an install, of PATH or of a package, in this order.

    Where the toolchain is ``none``, it is hipcc that is looked for.
    """
    return find_vendor_compiler(VENDORS.get(settings.toolchain, HIPCC), settings.compiler)


def find_vendor_compiler(vendor: Vendor, named: str | None = None) -> Compiler:
    """Return one vendor's compiler; ``named`` is the path that the settings give."""
    if named:
        return _asked(Path(named).expanduser(), "compile.compiler", vendor)
    places = vendor.places()
    for path, origin in places:
        if path.is_file():
            return _asked(path, origin, vendor)
    raise UserError(f"no {vendor.what} in {', '.join(str(path) for path, _ in places)}; {vendor.how}")


def _asked(path: Path, origin: str, vendor: Vendor) -> Compiler:
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"{origin}: {path} --version does not answer ({error}); {vendor.how}") from error
    lines = [line for line in answer.stdout.splitlines() if line.strip() and not line.startswith("InstalledDir")]
    if not lines:
        raise UserError(f"{origin}: {path} --version prints nothing; {vendor.how}")
    if not re.search(vendor.says, answer.stdout, re.IGNORECASE):
        raise UserError(f"{origin}: {path} is no {vendor.what}: its --version prints {lines[0]!r}; {vendor.how}")
    return Compiler(path, origin, "\n".join(lines), vendor)


def first_error(log: str) -> str:
    """Return the first error of a compiler's output, without the place; its last line if none is marked."""
    if match := _ERROR_LINE.search(log):
        return match[1].strip()
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1] if lines else "the compiler failed without a message"
