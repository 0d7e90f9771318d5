"""The plans that cuDNN would offer on a GPU, listed on a machine without one, from the properties of the GPU."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tileseer.core.errors import UserError
from tileseer.problems.problem import Problem

H200: Mapping[str, Any] = {
    "deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0, "pciDeviceId": 0,
    "multiProcessorCount": 132, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "l2CacheSize": 62914560,
    "totalGlobalMem": 150754820096, "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "warpSize": 32,
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024, "isTccDriver": 0,
    "supportCoopLaunch": 1,
}  # fmt: skip
"""In cuDNN's words; cuDNN lists the same plans for an H100, up to a few."""

# Numbers of cudnn_graph.h: kinds of descriptors, attributes, types and heuristics.
CONVOLUTION, ENGINE, CONFIG, HEURISTIC, KNOB, GRAPH, TENSOR, DEVICE = 1, 2, 3, 4, 7, 15, 17, 38
DATA_TYPE, INT64, FLOAT_TYPE, MODE, HEURISTIC_MODE, KNOB_TYPE, DESCRIPTOR, CHAR = 1, 3, 4, 7, 8, 9, 15, 24
FLOAT, CROSS_CORRELATION = 0, 1
DATA_TYPES = {"bf16": 9, "fp16": 2}
HEURISTICS = (3, 1, 2)
KNOBS = 44
OPERATIONS = {
    "forward": (10, 700, (704, 703, 705)),
    "bwd_data": (12, 706, (710, 709, 711)),
    "bwd_weight": (11, 712, (716, 715, 717)),
}
"""Descriptor, first attribute (alpha, then beta and the convolution), and the attributes of x, w and y."""

AXES = (("Di", "Z", "d"), ("Hi", "Y", "h"), ("Wi", "X", "w"))
"""Of the image: extents of input and filter, and letter of the other fields."""


