"""The toolchain for AMD GPUs: the device pass alone, of several kernels a unit."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from tileseer.build import compiler, instructions, machine_code, reading
from tileseer.build.base import CompileUnit
from tileseer.build.batches import BatchToolchain
from tileseer.build.machine_code import KernelCode
from tileseer.core.errors import UserError
from tileseer.core.reading import LARGEST_OBJECT, read_bytes, read_utf8
from tileseer.libraries.registry import emitter_of

DEVICE_PASS = ("-DTILESEER_TYPES_ONLY", "--cuda-device-only", "-S")
DIAGNOSTICS = ("-ftemplate-backtrace-limit=0", "-ferror-limit=0", "-fno-crash-diagnostics")
_ERROR_START = re.compile(r"^(?=\S+: error: )", re.M)
_INSTANTIATION_NOTE = re.compile(r"^(?:\./)?(\S+?):\d+:\d+: note: in instantiation (?:.*\bprobe_(\d+)\b)?", re.M)
_BACKEND = re.compile(r"^In function: \w*?\d+probe_(\d+)(?:5Probe|6Adding)", re.M)
"""What the back end prints behind an error of its own: it stops at the first."""
_NO_HEADER = re.compile(r"'((?!hip/)\w+/[^']+)' file not found")
_NO_TOOLCHAIN = re.compile(
    r"(cannot find (ROCm device library|HIP runtime|ROCm installation)|'hip/[^']+' file not found|invalid target ID"
    r"|unsupported HIP gpu architecture|no available targets are compatible).*"
)
"""What clang prints where its HIP parts are missing, or where it does not know the arch."""


class HipccToolchain(BatchToolchain):
    """Compiles for one arch against one tree of headers."""

    result_format = "hipcc-result-6"
    passes: ClassVar[tuple[str, ...]] = DEVICE_PASS

    def identity(self) -> str:
        """Return what a result depends on besides the unit: compiler, version and flags; a part of the kernel id."""
        return "\n".join(("hipcc", self.compiler.version, *compiler.HIPCC_FLAGS, *self.passes))

    def blamed(self, units: Sequence[CompileUnit], log: str) -> dict[int, str]:
        """Return the log of each kernel in the notes of an error: the failing templates are instantiated for it."""
        names = {unit.header_file: index for index, unit in enumerate(units)}
        texts: dict[int, str] = {}
        for text in _ERROR_START.split(log)[1:]:
            for header, probe in _INSTANTIATION_NOTE.findall(text):
                index = int(probe) if probe else names.get(header)
                if index is not None:
                    texts.setdefault(index, text)
        if match := _BACKEND.search(log):
            texts.setdefault(int(match[1]), log)
        return texts

    def run(self, units: Sequence[CompileUnit]) -> tuple[compiler.Run, list[KernelCode]]:
        """Compile units in one run, to assembly and from there to a code object."""
        arch = units[0].arch
        with compiler.workspace(device_files(units)) as folder:
            run = self.device_pass(arch, folder, len(units))
            if run.outcome != "ok":
                return run, []
            if not (folder / "unit.s").exists():
                return replace(run, outcome="broken", log="it wrote nothing"), []
            linked = self.call(
                ["-x", "assembler", "--target=amdgcn-amd-amdhsa", f"-mcpu={arch}", "unit.s", "-o", "unit.co"], folder
            )
            if linked.outcome != "ok":
                # An error in its own output is no error of a kernel's text.
                outcome = "broken" if linked.outcome == "error" else linked.outcome
                return replace(linked, outcome=outcome), []
            try:
                return run, _kernels(folder, units)
            except ValueError as error:
                return replace(run, outcome="broken", log=str(error)), []

    def read(self, unit: CompileUnit) -> str:
        """Return the digest of headers, of libraries of device code, and of what the environment makes of the flags."""
        return reading.digest(self, unit.header, self._arguments(unit.arch))

    def _arguments(self, arch: str) -> list[str | Path]:
        return [*compiler.HIPCC_FLAGS, *self.passes, "-I", self.tree.include, "-I", ".", f"--offload-arch={arch}"]

    def device_pass(self, arch: str, folder: Path, kernels: int) -> compiler.Run:
        """Compile the unit in ``folder`` to assembly; ``UserError`` if compiler or tree are not whole."""
        run = self.call([*self._arguments(arch), *DIAGNOSTICS, "unit.cpp", "-o", "unit.s"], folder, kernels)
        if run.outcome == "ok":
            return run
        if match := _NO_HEADER.search(run.log):
            raise UserError(
                f"{self.tree.include}: this tree has no {match[1]}; set ck.root to a whole tree, "
                "and ck.api to auto or to the level of the tree"
            )
        if match := _NO_TOOLCHAIN.search(run.log):
            raise UserError(f"{self.compiler.path}: cannot compile for {arch}: {match[0]}; {self.compiler.vendor.how}")
        return run


def device_files(units: Sequence[CompileUnit]) -> dict[str, bytes]:
    """Return the files of a device pass by name: the headers of ``units``, and ``unit.cpp``, which includes them."""
    headers = [unit.header.decode() for unit in units]
    kernels = [unit.kernel for unit in units]
    text = emitter_of(kernels).device_source(kernels, headers)
    return {unit.header_file: unit.header for unit in units} | {"unit.cpp": text.encode()}


def _kernels(folder: Path, units: Sequence[CompileUnit]) -> list[KernelCode]:
    """Return the code and instructions of each probe of a compiled unit; ``ValueError`` if one is not there."""
    if not (folder / "unit.co").exists():
        raise ValueError("there is no code object")
    listings = instructions.listings(read_utf8(folder / "unit.s", LARGEST_OBJECT))
    codes = {}
    for symbol, code in machine_code.amd_kernels(read_bytes(folder / "unit.co", LARGEST_OBJECT)).items():
        # The probe's type in the mangled name: its length, then its name.
        match = re.search(r"\d+probe_(\d+)5Probe", symbol)
        if match and symbol in listings:
            resources = replace(code.resources, instructions=dict(listings[symbol]))
            codes[int(match[1])] = replace(code, resources=resources)
    if missing := set(range(len(units))) - set(codes):
        raise ValueError(f"the code object lacks {len(missing)} of {len(units)} kernels")
    return [codes[index] for index in range(len(units))]
