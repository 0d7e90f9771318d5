"""Stands for cuDNN's Python frontend beside the measuring driver of the host: plans that work, fail, hang or lie.

On PYTHONPATH of a worker. What the plans of a problem do is told by its output channels (``SCENARIOS``); they compute
real convolutions of the driver's operands, by NumPy, and move the driver's simulated clock.
"""

import ctypes
import itertools
import os
import signal
import time
from types import SimpleNamespace

import numpy as np

__version__ = "0 (stand-in)"
GOOD = {"eng0_k2=0": 30.0, "eng0_k2=1": 20.0, "eng1_k2=0": 24.0, "eng1_k2=1": 90.0, "eng2": 25.0}
"""Microseconds of plans that work."""
BAD = ("unbuildable", "liar", "wrong", "unwritten", "hungry", "deadly", "hanging")
NAMES = dict(zip(BAD, (f"eng{number}" for number in (3, 5, 6, 9, 10, 16, 17)), strict=True))
SCENARIOS = {
    10: [*GOOD, "eng0_k2=1", *(NAMES[what] for what in BAD[:5])],
    12: [*GOOD, NAMES["deadly"]],
    14: [*GOOD, NAMES["hanging"]],
    18: [],
    22: [*GOOD, "eng9999_k2=1", "python_engine[TILE=1]"],
}
"""Plans of problems with so many output channels; of others ``GOOD``, the best one first where they are many."""
COMPUTED = 2_000_000
"""Multiply-adds up to which a plan computes."""
HUGE = 1 << 40


class Refusal(RuntimeError):
    """As cuDNN's own exceptions."""


data_type = SimpleNamespace(BFLOAT16="bf16", HALF="fp16", FLOAT="fp32")
heur_mode = SimpleNamespace(A="A", B="B", FALLBACK="FALLBACK")


def backend_version():
    return int(os.environ.get("STAND_IN_CUDNN_VERSION", "91900"))


def create_handle():
    return SimpleNamespace(stream=None)


def set_stream(handle, stream):
    handle.stream = stream


class Tensor:
    def __init__(self, dim=(), stride=(), data_type=None, name=""):
        self.dim, self.stride, self.data_type, self.name = list(dim), list(stride), data_type, name

    def set_output(self, value):
        return self

    def set_data_type(self, value):
        self.data_type = value
        return self

    def set_dim(self, value):
        self.dim = list(value)
        return self

    def set_stride(self, value):
        self.stride = list(value)
        return self

    def array(self, address):
        """The memory of a tensor as an array of its shape; of bf16 the bits."""
        kind = {"fp32": np.float32, "fp16": np.float16, "bf16": np.uint16}[self.data_type]
        size = int(np.prod(self.dim)) * np.dtype(kind).itemsize
        memory = np.frombuffer((ctypes.c_char * size).from_address(address), kind)
        return np.lib.stride_tricks.as_strided(memory, self.dim, [s * memory.itemsize for s in self.stride])


def wide(bits):
    """Values of an array of a tensor as float32."""
    if bits.dtype != np.uint16:
        return bits.astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def store(target, values):
    """Write float32 values into the array of a tensor, rounded to its type."""
    if target.dtype == np.uint16:
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        values = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    target[...] = values


