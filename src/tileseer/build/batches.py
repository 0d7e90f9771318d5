"""The base of the toolchains that compile: several kernels a compiler run, every result kept by content.

A result depends on the emitted text without the kernel's name, the headers that it includes, the compiler, the flags
and the arch, and on nothing else; what was compiled once is found in the cache afterwards. Kernels of a batch share the
templates that they instantiate. A batch that fails is divided until every kernel has its own verdict.
"""

import hashlib
import re
import sys
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pydantic import TypeAdapter

from tileseer.build import compiler
from tileseer.build.base import ESTIMATED_SECONDS, CompileResult, CompileUnit, Resources, Toolchain
from tileseer.build.machine_code import KernelCode
from tileseer.core import cache as caches
from tileseer.core.progress import Progress
from tileseer.facts.hardware import Hardware

_STATUS_OF_OUTCOME = {"timeout": "compile_timeout", "memory": "compile_memory"}
"""Of the outcomes that are no compile_error."""
_REASON_OF_OUTCOME = {
    "crash": "the compiler crashed, twice: {}",
    "broken": "the compiler ended without an error, twice, but its output cannot be used: {}",
    "timeout": "the compiler was stopped after compile.timeout_seconds",
    "memory": "the compiler needs more than compile.memory_mib",
}
"""Of the outcomes that may be the machine's and not the kernel's: they count when they come twice, and are not kept."""
VGPR_GRANULE = 8
"""Vector registers are given to a wave in steps of this many, also to a warp."""
_RESULT = TypeAdapter(CompileResult)
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}")


