"""Compiler commands that build driver and modules from workflow/native, for each backend."""

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tileseer.core.errors import UserError

NATIVE_SOURCES = Path("workflow/native")
DRIVER_SOURCE = "conv_library.cpp"
STAND_IN_SOURCE = "hip_stand_in.cpp"


def library_command(
    backend: str, compiler: str, arch: str, sources: Sequence[Path], output: Path, include: Path = NATIVE_SOURCES
) -> list[str]:
    """Return the command that makes one shared library of C++ sources; the host backend ignores ``arch``."""
    common = ["-std=c++17", "-O2", f"-I{include}", f"-DTILESEER_{backend.upper()}"]
    common.append(f'-DTILESEER_SOURCES="{sources_digest(include)}"')
    # CUDA: the shared runtime, for driver and modules have to agree on what is current.
    language = {
        "cuda": ["-x", "cu", f"-arch={arch}", "-cudart", "shared", "-Xcompiler", "-fPIC"],
        "hip": ["-x", "hip", f"--offload-arch={arch}", "-fPIC"],
        "host": ["-fPIC"],
        "emulated": ["-x", "hip", "--cuda-host-only", "-D__HIP_PLATFORM_AMD__", "-fPIC"],
    }
    return [compiler, *common, *language[backend], "-shared", *map(str, sources), "-o", str(output)]


def sources_digest(include: Path = NATIVE_SOURCES) -> str:
    """Return the digest (16 hex digits) of the driver's sources: a part of its version, on which times depend."""
    digest = hashlib.sha256()
    for path in sorted(include.glob("*.[ch]pp")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def run_command(command_: Sequence[str]) -> None:
    """Run a compiler; its failure is a ``UserError`` with the end of what it printed."""
    try:
        run = subprocess.run(command_, capture_output=True, encoding="utf-8", errors="replace", check=False)
    except OSError as error:
        raise UserError(f"{command_[0]}: cannot be run: {error.strerror}") from error
    if run.returncode:
        raise UserError(f"{' '.join(command_)}: exit status {run.returncode}\n{run.stderr[-2000:]}")
