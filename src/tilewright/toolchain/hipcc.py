"""The toolchain that compiles: several kernels a unit, the device pass alone, every result kept by content.

A result depends on the emitted text without the kernel's name, the headers of the CK tree that it includes, the
compiler, the flags and the arch, and on nothing else; what was compiled once is found in the cache afterwards. Kernels
of a unit share the templates that they instantiate. A unit that fails is divided until every kernel has its own
verdict.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from tilewright import cache as caches
from tilewright.errors import UserError
from tilewright.hardware import Hardware
from tilewright.kernel import name
from tilewright.settings.compile import CompileSettings
from tilewright.toolchain import code_object, compiler
from tilewright.toolchain.base import CompileResult, CompileUnit, InstructionMix, Resources
from tilewright.toolchain.ck_tree import CkTree
from tilewright.toolchain.occupancy import blocks_per_cu

FLAGS = (
    "-O3", "-fPIC", "-D__HIP_PLATFORM_AMD__", "-mllvm", "-enable-noalias-to-md-conversion=0",
    "-Wno-undefined-func-template", "-Wno-float-equal",
)  # fmt: skip
"""The reference's flags, so that the code is the reference's."""
DEVICE_PASS = ("-DTILEWRIGHT_TYPES_ONLY", "--cuda-device-only", "-S")
_RESULT_FORMAT = "hipcc-result-1"
_DETERMINISTIC = ("ok", "compile_error")
"""Statuses that another run would give again; a time-out depends on the machine and is not kept."""
_STATUS = {"error": "compile_error", "timeout": "compile_timeout", "memory": "compile_memory"}
_UNKNOWN = Resources("code_object")
_ERROR = re.compile(r"(?:fatal )?error: (.*)")
_NAMED = re.compile(r"\bprobe_(\d+)\b")
_PROBE = """\
namespace probe_{index} {{
// A type of its own gives every kernel a symbol of its own, also where the types are the same.
struct Probe : ns_{name}::{name}_Launcher::Kernel {{}};
void launch(const ns_{name}::{name}_Launcher::HostArgs& args)
{{
    ck_tile::make_kernel<ns_{name}::Config::kBlockPerCu>(Probe{{}}, dim3(), dim3(), 0, Probe::MakeKernelArgs(args))(
        ck_tile::stream_config{{}});
}}
}} // namespace probe_{index}
"""


class HipccToolchain:
    """Compiles for one arch against one CK tree."""

    def __init__(
        self, found: compiler.Compiler, tree: CkTree, settings: CompileSettings, hardware: Hardware, cache: caches.Cache
    ) -> None:
        self._compiler = found
        self._tree = tree
        self._settings = settings
        self._hardware = hardware
        self._cache = cache
        self.runs = 0
        """How many times the compiler has run."""

    def identity(self) -> str:
        """Return compiler and flags."""
        return "\n".join(("hipcc", self._compiler.version, *FLAGS, *DEVICE_PASS))

    def compile(self, units: Sequence[CompileUnit]) -> list[CompileResult]:
        """Compile what the cache does not know; results are in the order of ``units``."""
        keys = [self.key(unit) for unit in units]
        results = {key: self._kept(key) for key in set(keys)}
        # Kernels with the same text are one kernel with several names: it is compiled once.
        missing = {key: unit for key, unit in zip(keys, units, strict=True) if results[key] is None}
        for batch in self._batches(missing):
            for key, result in zip(batch, self._compiled([missing[key] for key in batch]), strict=True):
                results[key] = result
                self._keep(key, result)
        return [_in_this_hardware(_found(results[key]), self._hardware) for key in keys]

    def key(self, unit: CompileUnit) -> str:
        """Return what the result is kept under."""
        text = unit.header.replace(name(unit.kernel).encode(), b"KERNEL")
        return caches.key(_RESULT_FORMAT, self.identity(), unit.arch, text, self._tree.digest(unit.header))

    def _batches(self, missing: dict[str, CompileUnit]) -> list[list[str]]:
        """Group kernels that include the same headers; neighbours in a unit are as alike as the names are."""
        groups: dict[str, list[str]] = defaultdict(list)
        for key, unit in sorted(missing.items(), key=lambda item: name(item[1].kernel)):
            groups[self._tree.digest(unit.header)].append(key)
        size = self._settings.batch
        return [group[start : start + size] for group in groups.values() for start in range(0, len(group), size)]

    def _compiled(self, units: Sequence[CompileUnit]) -> list[CompileResult]:
        run, built = self._run(units)
        if run.outcome == "ok":
            share = replace(run, seconds=run.seconds / len(units))
            return [_result(code, mix, share) for code, mix in built]
        if len(units) == 1:
            return [_failure(units[0], replace(run, log=run.log.replace(f"{self._tree.include}/", "")))]
        suspects = {int(index) for index in _NAMED.findall(run.log)} if run.outcome == "error" else set()
        if not suspects or len(suspects) == len(units):
            suspects = set(range(len(units) // 2))
        results: dict[int, CompileResult] = {}
        for part in (sorted(suspects), sorted(set(range(len(units))) - suspects)):
            results |= zip(part, self._compiled([units[index] for index in part]), strict=True)
        return [results[index] for index in range(len(units))]

    def _run(
        self, units: Sequence[CompileUnit]
    ) -> tuple[compiler.Run, list[tuple[code_object.CodeKernel, InstructionMix]]]:
        """Compile units in one run, in a folder that is gone afterwards."""
        self.runs += 1
        with tempfile.TemporaryDirectory(prefix="tilewright-") as temporary:
            folder = Path(temporary)
            includes = [f'#include "{name(unit.kernel)}.hpp"\n' for unit in units]
            probes = [_PROBE.format(index=index, name=name(unit.kernel)) for index, unit in enumerate(units)]
            try:
                for unit in units:
                    (folder / f"{name(unit.kernel)}.hpp").write_bytes(unit.header)
                (folder / "unit.cpp").write_text("".join(includes + probes))
            except OSError as error:
                raise UserError(f"{folder}: cannot be written: {error.strerror}; free space or set TMPDIR") from error
            run = self._call(
                [*FLAGS, *DEVICE_PASS, "-ftemplate-backtrace-limit=0", "-I", str(self._tree.include), "-I", ".",
                 f"--offload-arch={units[0].arch}", "unit.cpp", "-o", "unit.s"],
                folder, self._settings.timeout_seconds * len(units),
            )  # fmt: skip
            if run.outcome != "ok":
                return run, []
            linked = self._call(
                ["-x", "assembler", "--target=amdgcn-amd-amdhsa", f"-mcpu={units[0].arch}", "unit.s", "-o", "unit.co"],
                folder, self._settings.timeout_seconds,
            )  # fmt: skip
            if linked.outcome != "ok":
                raise UserError(f"{self._compiler.path}: assembling its own output fails: {_first_error(linked.log)}")
            total = replace(run, seconds=run.seconds + linked.seconds)
            return total, _read(folder, len(units))

    def _call(self, arguments: Sequence[str], folder: Path, timeout: float) -> compiler.Run:
        try:
            return compiler.run([self._compiler.path, *arguments], folder, timeout, self._settings.memory_mib)
        except OSError as error:
            raise UserError(f"{self._compiler.path}: cannot be run: {error.strerror}; {compiler.HOW}") from error

    def _kept(self, key: str) -> CompileResult | None:
        content = self._cache.get(key)
        return None if content is None else _from_json(content)

    def _keep(self, key: str, result: CompileResult) -> None:
        if result.status in _DETERMINISTIC:
            self._cache.put(key, _to_json(result))


def _found(result: CompileResult | None) -> CompileResult:
    assert result is not None, "every key has a result by now"
    return result


def _read(folder: Path, count: int) -> list[tuple[code_object.CodeKernel, InstructionMix]]:
    """Return code and instructions of each probe of a compiled unit."""
    mixes = code_object.instruction_mixes((folder / "unit.s").read_text())
    found = {}
    for symbol, kernel in code_object.kernels((folder / "unit.co").read_bytes()).items():
        # The probe's type in the mangled name: its length, then its name.
        if match := re.search(r"\d+probe_(\d+)5Probe", symbol):
            found[int(match[1])] = kernel, mixes[symbol]
    return [found[index] for index in range(count)]


def _result(code: code_object.CodeKernel, mix: InstructionMix, run: compiler.Run) -> CompileResult:
    resources = Resources(
        source="code_object", vgprs=float(code.vgprs), lds_bytes=code.lds_bytes, occupancy=None, agprs=code.agprs,
        sgprs=code.sgprs, scratch_bytes=code.scratch_bytes, vgpr_spills=code.vgpr_spills, sgpr_spills=code.sgpr_spills,
        threads=code.threads, code_bytes=code.code_bytes, mix=mix,
    )  # fmt: skip
    return CompileResult(
        status="ok", reason="", artefact=None, resources=resources, log="", seconds=run.seconds,
        peak_mib=run.peak_mib, code_hash=code.code_hash,
    )  # fmt: skip


def _failure(unit: CompileUnit, run: compiler.Run) -> CompileResult:
    reasons = {"error": _first_error(run.log), "timeout": "the compiler was stopped after compile.timeout_seconds"}
    reasons["memory"] = "the compiler needs more than compile.memory_mib"
    reason = reasons[run.outcome].replace(name(unit.kernel), "KERNEL")
    return CompileResult(
        status=_STATUS[run.outcome], reason=reason, artefact=None, resources=_UNKNOWN, log=run.log,
        seconds=run.seconds, peak_mib=run.peak_mib, error_digest=hashlib.sha256(reason.encode()).hexdigest()[:16],
    )  # fmt: skip


def _first_error(log: str) -> str:
    """Return the first error of a compiler's output, without the place; its last line if none is marked."""
    if match := _ERROR.search(log):
        return match[1].strip()
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1] if lines else "the compiler failed and said nothing"


def _in_this_hardware(result: CompileResult, hardware: Hardware) -> CompileResult:
    """Add what depends on the GPU product and not on the code; a block that does not fit is a ``resource_limit``."""
    r = result.resources
    if result.status != "ok" or r.threads is None or r.vgprs is None or r.lds_bytes is None:
        return result
    occupancy = blocks_per_cu(r.threads, int(r.vgprs) + (r.agprs or 0), r.lds_bytes, hardware)
    resources = replace(r, occupancy=occupancy)
    if occupancy >= 1:
        return replace(result, resources=resources)
    reason = f"not one block fits on a compute unit: {r.threads} threads, {r.lds_bytes} bytes of LDS"
    return replace(result, resources=resources, status="resource_limit", reason=reason)


def _to_json(result: CompileResult) -> bytes:
    content = asdict(replace(result, log="", artefact=None))
    return json.dumps(content, sort_keys=True).encode()


def _from_json(content: bytes) -> CompileResult:
    fields = json.loads(content)
    resources = fields.pop("resources")
    mix = resources.pop("mix")
    made = Resources(mix=InstructionMix(**mix) if mix else None, **resources)
    return CompileResult(resources=made, **fields)
