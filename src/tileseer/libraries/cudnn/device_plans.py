"""cuDNN's plans as kernels of the measuring driver: it makes the operands, times and verifies, cuDNN launches.

A plan becomes a kernel of the driver (``ConvKernelC``) whose functions call cuDNN's Python frontend. So plans are
measured by the code that measures compiled kernels. Loaded by a worker only.
"""

import ctypes
import math
from collections.abc import Mapping
from typing import Any

from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.libraries.cudnn.engines import MEASURED_WORKSPACE_BYTES
from tileseer.libraries.cudnn.library import FRONTEND
from tileseer.measure.harness import abi
from tileseer.measure.harness.abi import ConvKernel, ConvProblem, DriverLibrary
from tileseer.problems.shapes import AXES, output_extent

LIBRARY = "cudnn"
"""Stands for cuDNN among the libraries of a request; with a version, ``cudnn 91900``, for that one alone."""
WORST_ERROR, RELATIVE_ERROR = 4.0, 1e-2
"""Of a right result: largest error of an element in the driver's tolerances, and of all of them (Euclidean). Plans may
round partial sums to the type of the result, which the driver's tolerance does not know of."""
OPERANDS = {"forward": ("x", "w", "y"), "bwd_data": ("y", "w", "x"), "bwd_weight": ("x", "y", "w")}
"""Input x, weight w and output y, in the order of the driver's operands; the last one is computed."""
NODES = {
    "forward": ("conv_fprop", "image", "weight"),
    "bwd_data": ("conv_dgrad", "loss", "filter"),
    "bwd_weight": ("conv_wgrad", "image", "loss"),
}
"""cuDNN's function of each direction, and its names of the first two of them."""


def plan_of_kernel(kernel: str) -> tuple[str, int, str]:
    """Return data type, dimensionality and cuDNN's name of a plan, of its name as a kernel (``libraries.cudnn``)."""
    shape, _, plan = kernel.partition("d_eng")
    _, dtype, ndim = shape.rsplit("_", 2)
    return dtype, int(ndim), f"eng{plan}"


def channels_last_strides(shape: list[int]) -> list[int]:
    """Return the strides in elements of a tensor N, C, image, whose memory ends with the channel."""
    _, channels, *image = shape
    inner = [channels * math.prod(image[axis + 1 :]) for axis in range(len(image))]
    return [channels * math.prod(image), 1, *inner]


class Convolution:
    """The graph of one problem, with the plans that cuDNN offers for it."""

    def __init__(self, cudnn: Any, handle: Any, problem: ConvProblem, dtype: str, ndim: int) -> None:
        """Ask cuDNN for its plans; any exception of its means that it has none."""
        self._handle = handle
        sizes = {name: getattr(problem, field) for field, name in abi.PROBLEM_DIMS.items()}
        direction = VARIANTS[problem.direction]
        *_, strides, pads, dilations = zip(*AXES[3 - ndim :], strict=True)
        steps = (("padding", pads), ("stride", strides), ("dilation", dilations))
        geometry = {name: [sizes[field] for field in fields] for name, fields in steps}
        shapes = _shapes(sizes, ndim)
        kind = {"bf16": cudnn.data_type.BFLOAT16, "fp16": cudnn.data_type.HALF, "fp32": cudnn.data_type.FLOAT}[dtype]
        wide = cudnn.data_type.FLOAT
        graph = cudnn.pygraph(io_data_type=kind, intermediate_data_type=wide, compute_data_type=wide, handle=handle)
        *reads, computed = OPERANDS[direction]
        tensors = [
            graph.tensor(name=name, dim=shapes[name], stride=channels_last_strides(shapes[name]), data_type=kind)
            for name in reads
        ]
        node, *words = NODES[direction]
        result = getattr(graph, node)(**dict(zip(words, tensors, strict=True)), **geometry)
        shape = shapes[computed]
        result.set_output(True).set_data_type(kind).set_dim(shape).set_stride(channels_last_strides(shape))
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.B, cudnn.heur_mode.FALLBACK])
        graph.check_support()
        self._graph, self._operands = graph, [*tensors, result]
        self.plans = [graph.get_plan_name_at_index(index) for index in range(graph.get_execution_plan_count())]
        """cuDNN's names in its own order, the best first as it thinks; some occur twice."""
        self._workspaces: dict[int, int] = {}

    def workspace_bytes(self, plan: str) -> int:
        """Return the bytes that a plan needs; it is built at the first call. ``LookupError`` if it is not offered."""
        if plan not in self.plans:
            raise LookupError("cuDNN does not offer this plan for the problem")
        index = self.plans.index(plan)
        if index not in self._workspaces:
            self._graph.build_plan_at_index(index)
            self._workspaces[index] = int(self._graph.get_workspace_size_plan_at_index(index))
        return self._workspaces[index]

    def launch(self, plan: str, addresses: list[int], workspace: int) -> None:
        """Queue a plan that was built; ``addresses`` are those of the driver's operands."""
        pack = dict(zip(self._operands, addresses, strict=True))
        self._graph.execute_plan_at_index(pack, workspace, self.plans.index(plan), handle=self._handle)


