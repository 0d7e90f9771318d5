"""The compile stage: units in, one row a kernel out, with its identity, status and resources."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import pyarrow as pa

from tilewright.errors import UserError
from tilewright.kernel import name
from tilewright.kernel_table import kernels
from tilewright.toolchain.base import CompileUnit, Toolchain

SCHEMA = pa.schema(
    [
        ("kernel", pa.string()),
        ("kernel_id", pa.string()),
        ("split_k", pa.list_(pa.int32())),
        ("build_status", pa.string()),
        ("build_reason", pa.string()),
        ("resources_from", pa.string()),
        ("vgprs", pa.float64()),
        ("lds_bytes", pa.int32()),
        ("occupancy", pa.float64()),
    ]
)
"""``vgprs`` a lane, ``lds_bytes`` a block, ``occupancy`` in blocks a CU; ``resources_from`` estimated|code_object."""


def kernel_id(unit: CompileUnit, toolchain: Toolchain) -> str:
    """Return 16 hex digits that stand for the config, the emitted text, the toolchain and the arch."""
    parts = (name(unit.kernel), unit.arch, toolchain.identity(), hashlib.sha256(unit.header).hexdigest())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def units(rows: pa.Table, headers: Mapping[str, bytes], arch: str, where: str) -> list[CompileUnit]:
    """Return the units of a chunk of the kernel table; ``headers`` is the bundle of the same chunk."""
    found = []
    for kernel in kernels(rows):
        header = headers.get(f"{name(kernel)}.hpp")
        if header is None:
            raise UserError(f"{where}: no header for {name(kernel)}; delete the bundle and run again")
        found.append(CompileUnit(kernel, arch, header))
    return found


def build(chunk: Sequence[CompileUnit], split_k: Sequence[list[int]], toolchain: Toolchain) -> pa.Table:
    """Compile a chunk; return one row a kernel in the given order. A failed kernel keeps its row."""
    rows = []
    for unit, splits, result in zip(chunk, split_k, toolchain.compile(chunk), strict=True):
        resources = result.resources
        rows.append(
            (
                name(unit.kernel), kernel_id(unit, toolchain), splits, result.status, result.reason,
                resources.source, resources.vgprs, resources.lds_bytes, resources.occupancy,
            )
        )  # fmt: skip
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    return pa.table([list(column) for column in columns], schema=SCHEMA)
