"""The compile stage: units in, one row a kernel out, with its identity, status and resources."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import pyarrow as pa

from tileseer.build import instructions
from tileseer.build.base import CompileResult, CompileUnit, Resources, Toolchain
from tileseer.core import parquet
from tileseer.core.errors import UserError
from tileseer.libraries.emitter import LACK, ONE_SLICE
from tileseer.libraries.gemm_kernel import Kernel
from tileseer.libraries.registry import emitter_of

MAX_VGPR_SPILLS = 128
"""Built kernels with more vector registers that go through memory are pruned: not measured, kept with the reason."""
MIN_OCCUPANCY = 1.0
"""So are those with fewer blocks resident on one compute unit."""

_COUNTED_KINDS = ("mfma", "buffer_loads", "buffer_stores", "lds_reads", "lds_writes", "barriers", "total")
"""What is counted of the instructions of a kernel."""
SCHEMA = parquet.schema(
    [
        ("kernel", pa.string()),
        ("kernel_id", pa.string()),
        ("split_k", pa.list_(pa.int32())),
        ("build_status", pa.string()),
        ("build_reason", pa.string()),
        ("error_digest", pa.string()),
        ("code_hash", pa.string()),
        ("resources_from", pa.string()),
        ("vgprs", pa.float64()),
        ("agprs", pa.int32()),
        ("sgprs", pa.int32()),
        ("lds_bytes", pa.int32()),
        ("scratch_bytes", pa.int32()),
        ("vgpr_spills", pa.int32()),
        ("sgpr_spills", pa.int32()),
        ("occupancy", pa.float64()),
        ("threads", pa.int32()),
        ("code_bytes", pa.int32()),
        *((f"n_{kind}", pa.int32()) for kind in _COUNTED_KINDS),
    ],
    may_be_empty=[*(field.name for field in fields(Resources)), *(f"n_{kind}" for kind in _COUNTED_KINDS)],
)
"""``vgprs``, ``agprs``, ``scratch_bytes`` a lane, ``sgprs`` a wave, ``lds_bytes`` a block, ``occupancy`` in blocks a
CU; ``resources_from`` estimated|code_object; docs/internals/data.md explains the other columns. Kernels with the same
``code_hash`` have the same machine code (``aliases``)."""

LIBRARY_METADATA_KEY = "library"
"""Key in the metadata of a build table whose kernels a library offers: its name and version, ``NAME VERSION``."""


def library_of(build: pa.Table) -> str:
    """Return the library and version that offers the kernels of a build table; empty for kernels that were compiled."""
    return (build.schema.metadata or {}).get(LIBRARY_METADATA_KEY.encode(), b"").decode()


def kernel_id(unit: CompileUnit, toolchain: Toolchain, result: CompileResult) -> str:
    """Return 16 hex digits for the config, the arch, and what runs there.

    That is the code, where there is some: a new compiler that makes the same code makes the same kernel. A kernel that
    was not built is the failure; an estimated one is the emitted text and the toolchain.
    """
    if result.code_hash:
        made_from = result.code_hash
    elif unit.lack or result.error_digest:
        made_from = f"not built\n{unit.lack}{result.error_digest}"
    else:
        made_from = f"{toolchain.identity()}\n{hashlib.sha256(unit.header).hexdigest()}"
    return hashlib.sha256("\n".join((unit.kernel.name, unit.arch, made_from)).encode()).hexdigest()[:16]


def compile_units(kernels: Sequence[Kernel], headers: Mapping[str, bytes], arch: str, where: str) -> list[CompileUnit]:
    """Return the units of the kernels of a chunk; ``headers`` is the bundle of the same chunk.

    A kernel that its library has no form for has the reason instead of a header.
    """
    compile_units = []
    for kernel in kernels:
        if lack := headers.get(f"{kernel.name}{LACK}", b"").decode().strip():
            compile_units.append(CompileUnit(kernel, arch, b"", lack))
            continue
        header = headers.get(emitter_of([kernel]).header_file(kernel))
        if header is None:
            raise UserError(f"{where}: no header for {kernel.name}; delete the bundle and run again")
        splits_k = f"{kernel.name}{ONE_SLICE}" not in headers
        compile_units.append(CompileUnit(kernel, arch, header, splits_k=splits_k))
    return compile_units


def build_kernels(chunk: Sequence[CompileUnit], split_k: Sequence[list[int]], toolchain: Toolchain) -> pa.Table:
    """Compile a chunk: the build table, one row a kernel in the given order.

    A failed kernel keeps its row, and so does one that was built and is beyond a limit.
    """
    to_compile = [unit for unit in chunk if not unit.lack]
    made = iter(toolchain.compile(to_compile) if to_compile else [])
    results = [
        CompileResult("unsupported_by_ck", unit.lack, Resources("estimated"), "") if unit.lack else _within(next(made))
        for unit in chunk
    ]
    rows = [_row(unit, splits, result, toolchain) for unit, splits, result in zip(chunk, split_k, results, strict=True)]
    return pa.Table.from_pylist(rows, SCHEMA)


def _within(result: CompileResult) -> CompileResult:
    """Return the result, as ``pruned`` with the reason if the compiled code is beyond a limit."""
    r = result.resources
    if result.status != "ok" or r.source == "estimated":
        return result
    beyond = []
    if r.vgpr_spills is not None and r.vgpr_spills > MAX_VGPR_SPILLS:
        beyond.append(f"{r.vgpr_spills} spilled registers, the limit max_vgpr_spills is {MAX_VGPR_SPILLS}")
    if r.occupancy is not None and r.occupancy < MIN_OCCUPANCY:
        beyond.append(f"{r.occupancy:g} blocks a compute unit, the limit min_occupancy is {MIN_OCCUPANCY:g}")
    return replace(result, status="pruned", reason="; ".join(beyond)) if beyond else result


def _row(unit: CompileUnit, splits: list[int], result: CompileResult, toolchain: Toolchain) -> dict[str, Any]:
    resources = asdict(result.resources)
    splits = splits if unit.splits_k else [1]
    row = {"kernel": unit.kernel.name, "kernel_id": kernel_id(unit, toolchain, result), "split_k": splits}
    row |= {"build_status": result.status, "build_reason": result.reason, "resources_from": resources.pop("source")}
    row |= {"error_digest": result.error_digest, "code_hash": result.code_hash}
    if code := resources.pop("instructions"):
        kinds = instructions.count_kinds(code) | {"total": sum(code.values())}
        row |= {f"n_{kind}": kinds[kind] for kind in _COUNTED_KINDS}
    return row | resources
