"""The emulated GPU behind the HIP runtime's stand-in: a library's own host code launches, and its kernels run here."""

import atexit
import ctypes
from collections import Counter
from ctypes import CFUNCTYPE, POINTER, c_char, c_char_p, c_int, c_long, c_size_t, c_uint, c_uint8, c_void_p
from itertools import count
from typing import Any

import numpy as np

from amdgpu_emulator import CodeObject, EmulatedGpu, EmulationFault, Race, bundle_bytes, load

_MESSAGE_BYTES = 512
"""As in ``workflow/native/emulated_device.hpp``."""
_HEAD_BYTES = 4096
_BIND = CFUNCTYPE(c_int, c_char_p, c_void_p, POINTER(c_uint), c_size_t, POINTER(c_void_p), POINTER(c_char))
_RUN = CFUNCTYPE(c_long, c_int, POINTER(c_char))
_ALLOCATED = CFUNCTYPE(None, c_void_p, c_size_t)
_RELEASED = CFUNCTYPE(None, c_void_p)


class _Callbacks(ctypes.Structure):
    """``tileseer::EmulatedDevice``."""

    _fields_ = [("bind", _BIND), ("run", _RUN), ("allocated", _ALLOCATED), ("released", _RELEASED)]


class EmulatedDriver:
    """Executes what libraries launch that are loaded after it; stays installed for the life of the process."""

    def __init__(self, driver: ctypes.CDLL) -> None:
        self.gpu = EmulatedGpu()
        self.seed = 0
        """Of the order of waves and workgroups, as ``EmulatedGpu.launch`` has it."""
        self.races: list[Race] = []
        """Those of all launches so far."""
        self.opcodes: Counter[str] = Counter()
        """How often waves have executed each opcode so far."""
        self.code_objects: dict[int, CodeObject] = {}
        """By the address of their bundle."""
        self._bound: dict[int, tuple[Any, ...]] = {}
        """Launches that wait in their stream: code object, kernel, grid, block, arguments, and dynamic LDS."""
        self._numbers = count()
        self._callbacks = _Callbacks(
            _BIND(self._bind), _RUN(self._run), _ALLOCATED(self._allocated), _RELEASED(self.gpu.memory.unmap)
        )
        install = driver["tileseer_emulated_install"]
        install(ctypes.byref(self._callbacks))
        # The driver frees its memory when the process ends, without Python.
        atexit.register(lambda: install(ctypes.byref(_Callbacks())))

    def _allocated(self, address: int, size: int) -> None:
        content = np.ctypeslib.as_array((c_uint8 * size).from_address(address))
        self.gpu.memory.map(address, content, "allocated memory")

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
            return _failure(error, kernel, message)
        number = next(self._numbers)
        self._bound[number] = launch
        return number

    def _run(self, number: int, message: Any) -> int:
        """Execute a launch; the number of instructions, or -1 with the reason in ``message``."""
        *launch, shared = self._bound.pop(number)
        try:
            execution = self.gpu.launch(*launch, dynamic_lds=shared, seed=self.seed)
        except Exception as error:
            return _failure(error, launch[1], message)
        self.opcodes += execution.opcodes
        self.races += execution.races
        return execution.opcodes.total()


def _failure(error: Exception, kernel: str, message: Any) -> int:
    """Give the caller, which is C, the reason: it comes back as a fault of the device."""
    kind = "" if isinstance(error, EmulationFault) else f"{type(error).__name__} in the emulator: "
    text = f"{kind}{error} (kernel {kernel})".encode("ascii", "backslashreplace")[: _MESSAGE_BYTES - 1]
    ctypes.memmove(message, text + b"\0", len(text) + 1)
    return -1
