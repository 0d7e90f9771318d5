"""The executor behind the HIP runtime's stand-in: a library's own host code launches, and its kernels run here."""

import atexit
import ctypes
from collections import Counter
from ctypes import CFUNCTYPE, POINTER, c_char, c_char_p, c_int, c_long, c_size_t, c_uint, c_void_p
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from tileseer.devices.emulated import dispatch
from tileseer.devices.emulated.dispatch import Launch
from tileseer.devices.emulated.faults import EmulationFault
from tileseer.devices.emulated.memory import Memory
from tileseer.devices.emulated.program import Program
from tileseer.gpu import code_object
from tileseer.gpu.code_object import CodeObject, Kernel

_WHY_BYTES = 512
"""As in ``workflow/native/emulated_device.hpp``."""
_HEAD_BYTES = 4096
ARCHS = ("gfx90a", "gfx942", "gfx950")
_BIND = CFUNCTYPE(c_int, c_char_p, c_void_p, POINTER(c_uint), c_size_t, POINTER(c_void_p), POINTER(c_char))
_RUN = CFUNCTYPE(c_long, c_int, POINTER(c_char))
_ALLOCATED = CFUNCTYPE(None, c_void_p, c_size_t)
_RELEASED = CFUNCTYPE(None, c_void_p)


class _Device(ctypes.Structure):
    _fields_ = [("bind", _BIND), ("run", _RUN), ("allocated", _ALLOCATED), ("released", _RELEASED)]


@dataclass(frozen=True)
class _Loaded:
    """A code object in this process's memory."""

    code: CodeObject
    image: np.ndarray
    program: Program

    @property
    def base(self) -> int:
        """Address of the image."""
        return int(self.image.ctypes.data)


class Executor:
    """Runs the kernels that libraries launch; stays installed for the life of the process."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.seed = 0
        """Of the order of waves and workgroups, and of when accesses to memory happen; 0: as late as possible."""
        self._loaded: dict[int, _Loaded] = {}
        self._bound: dict[int, tuple[str, _Loaded, Launch, np.ndarray]] = {}
        self._numbers = count()
        self._device = _Device(
            _BIND(self._bind), _RUN(self._run), _ALLOCATED(self._allocated), _RELEASED(self._released)
        )

    def install(self, driver: ctypes.CDLL) -> None:
        """Take over the launches of all libraries that are loaded after this driver."""
        install = driver["tileseer_emulated_install"]
        install(ctypes.byref(self._device))
        # The driver frees its memory when the process ends, without Python.
        atexit.register(lambda: install(ctypes.byref(_Device())))

    def opcodes(self) -> Counter[str]:
        """How often waves have executed each opcode so far."""
        return sum((loaded.program.opcodes() for loaded in self._loaded.values()), Counter())

    def load(self, bundle: bytes) -> _Loaded:
        """Bring the code object of a bundle into memory."""
        code = code_object.load(code_object.bundled(bundle))
        if code.arch not in ARCHS:
            raise EmulationFault(f"{code.arch} is not emulated; {', '.join(ARCHS)} are")
        image = np.frombuffer(bytearray(code.image), np.uint8)
        base = int(image.ctypes.data)
        self.memory.add(base, len(image), "a code object")
        return _Loaded(code, image, Program(code.image, base, code.arch))

    def _allocated(self, address: int, size: int) -> None:
        self.memory.add(address, size, "allocated memory")

    def _released(self, address: int) -> None:
        self.memory.remove(address)

    def _bind(self, name: bytes, bundle: int, sizes: Any, shared: int, arguments: Any, why: Any) -> int:
        """Take a launch, with its arguments as they are now; its number, or -1 with the reason in ``why``."""
        kernel_name = name.decode()
        try:
            if bundle not in self._loaded:
                size = code_object.bundle_bytes(ctypes.string_at(bundle, _HEAD_BYTES))
                self._loaded[bundle] = self.load(ctypes.string_at(bundle, size))
            loaded = self._loaded[bundle]
            kernel = loaded.code.kernels[kernel_name]
            grid, block = (sizes[0], sizes[1], sizes[2]), (sizes[3], sizes[4], sizes[5])
            content = _arguments(kernel, arguments, grid, block)
            launch = Launch(kernel, loaded.base + kernel.entry, int(content.ctypes.data), grid, block, shared)
        except Exception as error:
            return _told(error, kernel_name, why)
        number = next(self._numbers)
        self._bound[number] = (kernel_name, loaded, launch, content)
        return number

    def _run(self, number: int, why: Any) -> int:
        """Execute a launch; the number of instructions, or -1 with the reason in ``why``."""
        name, loaded, launch, content = self._bound.pop(number)
        before = loaded.program.executed()
        self.memory.add(launch.arguments, len(content), "the arguments of a kernel")
        try:
            with np.errstate(all="ignore"):
                dispatch.run(launch, loaded.program, self.memory, self.seed)
        except Exception as error:
            return _told(error, name, why)
        finally:
            self.memory.remove(launch.arguments)
        return loaded.program.executed() - before


def _told(error: Exception, kernel: str, why: Any) -> int:
    """Say what happened to the caller, which is C: it comes back as a fault of the device."""
    kind = "" if isinstance(error, EmulationFault) else f"{type(error).__name__} in the executor: "
    told = f"{kind}{error} (kernel {kernel})".encode("ascii", "backslashreplace")[: _WHY_BYTES - 1]
    ctypes.memmove(why, told + b"\0", len(told) + 1)
    return -1


def _arguments(kernel: Kernel, given: Any, grid: tuple[int, ...], block: tuple[int, ...]) -> np.ndarray:
    """The arguments as they lie in memory: those that the host passes, and those that the runtime adds."""
    content = np.zeros(max(kernel.kernarg_bytes, 1), np.uint8)
    hidden = {
        **{f"hidden_block_count_{axis}": count for axis, count in zip("xyz", grid, strict=True)},
        **{f"hidden_group_size_{axis}": count for axis, count in zip("xyz", block, strict=True)},
        "hidden_grid_dims": 3,
    }
    number = 0
    for row in kernel.arguments:
        begin, size, kind = row[".offset"], row[".size"], row[".value_kind"]
        if kind.startswith("hidden_"):
            value = hidden.get(kind, 0).to_bytes(size, "little")
        else:
            value = ctypes.string_at(given[number], size)
            number += 1
        content[begin : begin + size] = np.frombuffer(value, np.uint8)
    return content