@dataclass(eq=False)
class BatchToolchain(compiler.Builder, Toolchain, ABC):
    """A toolchain for one arch against one tree of headers."""

    hardware: Hardware

    result_format: ClassVar[str]
    """Name and version of what is kept of a kernel."""

    @abstractmethod
    def run(self, units: Sequence[CompileUnit]) -> tuple[compiler.Run, list[KernelCode]]:
        """Compile units in one run; the list is empty unless it ends well."""

    def blamed(self, units: Sequence[CompileUnit], log: str) -> dict[int, str]:
        """Return the part of a failed run's log about each unit that fails, by index; none if it does not say."""
        return {}

    def compile(self, units: Sequence[CompileUnit]) -> list[CompileResult]:
        """Compile what the cache does not know; results are in the order of ``units``."""
        keys = [self.key(unit) for unit in units]
        kept = ((key, self.cache.get(key)) for key in dict.fromkeys(keys))
        results = {key: _RESULT.validate_json(content) for key, content in kept if content is not None}
        # Kernels with the same text are one kernel with several names: it is compiled once.
        missing = {key: unit for key, unit in zip(keys, units, strict=True) if key not in results}
        key_of = {unit.kernel.name: key for key, unit in missing.items()}
        batches = self.batches(list(missing.values()))
        if missing:
            taken = f"{ESTIMATED_SECONDS * len(missing) / 3600:.2g} CPU hours"
            what = f"{len(missing):,} kernels in {len(batches):,} units, estimated {taken}"
            print(f"compile: {what}", file=sys.stderr, flush=True)
        with Progress("compile", len(missing), "kernels") as progress:
            for batch in batches:
                made = self._compiled(batch)
                for unit, result in zip(batch, made, strict=True):
                    key = key_of[unit.kernel.name]
                    if result.repeatable:
                        self.cache.put(key, _RESULT.dump_json(replace(result, log="")))
                    results[key] = result
                progress.add(len(batch), sum(result.status != "ok" for result in made))
        return [self._in_this_hardware(results[key]) for key in keys]

    def key(self, unit: CompileUnit) -> str:
        """Return the cache key of a unit's result."""
        text = unit.header.replace(unit.kernel.name.encode(), b"KERNEL")
        return caches.key(self.result_format, self.identity(), unit.arch, text, self.read(unit))

    @abstractmethod
    def read(self, unit: CompileUnit) -> str:
        """Return the digest of what the compiler reads for a unit beside its own text."""

    def batches(self, units: Sequence[CompileUnit]) -> list[list[CompileUnit]]:
        """Group kernels that include the same headers; neighbours in a batch are as alike as the names are."""
        groups: dict[str, list[CompileUnit]] = defaultdict(list)
        for unit in sorted(units, key=lambda unit: unit.kernel.name):
            groups[self.read(unit)].append(unit)
        size = self.settings.batch
        return [group[start : start + size] for group in groups.values() for start in range(0, len(group), size)]

    def _compiled(self, units: Sequence[CompileUnit], again: bool = True) -> list[CompileResult]:
        run, built = self.run(units)
        if run.outcome == "ok":
            return [CompileResult("ok", "", code.resources, "", code.hash) for code in built]
        if len(units) == 1:
            if again and run.outcome in _REASON_OF_OUTCOME:
                return self._compiled(units, again=False)
            return [self._failure(units[0], run)]
        blamed = self.blamed(units, run.log) if run.outcome == "error" else {}
        results = {index: self._failure(units[index], replace(run, log=log)) for index, log in blamed.items()}
        rest = [index for index in range(len(units)) if index not in results]
        half = 0 if results else len(units) // 2
        for part in filter(None, (rest[:half], rest[half:])):
            results |= zip(part, self._compiled([units[index] for index in part]), strict=True)
        return [results[index] for index in range(len(units))]

    def _failure(self, unit: CompileUnit, run: compiler.Run) -> CompileResult:
        # Folders and addresses in the compiler's memory are other ones elsewhere.
        message = _ADDRESS.sub("0x", compiler.first_error(run.log.replace(f"{self.tree.include}/", "")))
        reason = _REASON_OF_OUTCOME.get(run.outcome, "{}").format(message).replace(unit.kernel.name, "KERNEL")
        return CompileResult(
            status=_STATUS_OF_OUTCOME.get(run.outcome, "compile_error"),
            reason=reason,
            resources=Resources("code_object"),
            log=run.log,
            error_digest=hashlib.sha256(reason.encode()).hexdigest()[:16],
            repeatable=run.outcome not in _REASON_OF_OUTCOME,
        )

    def blocks_per_cu(self, threads: int, registers: int, lds_bytes: int) -> float:
        """Return the blocks that are resident on one compute unit by registers, LDS and wave slots; 0 if not one fits.

        ``threads`` and ``lds_bytes`` are those of a block, ``registers`` a lane's vector and accumulation registers:
        they come from one file on CDNA2 and later. Waves of a block spread over the SIMDs of the unit.
        """
        gpu = self.hardware
        waves = -(-threads // gpu.wave_size)
        allocated = -(-max(registers, 1) // VGPR_GRANULE) * VGPR_GRANULE
        slots = gpu.max_waves_per_cu // gpu.simds_per_cu
        by_registers = min(gpu.vgprs_per_simd_lane // allocated, slots) * gpu.simds_per_cu // waves
        return float(min(by_registers, gpu.lds_bytes // lds_bytes) if lds_bytes else by_registers)

    def _in_this_hardware(self, result: CompileResult) -> CompileResult:
        """Add what depends on the GPU product and not on the code; what fits nowhere is a ``resource_limit``."""
        r = result.resources
        if result.status != "ok" or r.threads is None or r.vgprs is None or r.lds_bytes is None:
            return result
        occupancy = self.blocks_per_cu(r.threads, int(r.vgprs) + (r.agprs or 0), r.lds_bytes)
        resources = replace(r, occupancy=occupancy)
        if occupancy >= 1:
            return replace(result, resources=resources)
        reason = f"not one block fits on a compute unit: {r.threads} threads, {r.lds_bytes} bytes of LDS"
        return replace(result, resources=resources, status="resource_limit", reason=reason)
