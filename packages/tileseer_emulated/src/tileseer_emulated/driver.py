"""The emulated GPU behind the HIP runtime's stand-in: a library's own host code launches, and its kernels run here."""

import atexit
import ctypes
import gc
import re
from collections import Counter
from ctypes import CFUNCTYPE, POINTER, c_char, c_char_p, c_int, c_long, c_size_t, c_uint, c_uint8, c_void_p
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from amdgpu_emulator import (
    CodeObject,
    Coverage,
    EmulatedGpu,
    EmulationFault,
    EmulationHang,
    Race,
    UnsupportedInstruction,
    UnwrittenLoad,
    bundle_bytes,
    load,
)

_MESSAGE_BYTES = 512
"""As in ``workflow/native/emulated_device.hpp``."""
_HEAD_BYTES = 4096
_INSTANCE = re.compile(r"(?:Lb[01]E)?LNS_10TailNumberE\d+E|memory_operation_enumE\dE")
"""Where the mangled name of a CK Tile kernel has the loop, its tail, and whether the result is set or added."""
_TAILS = ("odd", "even", "one", "two", "three", "four", "five", "six", "seven", "empty", "full")
"""``ck_tile::TailNumber``."""
_STATUSES = {
    EmulationHang: "hang", UnsupportedInstruction: "not_executable", EmulationFault: "crash",
    Exception: "not_executable",
}  # fmt: skip
"""What a launch that failed says of its kernel, by the first class that the exception is of."""
_BIND = CFUNCTYPE(c_int, c_char_p, c_void_p, POINTER(c_uint), c_size_t, POINTER(c_void_p), POINTER(c_char))
_RUN = CFUNCTYPE(c_long, c_int, POINTER(c_char))
_ALLOCATED = CFUNCTYPE(None, c_void_p, c_size_t)
_RELEASED = CFUNCTYPE(None, c_void_p)
_SHARED = CFUNCTYPE(None, c_void_p, c_size_t, c_char_p, c_int)
_WRITTEN = CFUNCTYPE(c_int, c_void_p, c_size_t, POINTER(c_char))


class _Callbacks(ctypes.Structure):
    """``tileseer::EmulatedDevice``."""

    _fields_ = [
        *(("bind", _BIND), ("run", _RUN), ("allocated", _ALLOCATED), ("released", _RELEASED)),
        *(("shared", _SHARED), ("written", _WRITTEN)),
    ]