class pygraph:
    def __init__(self, io_data_type, intermediate_data_type, compute_data_type, handle):
        self._plans, self._built = [], set()

    def tensor(self, name, dim, stride, data_type):
        return Tensor(dim, stride, data_type, name)

    def conv_fprop(self, image, weight, **geometry):
        return self._convolution("y", geometry, x=image, w=weight)

    def conv_dgrad(self, loss, filter, **geometry):
        return self._convolution("x", geometry, y=loss, w=filter)

    def conv_wgrad(self, image, loss, **geometry):
        return self._convolution("w", geometry, x=image, y=loss)

    def _convolution(self, computed, geometry, **tensors):
        self._result = Tensor(name=computed)
        self._tensors, self._geometry = {**tensors, computed: self._result}, geometry
        return self._result

    def validate(self):
        t = self._tensors
        assert t["x"].dim[0] == t["y"].dim[0] and t["w"].dim[0] == t["y"].dim[1], "shapes do not fit"
        assert all(len(values) == len(t["x"].dim) - 2 for values in self._geometry.values())

    def build_operation_graph(self):
        pass

    def create_execution_plans(self, modes):
        assert modes == ["A", "B", "FALLBACK"]
        channels = self._tensors["y"].dim[1]
        own = sorted(GOOD, key=lambda name: (self._microseconds(name), name))
        self._plans = SCENARIOS.get(channels, own if channels > 16 else list(GOOD))

    def check_support(self):
        if not self._plans:
            raise Refusal("no engine takes this problem")

    def get_execution_plan_count(self):
        return len(self._plans)

    def get_plan_name_at_index(self, index):
        return self._plans[index]

    def build_plan_at_index(self, index):
        if self._plans[index] == NAMES["unbuildable"]:
            raise Refusal("it cannot be built")
        self._built.add(index)

    def get_workspace_size_plan_at_index(self, index):
        assert index in self._built
        return HUGE if self._plans[index] == NAMES["hungry"] else 64

    def execute_plan_at_index(self, pack, workspace, index, handle):
        assert index in self._built and workspace and handle.stream is not None
        plan = self._plans[index]
        if plan == NAMES["liar"]:
            raise Refusal("it cannot be launched")
        if plan == NAMES["deadly"]:
            os.kill(os.getpid(), signal.SIGSEGV)
        if plan == NAMES["hanging"]:
            time.sleep(60)
        if plan != NAMES["unwritten"]:
            self._compute({tensor.name: tensor.array(address) for tensor, address in pack.items()}, plan)
        ctypes.c_double.from_address(handle.stream).value += self._microseconds(plan)

    def _microseconds(self, plan):
        size = float(np.prod(self._tensors["y"].dim))
        return GOOD.get(plan, 1.0) * (1 + size / 1e5 * (1 + ("eng1" in plan)))

    def _compute(self, arrays, plan):
        x, w, y = (arrays[name] for name in "xwy")
        if w.size * y.size // w.shape[0] > COMPUTED:
            return
        computed = self._result.name
        values = {name: np.zeros(array.shape, np.float32) for name, array in arrays.items() if name == computed}
        values = {name: wide(array) for name, array in arrays.items() if name != computed} | values
        pad, stride, dilation = (self._geometry[name] for name in ("padding", "stride", "dilation"))
        groups = x.shape[1] // w.shape[1]
        image = np.pad(values["x"], [(0, 0), (0, 0), *((p, p) for p in pad)])
        own = np.zeros_like(image)
        for tap in itertools.product(*(range(extent) for extent in w.shape[2:])):
            places = tuple(
                slice(t * d, t * d + s * (out - 1) + 1, s)
                for t, d, s, out in zip(tap, dilation, stride, y.shape[2:], strict=True)
            )
            for group in range(groups):
                c, k = (slice(group * n, (group + 1) * n) for n in (w.shape[1], w.shape[0] // groups))
                part, weight = image[(slice(None), c, *places)], values["w"][(k, slice(None), *tap)]
                loss = values["y"][:, k]
                if computed == "y":
                    loss += np.einsum("nc...,kc->nk...", part, weight)
                elif computed == "x":
                    own[(slice(None), c, *places)] += np.einsum("nk...,kc->nc...", loss, weight)
                else:
                    flat = (array.reshape(*array.shape[:2], -1) for array in (part, loss))
                    values["w"][(k, slice(None), *tap)] = np.einsum("ncs,nks->kc", *flat)
        if computed == "x":
            inner = tuple(slice(p, p + extent) for p, extent in zip(pad, x.shape[2:], strict=True))
            values["x"] = own[(slice(None), slice(None), *inner)]
        if plan == NAMES["wrong"]:
            values[computed].flat[0] += 100
        store(arrays[computed], values[computed])