def _shapes(sizes: Mapping[str, int], ndim: int) -> dict[str, list[int]]:
    """Return the shape of input, weight and output: N, C, image."""
    axes = AXES[3 - ndim :]
    return {
        "x": [sizes["N"], sizes["C"], *(sizes[axis[0]] for axis in axes)],
        "w": [sizes["K"], sizes["C"] // sizes["G"], *(sizes[axis[1]] for axis in axes)],
        "y": [sizes["N"], sizes["K"], *(output_extent(sizes, axis) for axis in axes)],
    }


class CudnnPlans:
    """Registers plans with a driver, and keeps the graph of the problem that is measured."""

    def __init__(self, driver: DriverLibrary) -> None:
        """``OSError`` without cuDNN or its frontend."""
        try:
            import cudnn

            self.version = f"{LIBRARY} {cudnn.backend_version()}"
        except (ImportError, RuntimeError) as error:
            raise OSError(f"cuDNN's Python frontend is missing or finds no cuDNN ({error}): {FRONTEND}") from error
        self._cudnn, self._driver = cudnn, driver
        self._handle: Any = None
        self._current: tuple[Any, Convolution] | None = None
        self._kernels: dict[str, ConvKernel] = {}

    def require(self, library: str) -> None:
        """Raise an ``OSError`` unless the library of a request is this one."""
        if library not in (LIBRARY, self.version):
            raise OSError(
                f"the plans are those of {library}, and this is {self.version}: "
                "delete results/build/ARCH and run again, or install that version of cuDNN"
            )

    @staticmethod
    def is_right(check: abi.ConvCheck) -> bool:
        """Return whether the result of a plan counts as right."""
        errors_are_small = check.worst <= WORST_ERROR and check.relative_error <= RELATIVE_ERROR
        return not check.not_finite and bool(errors_are_small)

    def find(self, kernel: str, direction: int) -> int:
        """Return the number that the driver has of a plan; it is registered at the first call."""
        if kernel not in self._kernels:
            self._kernels[kernel] = self._kernel(kernel, direction)
            self._driver.register(ctypes.byref(self._kernels[kernel]))
        return int(self._driver.find_kernel(kernel.encode()))

    def convolution(self, problem: ConvProblem, dtype: str, ndim: int) -> Convolution:
        """Return the graph of a problem; any exception of cuDNN's means that it has no plan."""
        key = bytes(problem), dtype, ndim
        if self._current is None or self._current[0] != key:
            self._current = None
            if self._handle is None:
                self._handle = self._cudnn.create_handle()
            self._current = key, Convolution(self._cudnn, self._handle, problem, dtype, ndim)
        return self._current[1]

    def _kernel(self, kernel: str, direction: int) -> ConvKernel:
        """Return the functions of a plan, as the driver calls them: no exception may leave them."""
        dtype, ndim, plan = plan_of_kernel(kernel)

        def supports(problem: Any, why: int, size: int) -> int:
            try:
                needed = self.convolution(problem.contents, dtype, ndim).workspace_bytes(plan)
            except Exception as error:
                _explain(why, size, error)
                return 0
            if needed > MEASURED_WORKSPACE_BYTES:
                _explain(why, size, f"it needs a workspace of {needed} bytes")
            return int(needed <= MEASURED_WORKSPACE_BYTES)

        def workspace_bytes(problem: Any) -> int:
            # The driver asks after ``supports``, which has built the plan.
            return self.convolution(problem.contents, dtype, ndim).workspace_bytes(plan)

        def launch(problem: Any, a: int, b: int, c: int, workspace: int, stream: int, why: int, size: int) -> int:
            try:
                self._cudnn.set_stream(handle=self._handle, stream=stream or 0)
                self.convolution(problem.contents, dtype, ndim).launch(plan, [a, b, c], workspace or 0)
            except Exception as error:
                _explain(why, size, error)
                return abi.UNSUPPORTED
            return abi.OK

        def resources(unknown: Any) -> int:
            unknown[0] = abi.ConvResources(-1, -1, -1, -1, -1)
            return abi.OK

        functions = abi.SUPPORTS(supports), abi.WORKSPACE_BYTES(workspace_bytes), abi.LAUNCH(launch)
        numbers = direction, ndim, DTYPES.index(dtype)
        return ConvKernel(kernel.encode(), *numbers, *functions, abi.RESOURCES(resources))


def _explain(why: int, size: int, reason: object) -> None:
    """Write a reason into the driver's text of ``size`` bytes."""
    text = " ".join(str(reason).split()) or type(reason).__name__
    content = text.encode()[: size - 1] + b"\0"
    ctypes.memmove(why, content, len(content))
