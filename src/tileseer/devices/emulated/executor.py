"""The executor behind the HIP runtime's stand-in: a library's own host code launches, and its kernels run here."""

import atexit
import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char, c_char_p, c_int, c_size_t, c_uint, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

from tileseer.devices.emulated import dispatch
from tileseer.devices.emulated.faults import EmulationFault
from tileseer.devices.emulated.memory import Memory
from tileseer.devices.emulated.program import Program
from tileseer.gpu import code_object
from tileseer.gpu.code_object import CodeObject, Kernel

_WHY_BYTES = 512
"""As in ``workflow/native/emulated_device.hpp``."""
_HEAD_BYTES = 4096
ARCHS = ("gfx90a", "gfx942", "gfx950")
_LAUNCH = CFUNCTYPE(c_int, c_char_p, c_void_p, POINTER(c_uint), c_size_t, POINTER(c_void_p), POINTER(c_char))
_ALLOCATED = CFUNCTYPE(None, c_void_p, c_size_t)
_RELEASED = CFUNCTYPE(None, c_void_p)


class _Device(ctypes.Structure):
    _fields_ = [("launch", _LAUNCH), ("allocated", _ALLOCATED), ("released", _RELEASED)]


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
        self._device = _Device(_LAUNCH(self._launch), _ALLOCATED(self._allocated), _RELEASED(self._released))

    def install(self, driver: ctypes.CDLL) -> None:
        """Take over the launches of all libraries that are loaded after this driver."""
        install = driver["tileseer_emulated_install"]
        install(ctypes.byref(self._device))
        # The driver frees its memory when the process ends, without Python.
        atexit.register(lambda: install(ctypes.byref(_Device())))

    def executed(self) -> int:
        """Instructions of waves that were executed so far."""
        return sum(loaded.program.executed() for loaded in self._loaded.values())

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

    def _launch(self, name: bytes, bundle: int, sizes: Any, shared: int, arguments: Any, why: Any) -> int:
        kernel_name = name.decode()
        try:
            self._run(kernel_name, bundle, [sizes[i] for i in range(6)], shared, arguments)
        except Exception as error:
            # The caller is C: the text goes there, and comes back as a fault of the device.
            kind = "" if isinstance(error, EmulationFault) else f"{type(error).__name__} in the executor: "
            told = f"{kind}{error} (kernel {kernel_name})".encode("ascii", "backslashreplace")[: _WHY_BYTES - 1]
            ctypes.memmove(why, told + b"\0", len(told) + 1)
            return 1
        return 0

    def _run(self, name: str, bundle: int, sizes: list[int], shared: int, arguments: Any) -> None:
        if bundle not in self._loaded:
            size = code_object.bundle_bytes(ctypes.string_at(bundle, _HEAD_BYTES))
            self._loaded[bundle] = self.load(ctypes.string_at(bundle, size))
        loaded = self._loaded[bundle]
        kernel = loaded.code.kernels[name]
        grid, block = tuple(sizes[:3]), tuple(sizes[3:])
        content = _arguments(kernel, arguments, grid, block)
        address = int(content.ctypes.data)
        self.memory.add(address, len(content), "the arguments of a kernel")
        try:
            launch = dispatch.Launch(kernel, loaded.base + kernel.entry, address, grid, block, shared)  # type: ignore[arg-type]
            with np.errstate(all="ignore"):
                dispatch.run(launch, loaded.program, self.memory, self.seed)
        finally:
            self.memory.remove(address)


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
