"""An emulated GPU: global memory, and kernels that are launched on it."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from amdgpu_emulator.access_check import CHECKS, AccessCheck, Race, UnwrittenLoad
from amdgpu_emulator.code_object import CodeObject
from amdgpu_emulator.coverage import Coverage
from amdgpu_emulator.dispatch import Dispatch
from amdgpu_emulator.faults import EmulationFault
from amdgpu_emulator.machine_code import MachineCode
from amdgpu_emulator.memory import PRIVATE_BASE, SHARED_BASE, Array, GlobalMemory
from amdgpu_emulator.names import base_name

_LDS_BYTES_OF_ARCH = {"gfx90a": 64 << 10, "gfx942": 64 << 10, "gfx950": 160 << 10}
"""What a workgroup can have."""
ARCHS = tuple(_LDS_BYTES_OF_ARCH)
_MOST_THREADS = 1024
"""Of a workgroup."""
Argument = Array | np.generic | bytes
"""An array is a buffer, of which the kernel gets the address; all else is passed by its bytes."""
_KERNARG_UNIT = 64
"""Bytes that the size of a kernel's arguments is a multiple of."""
_POINTERS = {
    f"hidden_{name}": f"hidden_{name}{needed}"
    for name, needed in (
        ("hostcall_buffer", " (of printf, assert, malloc)"), ("printf_buffer", " (of printf)"),
        ("heap_v1", " (of malloc)"), ("multigrid_sync_arg", " (of grids that wait for each other)"),
        ("default_queue", " (of launches by kernels)"), ("completion_action", " (of launches by kernels)"),
        ("queue_ptr", ""),
    )
}  # fmt: skip
"""Hidden arguments that point to what is not emulated, and what needs them."""
_KERNARG, _CODE, _BUFFERS, _STRIDE = 1 << 36, 1 << 40, 1 << 44, 1 << 36
"""Addresses of what has none of its own. Between two of these allocations lies more than a 32-bit offset reaches."""


@dataclass(frozen=True)
class Execution:
    """What the waves of a launch have executed."""

    opcodes: Counter[str]
    """How often each opcode, in lower case."""
    addresses: set[int]
    """Where in the code object: every instruction that was reached."""
    races: list[Race]
    """Accesses of two waves to the same bytes that nothing orders."""
    unwritten: list[UnwrittenLoad]
    """Loads of bytes that nothing has written."""


class EmulatedGpu:
    """Keeps its memory from launch to launch."""

    def __init__(self) -> None:
        self.memory = GlobalMemory()
        self._loaded: dict[CodeObject, MachineCode] = {}

    def launch(
        self, code: CodeObject, kernel: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Argument],
        *, dynamic_lds: int = 0, seed: int = 0, check: Collection[str] = CHECKS, unwritten: Collection[int] = (),
        coverage: Coverage | None = None, most_instructions: int = Dispatch.most_instructions,
    ) -> Execution:  # fmt: skip
        """Execute a kernel over ``grid`` workgroups of ``block`` threads, up to three numbers each.

        An array among the explicit arguments is a buffer, mapped for this launch alone with unmapped memory around it.
        ``dynamic_lds``: bytes of LDS beside the kernel's own. ``seed``: draws the order of workgroups and waves, and
        when accesses to memory happen; with 0 waves run in lock step, and accesses happen as late as the kernel's
        waits allow. ``check``: find all ``races``, for which the order of seed 0 is enough, and loads of ``memory``
        that nothing has written: LDS, and the buffers whose numbers are ``unwritten``. ``coverage`` adds up
        what launches have reached. A workgroup that executes more than ``most_instructions`` is an ``EmulationHang``.

        What a GPU would answer with a fault, and what is not emulated, is an ``EmulationFault``.
        """
        kernel = code.find(kernel)
        check = (check,) if isinstance(check, str) else check
        if others := set(check) - set(CHECKS):
            raise ValueError(f"check: {', '.join(map(repr, sorted(others)))}; choose of {', '.join(CHECKS)}")
        descriptor, machine_code = code.kernels[kernel], self._load(code)
        lds_bytes = descriptor.lds_bytes + dynamic_lds
        if lds_bytes > _LDS_BYTES_OF_ARCH[code.arch]:
            raise EmulationFault(
                f"{kernel} takes {lds_bytes} bytes of LDS; {code.arch} has {_LDS_BYTES_OF_ARCH[code.arch]}"
            )
        if min(dynamic_lds, seed) < 0:
            raise ValueError(f"dynamic_lds: {dynamic_lds}, seed: {seed}; both are at least 0")
        watch = AccessCheck(kernel, code.source, "races" in check, "memory" in check, code.arch) if check else None
        sizes = _three("grid", grid), _three("block", block), dynamic_lds
        dispatch = Dispatch(machine_code, descriptor, _KERNARG, *sizes, watch, most_instructions)
        machine_code.begin_launch(base_name(kernel), descriptor.entry)
        buffers = {i: _bytes_of(one, i) for i, one in enumerate(arguments) if isinstance(one, np.ndarray)}
        if no_buffers := set(unwritten) - set(buffers):
            raise ValueError(f"unwritten: {sorted(no_buffers)}; the arguments that are buffers are {[*buffers]}")
        addresses = {number: _address(number, len(buffer)) for number, buffer in buffers.items()}
        values = [
            addresses[i].to_bytes(8, "little") if i in buffers else _value(one, i) for i, one in enumerate(arguments)
        ]
        hidden = [row[".value_kind"] for row in descriptor.arguments if row[".value_kind"] in _POINTERS]
        pointers = dict(zip(hidden, self.memory.hide([_POINTERS[kind] for kind in hidden]), strict=True))
        mapped = {_KERNARG: (_kernarg(dispatch, values, pointers), "the arguments of the kernel", True)}
        mapped |= {addresses[i]: (buffers[i], f"argument {i}", i not in unwritten) for i in buffers}
        try:
            for address, what in mapped.items():
                self.memory.map(address, *what)
            self.memory.note_accesses(watch.touched if watch else None)
            with np.errstate(all="ignore"):
                dispatch.execute(self.memory, seed)
        finally:
            self.memory.note_accesses(None)
            for address in mapped:
                self.memory.unmap(address)
        reached = machine_code.addresses(dispatch.runs)
        if coverage is not None:
            coverage.add(code, kernel, reached)
        races, loads = (watch.races(), watch.unwritten()) if watch else ([], [])
        return Execution(machine_code.opcodes(dispatch.runs), reached, races, loads)

    def _load(self, code: CodeObject) -> MachineCode:
        """Map the image of a code object, once."""
        if code not in self._loaded:
            if code.arch not in ARCHS:
                raise EmulationFault(f"{code.arch} is not emulated; {', '.join(ARCHS)} are")
            base, content = _CODE + len(self._loaded) * _STRIDE, np.zeros(len(code.image) + code.zeros, np.uint8)
            content[: len(code.image)] = np.frombuffer(code.image, np.uint8)
            for place, target in code.relocations:
                content[place : place + 8] = np.frombuffer((base + target).to_bytes(8, "little"), np.uint8)
            self.memory.map(base, content, "the code object")
            self._loaded[code] = MachineCode(code.image, base, code.arch, code.text, code.source)
        return self._loaded[code]


