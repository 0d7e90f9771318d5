"""The toolchain for AMD GPUs: the device pass alone, of several kernels a unit."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tileseer.compile import compiler, machine_code
from tileseer.compile.base import CompileUnit
from tileseer.compile.batches import BatchToolchain
from tileseer.compile.machine_code import Code
from tileseer.core.errors import UserError
from tileseer.families.registration import header_file
from tileseer.families.registry import of_arch

FLAGS = (
    "-O3", "-fPIC", "-D__HIP_PLATFORM_AMD__", "-mllvm", "-enable-noalias-to-md-conversion=0",
    "-Wno-undefined-func-template", "-Wno-float-equal",
)  # fmt: skip
"""The reference's flags, so that the code is the reference's."""
DEVICE_PASS = ("-DTILESEER_TYPES_ONLY", "--cuda-device-only", "-S")
_NAMED = re.compile(r"\bprobe_(\d+)\b")
_NO_HEADER = re.compile(r"'((?!hip/)\w+/[^']+)' file not found")
_NO_TOOLCHAIN = re.compile(
    r"(cannot find (ROCm device library|HIP runtime|ROCm installation)|'hip/[^']+' file not found|invalid target ID"
    r"|unsupported HIP gpu architecture|no available targets are compatible).*"
)
"""What clang prints where its HIP parts are missing, or where it does not know the arch."""


class HipccToolchain(BatchToolchain):
    """Compiles for one arch against one tree of headers."""

    result_format = "hipcc-result-2"

    def identity(self) -> str:
        """Compiler and flags."""
        return "\n".join(("hipcc", self.compiler.version, *FLAGS, *DEVICE_PASS))

    def suspects(self, units: Sequence[CompileUnit], log: str) -> set[int]:
        """Probes that the log names."""
        return {int(index) for index in _NAMED.findall(log)}

    def run(self, units: Sequence[CompileUnit]) -> tuple[compiler.Run, list[Code]]:
        """Compile units in one run, to assembly and from there to a code object."""
        arch = units[0].arch
        text = of_arch(arch).part("build").device_source([unit.kernel for unit in units])
        headers = {header_file(unit.kernel): unit.header for unit in units}
        with compiler.workspace(headers | {"unit.cpp": text.encode()}) as folder:
            run = self.call(
                [*FLAGS, *DEVICE_PASS, "-ftemplate-backtrace-limit=0", "-I", self.tree.include, "-I", ".",
                 f"--offload-arch={arch}", "unit.cpp", "-o", "unit.s"],
                folder, len(units),
            )  # fmt: skip
            if run.outcome != "ok":
                self._raise_if_installed_wrong(run, arch)
                return run, []
            if not (folder / "unit.s").exists():
                return replace(run, outcome="broken", log="it wrote nothing"), []
            linked = self.call(
                ["-x", "assembler", "--target=amdgcn-amd-amdhsa", f"-mcpu={arch}", "unit.s", "-o", "unit.co"], folder
            )
            both = replace(run, seconds=run.seconds + linked.seconds)
            if linked.outcome != "ok":
                # An error in its own output is no error of a kernel's text.
                outcome = "broken" if linked.outcome == "error" else linked.outcome
                return replace(linked, outcome=outcome, seconds=both.seconds), []
            try:
                return both, _kernels(folder, len(units))
            except ValueError as error:
                return replace(run, outcome="broken", log=str(error)), []

    def _raise_if_installed_wrong(self, run: compiler.Run, arch: str) -> None:
        """Raise a ``UserError`` for what is wrong with compiler or tree: it is no verdict on a kernel."""
        if match := _NO_HEADER.search(run.log):
            raise UserError(
                f"{self.tree.include}: this tree has no {match[1]}; set ck.root to a whole tree, "
                "and ck.api to auto or to the level of the tree"
            )
        if match := _NO_TOOLCHAIN.search(run.log):
            raise UserError(f"{self.compiler.path}: cannot compile for {arch}: {match[0]}; {self.compiler.vendor.how}")


def _kernels(folder: Path, count: int) -> list[Code]:
    """Code and instructions of each probe of a compiled unit; ``ValueError`` if one is not there."""
    if not (folder / "unit.co").exists():
        raise ValueError("there is no code object")
    mixes = machine_code.instruction_mixes((folder / "unit.s").read_text())
    found = {}
    for symbol, code in machine_code.amd_kernels((folder / "unit.co").read_bytes()).items():
        # The probe's type in the mangled name: its length, then its name.
        match = re.search(r"\d+probe_(\d+)5Probe", symbol)
        if match and symbol in mixes:
            found[int(match[1])] = replace(code, resources=replace(code.resources, mix=mixes[symbol]))
    if missing := set(range(count)) - set(found):
        raise ValueError(f"the code object lacks {len(missing)} of {count} kernels")
    return [found[index] for index in range(count)]
