"""The C interface of kernel libraries (``workflow/native/tileseer_conv.h``) for ctypes.

Nothing here loads pandas or pyarrow: a worker process starts with it.
"""

import ctypes
from ctypes import POINTER, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_uint64, c_void_p
from typing import Any

ABI_VERSION = 3
SIGNAL_BASE = 128
"""A worker's exit status above it: which signal ended it, as shells have it."""
OK, BAD_ARGUMENT, NO_KERNEL, UNSUPPORTED, DEVICE_FAULT, OUT_OF_MEMORY = 0, -1, -2, -3, -4, -5
CACHES = ("cold", "warm")
_EXTENTS = {"input_d": "Di", "input_h": "Hi", "input_w": "Wi", "filter_z": "Z", "filter_y": "Y", "filter_x": "X"}
_STEPS = [f"{name}_{axis}" for name in ("stride", "pad", "dilation") for axis in "dhw"]
PROBLEM_DIMS = {name: name for name in "NGCK"} | _EXTENTS | {name: name for name in _STEPS}
"""Field of the struct to field of ``Problem``; direction and split_k follow."""


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class ConvProblem(ctypes.Structure):
    """``ConvProblemC``: 21 int32."""

    _fields_ = _fields(c_int32, " ".join((*PROBLEM_DIMS, "direction", "split_k")))


class ConvOptions(ctypes.Structure):
    """``ConvOptionsC``."""

    _fields_ = [
        ("seed", c_uint64),
        ("rotate_bytes", c_int64),
        *_fields(c_double, "min_time_ms max_noise budget_ms sample_ms warmup_change hopeless_ms settle_ms"),
        *_fields(c_int32, "min_samples max_samples cache verify_millions"),
    ]


class ConvResult(ctypes.Structure):
    """``ConvResultC``."""

    _fields_ = [
        *_fields(c_double, "median_ms noise device_ms wall_ms settle_ms clock_mhz"),
        *_fields(c_int64, "workspace_bytes rotated_bytes"),
        *_fields(c_int32, "samples launches_per_sample warmup_samples copies stop host_bound"),
    ]


class ConvCheck(ctypes.Structure):
    """``ConvCheckC``."""

    _fields_ = [
        *_fields(c_int64, "elements not_finite wrong non_zero"),
        *_fields(c_double, "relative_error worst tolerance"),
    ]


class ConvResources(ctypes.Structure):
    """``ConvResourcesC``; -1: unknown."""

    _fields_ = _fields(c_int32, "registers shared_bytes local_bytes threads blocks")


class ConvDevice(ctypes.Structure):
    """``ConvDeviceC``."""

    _fields_ = [
        *((name, c_char * size) for name, size in (("name", 128), ("uuid", 64), ("pci", 32), ("arch", 32))),
        *_fields(c_int64, "llc_bytes memory_bytes"),
        *_fields(c_int32, "compute_units clock_khz driver_version runtime_version"),
    ]


SUPPORTS = ctypes.CFUNCTYPE(c_int, POINTER(ConvProblem), c_void_p, c_int)
WORKSPACE_BYTES = ctypes.CFUNCTYPE(c_int64, POINTER(ConvProblem))
LAUNCH = ctypes.CFUNCTYPE(c_int, POINTER(ConvProblem), *[c_void_p] * 6, c_int)
RESOURCES = ctypes.CFUNCTYPE(c_int, POINTER(ConvResources))


class ConvKernel(ctypes.Structure):
    """``ConvKernelC``: a kernel that is registered with the driver."""

    _fields_ = [
        ("name", c_char_p),
        *_fields(c_int32, "direction ndim dtype"),
        ("supports", SUPPORTS),
        ("workspace_bytes", WORKSPACE_BYTES),
        ("launch", LAUNCH),
        ("resources", RESOURCES),
    ]


_WITHOUT_ARGUMENTS = (
    *("init", "cleanup", "version", "abi", "backend", "last_error", "probe", "get_kernel_count"),
    *("has_kernels", "has_bwd_data", "has_bwd_weight"),
)
_ARGUMENTS: dict[str, list[Any]] = {
    **{name: [] for name in _WITHOUT_ARGUMENTS},
    "get_kernel_name": [c_int, c_char_p, c_int],
    "is_supported": [POINTER(ConvProblem)],
    "run": [c_void_p, c_void_p, c_void_p, POINTER(ConvProblem), c_void_p],
    "register": [POINTER(ConvKernel)],
    "find_kernel": [c_char_p],
    "supports": [c_int, POINTER(ConvProblem)],
    "workspace_bytes": [c_int, POINTER(ConvProblem)],
    "resources": [c_int, POINTER(ConvResources)],
    "device": [POINTER(ConvDevice)],
    "verify": [c_int, POINTER(ConvProblem), POINTER(ConvOptions), POINTER(ConvCheck)],
    "measure": [c_int, POINTER(ConvProblem), POINTER(ConvOptions), POINTER(c_double), c_int, POINTER(ConvResult)],
}
_RESULTS: dict[str, Any] = {
    **dict.fromkeys(("version", "backend", "last_error"), c_char_p),
    **{"run": c_float, "workspace_bytes": c_int64, "register": None},
}
"""Where it is no int."""


class DriverLibrary:
    """A driver library; its functions are attributes without the prefix ``conv_dispatcher_``."""

    def __init__(self, path: str) -> None:
        self.handle = ctypes.CDLL(path)
        if self.has_stand_in:
            # For the modules that are loaded afterwards, it is the HIP runtime.
            ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
        for name, arguments in _ARGUMENTS.items():
            function = self.handle[f"conv_dispatcher_{name}"]
            function.restype, function.argtypes = _RESULTS.get(name, c_int), arguments
            setattr(self, name, function)
        version = self.abi()
        if version != ABI_VERSION:
            raise OSError(f"{path}: the library has version {version} of the interface, not {ABI_VERSION}")

    @property
    def has_stand_in(self) -> bool:
        """Whether the HIP runtime in it is the stand-in, for which an executor on the CPU runs what is launched."""
        return hasattr(self.handle, "tileseer_emulated_install")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the interface has no function conv_dispatcher_{name}")

    def load_module(self, path: str) -> None:
        """Load a library of kernels and register them with this driver; ``OSError`` if it is none."""
        module = ctypes.CDLL(path)
        try:
            register = module["tileseer_register_kernels"]
        except AttributeError:
            raise OSError(f"{path}: the library has no kernels for this driver; build it again") from None
        register(self.handle["conv_dispatcher_register"])

    def kernels(self) -> list[str]:
        """Return the names of the registered kernels, in order of registration."""
        names = []
        for index in range(self.get_kernel_count()):
            buffer = ctypes.create_string_buffer(1024)
            if self.get_kernel_name(index, buffer, len(buffer)) != OK:
                raise OSError(self.error())
            names.append(buffer.value.decode())
        return names

    def error(self) -> str:
        """Return the text of the last failure."""
        return bytes(self.last_error()).decode(errors="replace")


def as_dict(struct: ctypes.Structure) -> dict[str, Any]:
    """Return the fields of a struct; text is decoded."""
    values = {name: getattr(struct, name) for name, *_ in struct._fields_}
    return {
        name: value.decode(errors="replace") if isinstance(value, bytes) else value for name, value in values.items()
    }