def _address(number: int, size: int) -> int:
    """Return where a buffer begins, so that a multiple of 4 GiB lies in its middle: an address has two words.

    It is aligned as vectors of 16 bytes need it, so that a buffer below 32 bytes begins at the multiple.
    """
    return _BUFFERS + (number + 1) * _STRIDE - (size // 2 // 256 * 256 or size // 2 // 16 * 16)


def _bytes_of(argument: Array, number: int) -> Array:
    if not argument.flags.c_contiguous or argument.dtype.hasobject:
        raise ValueError(f"argument {number}: the array is not contiguous in C order, or not of numbers; pass a copy")
    return argument.reshape(-1).view(np.uint8)


def _value(argument: Argument, number: int) -> bytes:
    if isinstance(argument, bytes):
        return argument
    if not isinstance(argument, np.generic):
        what = type(argument).__name__
        raise ValueError(f"argument {number} is of type {what}; pass an array, or a number with a size as np.uint32(1)")
    return argument.tobytes()


def _three(what: str, sizes: Sequence[int]) -> tuple[int, int, int]:
    numbers = np.atleast_1d(sizes)
    if numbers.shape not in ((1,), (2,), (3,)) or numbers.dtype.kind not in "iu" or numbers.min() < 1:
        raise ValueError(f"{what}: {sizes}; choose one to three whole numbers of at least 1")
    x, y, z = (*numbers.tolist(), 1, 1)[:3]
    if what == "block" and x * y * z > _MOST_THREADS:
        raise ValueError(f"block: {sizes}; a workgroup has {_MOST_THREADS} threads at most")
    return x, y, z


def _kernarg(dispatch: Dispatch, values: Sequence[bytes], pointers: Mapping[str, int]) -> Array:
    """Return the arguments as they lie in memory: those that the host passes, and the hidden ones of the runtime."""
    kernel = dispatch.kernel
    explicit = kernel.explicit_arguments
    if len(explicit) != len(values):
        raise ValueError(f"{kernel.name} takes {len(explicit)} arguments, not {len(values)}")
    for number, (row, value) in enumerate(zip(explicit, values, strict=True)):
        if len(value) != row[".size"]:
            raise ValueError(f"argument {number} of {kernel.name} has {row['.size']} bytes, not {len(value)}")
    by_offset = {row[".offset"]: value for row, value in zip(explicit, values, strict=True)}
    hidden = {
        **{f"hidden_block_count_{axis}": count for axis, count in zip("xyz", dispatch.grid, strict=True)},
        **{f"hidden_group_size_{axis}": count for axis, count in zip("xyz", dispatch.block, strict=True)},
        "hidden_grid_dims": 3,
        "hidden_dynamic_lds_size": dispatch.dynamic_lds,
        "hidden_private_base": PRIVATE_BASE >> 32,
        "hidden_shared_base": SHARED_BASE >> 32,
        **pointers,
    }
    # Runtimes round its size up, and compilers load whole vectors of it. What is behind it is no number.
    content = np.full(-(-max(kernel.kernarg_bytes, 1) // _KERNARG_UNIT) * _KERNARG_UNIT, 0xFF, np.uint8)
    for row in kernel.arguments:
        begin, size = row[".offset"], row[".size"]
        number = hidden.get(row[".value_kind"], 0) & (1 << 8 * size) - 1
        value = by_offset.get(begin, number.to_bytes(size, "little"))
        content[begin : begin + size] = np.frombuffer(value, np.uint8)
    return content