class Cudnn:
    """cuDNN's library, which needs no GPU to list plans."""

    def __init__(self, device: Mapping[str, Any] = H200) -> None:
        """``UserError`` without the library."""
        self._library = _load()
        self._library.cudnnGetVersion.restype = ctypes.c_size_t
        self.version = f"cudnn {self._library.cudnnGetVersion()}"
        self._made: list[ctypes.c_void_p] = []
        text = json.dumps(device).encode()
        try:
            self._device = self._finalized(DEVICE, [(2702, CHAR, ctypes.create_string_buffer(text, len(text)))])
        except _CudnnError as error:
            # From 9.28 on a part of the library needs that of the driver.
            raise UserError(f"{self.version} lists no plans on a machine without a GPU's driver ({error})") from error
        # The device outlives the listings, which destroy what they made.
        self._made.clear()

    def offered(self, problem: Problem) -> list[str]:
        """Names of the plans in cuDNN's order; empty where it has none."""
        names: list[str] = []
        try:
            graph = self._graph(problem)
            for mode in HEURISTICS:
                try:
                    names += self._names(graph, mode)
                except _CudnnError:
                    continue
        except _CudnnError:
            pass
        finally:
            for descriptor in self._made:
                self._library.cudnnBackendDestroyDescriptor(descriptor)
            self._made.clear()
        return names

    def _graph(self, problem: Problem) -> ctypes.c_void_p:
        axes = AXES[3 - problem.ndim :]
        image, filters = ([getattr(problem, axis[at]) for axis in axes] for at in (0, 1))
        shapes = [
            [problem.N, problem.C, *image],
            [problem.K, problem.C // problem.G, *filters],
            [problem.N, problem.K, *problem.output[3 - problem.ndim :]],
        ]
        tensors = [self._tensor(number, shape, problem.dtype) for number, shape in enumerate(shapes, 1)]
        stride, pad, dilation = (
            _ints([getattr(problem, f"{name}_{axis[2]}") for axis in axes]) for name in ("stride", "pad", "dilation")
        )
        convolution = self._finalized(
            CONVOLUTION,
            [
                (100, DATA_TYPE, _enum(FLOAT)), (101, MODE, _enum(CROSS_CORRELATION)),
                (106, INT64, _ints([problem.ndim])), (105, INT64, pad), (104, INT64, pad), (102, INT64, dilation),
                (103, INT64, stride),
            ],
        )  # fmt: skip
        kind, first, places = OPERATIONS[problem.variant]
        attributes = [(place, DESCRIPTOR, _pointer(tensor)) for place, tensor in zip(places, tensors, strict=True)]
        attributes += [(first + at, FLOAT_TYPE, (ctypes.c_float * 1)(1.0 - at)) for at in (0, 1)]
        operation = self._finalized(kind, [*attributes, (first + 2, DESCRIPTOR, _pointer(convolution))])
        return self._finalized(GRAPH, [(801, DESCRIPTOR, _pointer(operation))])

    def _tensor(self, number: int, shape: Sequence[int], dtype: str) -> ctypes.c_void_p:
        steps = list(itertools.accumulate([shape[1], *shape[:1:-1]], lambda one, other: one * other))
        strides = [steps[-1], 1, *reversed(steps[:-1])]
        return self._finalized(
            TENSOR,
            [
                (901, DATA_TYPE, _enum(DATA_TYPES[dtype])), (902, INT64, _ints(shape)), (903, INT64, _ints(strides)),
                (906, INT64, _ints([number])), (900, INT64, _ints([16])),
            ],
        )  # fmt: skip

    def _names(self, graph: ctypes.c_void_p, mode: int) -> list[str]:
        attributes = [(201, DESCRIPTOR, _pointer(graph)), (200, HEURISTIC_MODE, _enum(mode))]
        attributes.append((204, DESCRIPTOR, _pointer(self._device)))
        heuristic = self._finalized(HEURISTIC, attributes)
        most = self._get(heuristic, 202, DESCRIPTOR, None, 0)
        configs = self._room(CONFIG, most)
        count = self._get(heuristic, 202, DESCRIPTOR, configs, most)
        engine, knobs = self._room(ENGINE, 1), self._room(KNOB, KNOBS)
        return [self._name(ctypes.c_void_p(configs[at]), engine, knobs) for at in range(count)]

    def _name(self, config: ctypes.c_void_p, engine: Any, knobs: Any) -> str:
        number, value, kind = (ctypes.c_int64 * 1)(), (ctypes.c_int64 * 1)(), (ctypes.c_int * 1)()
        self._get(config, 300, DESCRIPTOR, engine, 1)
        self._get(ctypes.c_void_p(engine[0]), 1301, INT64, number, 1)
        choices = []
        for at in range(self._get(config, 302, DESCRIPTOR, knobs, KNOBS)):
            knob = ctypes.c_void_p(knobs[at])
            self._get(knob, 600, KNOB_TYPE, kind, 1)
            self._get(knob, 601, INT64, value, 1)
            choices.append((kind[0], value[0]))
        return f"eng{number[0]}" + "".join(f"_k{kind}={value}" for kind, value in sorted(choices))

    def _room(self, kind: int, count: int) -> Any:
        return (ctypes.c_void_p * max(1, count))(*(self._make(kind).value for _ in range(count)))

    def _make(self, kind: int) -> ctypes.c_void_p:
        descriptor = ctypes.c_void_p()
        _check(self._library.cudnnBackendCreateDescriptor(kind, ctypes.byref(descriptor)))
        self._made.append(descriptor)
        return descriptor

    def _finalized(self, kind: int, attributes: Sequence[tuple[int, int, Any]]) -> ctypes.c_void_p:
        descriptor = self._make(kind)
        for attribute, value_type, values in attributes:
            count = ctypes.c_int64(len(values))
            _check(self._library.cudnnBackendSetAttribute(descriptor, attribute, value_type, count, values))
        _check(self._library.cudnnBackendFinalize(descriptor))
        return descriptor

    def _get(self, descriptor: ctypes.c_void_p, attribute: int, value_type: int, values: Any, room: int) -> int:
        count = ctypes.c_int64()
        arguments = descriptor, attribute, value_type, ctypes.c_int64(room), ctypes.byref(count), values
        _check(self._library.cudnnBackendGetAttribute(*arguments))
        return count.value


class _CudnnError(Exception):
    """A call that did not succeed."""


def _check(status: int) -> None:
    if status:
        raise _CudnnError(status)


def _ints(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


def _enum(value: int) -> Any:
    return (ctypes.c_int * 1)(value)


def _pointer(descriptor: ctypes.c_void_p) -> Any:
    return (ctypes.c_void_p * 1)(descriptor.value)


def _load() -> Any:
    """CuDNN of Python's packages, else of the system."""
    names = ["libcudnn.so.9"]
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for part in ("cudnn", "cublas", "cuda_nvrtc", "cu13"):
            folder = Path(root, part, "lib")
            # What cuDNN itself opens by name, and would look for in the system.
            for path in sorted(folder.glob("lib*.so.*")) if part != "cudnn" and folder.is_dir() else ():
                if path.name.startswith(("libcublas", "libnvrtc.so", "libcudart")):
                    _open(str(path))
        names.insert(0, str(Path(root, "cudnn", "lib", "libcudnn.so.9")))
    for name in names:
        if library := _open(name):
            return library
    raise UserError("cuDNN's library is missing, which lists its plans without a GPU: pip install nvidia-cudnn-cu13")


def _open(path: str) -> Any:
    try:
        return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None