class EmulatedDriver:
    """Executes what libraries launch that are loaded after it; stays installed for the life of the process."""

    def __init__(self, driver: ctypes.CDLL) -> None:
        # What was imported stays: to look through it for garbage again and again takes a tenth of the time.
        gc.freeze()
        self.gpu = EmulatedGpu()
        self.seed = 0
        """Of the order of waves and workgroups, as ``EmulatedGpu.launch`` has it."""
        self.races: list[Race] = []
        """Those of all launches so far."""
        self.unwritten: list[UnwrittenLoad] = []
        """Loads of what nothing had written, in all launches so far."""
        self.bound: set[str] = set()
        """Names of all instances launched so far."""
        self.is_dry = False
        """Whether launches are only noted."""
        self.failed = ""
        """The status of the last launch that failed: ``crash``, ``hang`` or ``not_executable``."""
        self._coverage = Coverage()
        self.opcodes: Counter[str] = Counter()
        """How often waves have executed each opcode so far."""
        self.code_objects: dict[int, CodeObject] = {}
        """By the address of their bundle."""
        self._bound: dict[int, tuple[Any, ...]] = {}
        """Launches that wait in their stream: code object, kernel, grid, block, arguments, and dynamic LDS."""
        self._numbers = count()
        self._callbacks = _Callbacks(
            _BIND(self._bind), _RUN(self._run), _ALLOCATED(self._allocated), _RELEASED(self.gpu.memory.unmap),
            _SHARED(self._shared), _WRITTEN(self._written),
        )  # fmt: skip
        install = driver["tileseer_emulated_install"]
        install(ctypes.byref(self._callbacks))
        # The driver frees its memory when the process ends, without Python.
        atexit.register(lambda: install(ctypes.byref(_Callbacks())))

    def not_executed(self) -> dict[str, str]:
        """Return, for each instance that was launched, the opcodes that were not executed, with their addresses."""
        launched = ((code, name) for code in self.code_objects.values() for name in self._coverage.launched(code))
        return {
            name: ", ".join(f"{opcode} at {at:#x}" for at, opcode in self._coverage.missing(code, name).items())
            for code, name in launched
        }

    def instances(self) -> dict[str, tuple[int, int]]:
        """Return how many instructions of each launched instance of the kernels were executed, and how many it has.

        The instances of a kernel differ in the tail of its loop and in how it writes the result.
        """
        counts = {}
        for code in self.code_objects.values():
            kinds = {_INSTANCE.sub("", name) for name in self._coverage.launched(code)}
            for name in code.kernels:
                if _INSTANCE.sub("", name) in kinds:
                    counts[name] = self._coverage.counts(code, name)
        return counts

    def _allocated(self, address: int, size: int) -> None:
        self.gpu.memory.map(address, _host_memory(address, size), "allocated memory", is_written=False)

    def _shared(self, address: int, size: int, name: bytes, is_input: int) -> None:
        content = _host_memory(address, size)
        content.flags.writeable = not is_input
        self.gpu.memory.map(address, content, name.decode(), is_written=bool(is_input))

    def _written(self, address: int, size: int, message: Any) -> int:
        try:
            self.gpu.memory.mark_written(address, size)
        except EmulationFault as fault:
            return self._failure(fault, "the host", message)
        return 0

    def _bind(self, name: bytes, bundle: int, sizes: Any, shared: int, arguments: Any, message: Any) -> int:
        """Take a launch, with its arguments as they are now; its number, or -1 with the reason in ``message``."""
        kernel = name.decode()
        try:
            if bundle not in self.code_objects:
                size = bundle_bytes(ctypes.string_at(bundle, _HEAD_BYTES))
                self.code_objects[bundle] = load(ctypes.string_at(bundle, size))
            code = self.code_objects[bundle]
            rows = code.kernels[kernel].explicit_arguments
            values = [ctypes.string_at(arguments[i], row[".size"]) for i, row in enumerate(rows)]
            launch = code, kernel, sizes[0:3], sizes[3:6], values, shared
        except Exception as error:
            return self._failure(error, kernel, message)
        self.bound.add(kernel)
        number = next(self._numbers)
        self._bound[number] = launch
        return number

    def _run(self, number: int, message: Any) -> int:
        """Execute a launch; the number of instructions, or -1 with the reason in ``message``."""
        *launch, shared = self._bound.pop(number)
        if self.is_dry:
            return 0
        try:
            execution = self.gpu.launch(*launch, dynamic_lds=shared, seed=self.seed, coverage=self._coverage)
        except Exception as error:
            return self._failure(error, launch[1], message)
        self.opcodes += execution.opcodes
        # The name of a kernel is a page long.
        self.races += [replace(race, kernel=instance_text(race.kernel)) for race in execution.races]
        self.unwritten += [replace(load_, kernel=instance_text(load_.kernel)) for load_ in execution.unwritten]
        return execution.opcodes.total()

    def _failure(self, error: Exception, kernel: str, message: Any) -> int:
        """Give the caller, which is C, the reason: it comes back as a fault of the device."""
        kind = "" if isinstance(error, EmulationFault) else f"{type(error).__name__} in the emulator: "
        self.failed = next(status for type_, status in _STATUSES.items() if isinstance(error, type_))
        # Names of kernels are longer than a message.
        text = f"{kind}{error} (kernel {kernel})".encode("ascii", "backslashreplace")[: _MESSAGE_BYTES - 1]
        ctypes.memmove(message, text + b"\0", len(text) + 1)
        return -1


def _host_memory(address: int, size: int) -> Any:
    return np.ctypeslib.as_array((c_uint8 * size).from_address(address))


def instance_text(name: str) -> str:
    """Return what an instance is for, by its mangled name."""
    parts = ["adds to the result" if "memory_operation_enumE1" in name else "sets the result"]
    if match := re.search(r"Lb([01])ELNS_10TailNumberE(\d+)", name):
        parts[:0] = ["loop" if match[1] == "1" else "no loop", f"tail {_TAILS[int(match[2])]}"]
    return ", ".join(parts)
