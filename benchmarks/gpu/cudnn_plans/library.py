"""cuDNN's frontend and PyTorch on one GPU: plans, operands, the comparison with fp32, samples."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from cudnn_plans.case import BENCHMARK, Limits, Refused, measure
from cudnn_plans.selectors import Selectors
from tileseer.conv.problem import DIMS

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
HALF_DISTANCE = {"bf16": 2.0**-8, "fp16": 2.0**-11}
"""Of neighbouring numbers at 1."""
POOL = 3 << 30
"""Elements of a pool of operands: 6 GiB."""
CACHE = 256 << 20
"""Bytes that are read before each row, several times the last-level cache."""
CLOCK_CYCLES = 150_000
SETTLE_S = 0.1
WARM = 0.98
"""Share of the highest clock seen from which on the clock counts as warm."""
KEPT = 60 << 30
"""Bytes of memory that PyTorch may hold back between cases."""
MOST_HOLD_CYCLES = 10_000_000
RETIMED = Limits(close=math.inf, turns=15, least_turns=9)
"""For what a model picked: the pick contends however slow it is."""
DEAD = 70
"""Exit status of a worker whose device reported an error."""


class Cuda:
    """Samples on a CUDA device: rows of launches between two events, held until the host has queued them."""

    device = "cuda"

    def __init__(self) -> None:
        self._cache = torch.ones(CACHE // 4, dtype=torch.float32, device=self.device)
        self._sum = torch.zeros((), dtype=torch.float32, device=self.device)
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        self._host_us = 40.0
        self.highest = 0.0
        self.late = self.rows = 0

    def synchronize(self) -> None:
        """Wait for all launches; an error of one is raised."""
        torch.cuda.synchronize()

    def clock(self) -> float:
        """MHz now."""
        begin, end = self._events[:2]
        begin.record()
        torch.cuda._sleep(CLOCK_CYCLES)
        end.record()
        end.synchronize()
        return self._seen(begin, end)

    def _seen(self, begin: Any, end: Any) -> float:
        mhz = CLOCK_CYCLES / (begin.elapsed_time(end) * 1000)
        self.highest = max(self.highest, mhz)
        return mhz

    def settle(self) -> float:
        """Wait until the clock is warm; its MHz."""
        limit = time.monotonic() + SETTLE_S
        while (mhz := self.clock()) < WARM * self.highest:
            if time.monotonic() > limit:
                # A clock that this GPU no longer reaches is none to wait for.
                self.highest *= 0.995
                break
            time.sleep(0.002)
        return mhz

    def row(self, launches: Sequence[Callable[[], object]]) -> tuple[float, float]:
        """Microseconds of one of the launches, and the clock before them in MHz."""
        before, after, begin, end = self._events
        # Grown where the host was too slow: else the row would be timed at its speed.
        hold = max(0.0, 1.5 * self._host_us * len(launches) - 70) * 2000
        for _ in range(4):
            # What the kernel before has left in the cache is replaced by what no kernel reads.
            torch.sum(self._cache, dim=0, out=self._sum)
            before.record()
            torch.cuda._sleep(CLOCK_CYCLES)
            after.record()
            if hold:
                torch.cuda._sleep(int(min(hold, MOST_HOLD_CYCLES)))
            begin.record()
            queued = time.perf_counter()
            kept = [launch() for launch in launches]
            host_us = (time.perf_counter() - queued) * 1e6 / len(launches)
            end.record()
            late = begin.query()
            end.synchronize()
            del kept
            self.rows += 1
            self._host_us = max(0.95 * self._host_us, min(host_us, 500.0))
            if not late:
                break
            self.late += 1
            hold = max(2 * hold, 200_000)
        return begin.elapsed_time(end) * 1000 / len(launches), self._seen(before, after)

    def tidy(self) -> None:
        """Give back memory if much is kept."""
        if torch.cuda.memory_reserved() > KEPT:
            torch.cuda.empty_cache()

    def facts(self) -> dict[str, Any]:
        """What the GPU is."""
        properties = torch.cuda.get_device_properties(0)
        return {"gpu": properties.name, "uuid": str(getattr(properties, "uuid", "")), "memory": properties.total_memory}


class Library:
    """What all cases of a process share."""

    def __init__(self, cuda: Any, cudnn: Any, pool: int = POOL) -> None:
        self.cuda, self.cudnn, self.pool = cuda, cudnn, pool
        self.handle = cudnn.create_handle()
        if cuda.device == "cuda":
            cudnn.set_stream(handle=self.handle, stream=torch.cuda.current_stream().cuda_stream)
        torch.manual_seed(1)
        self.inputs: dict[str, torch.Tensor] = {}
        self._selectors: Selectors | None = None
        self.outputs = torch.empty(pool, dtype=torch.int16, device=cuda.device)
        # PyTorch keeps the plans of each thread apart: benchmark mode has one of its own.
        self.thread = ThreadPoolExecutor(1)
        # Collected between cases only, and without what is there for good.
        gc.collect()
        gc.freeze()
        gc.disable()

    def numbers(self, dtype: str) -> torch.Tensor:
        """Random numbers, uniform from -1 to 1."""
        if dtype not in self.inputs:
            made = torch.empty(self.pool, dtype=DTYPES[dtype], device=self.cuda.device)
            self.inputs[dtype] = made.uniform_(-1, 1)
        return self.inputs[dtype]

    def measure(self, request: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
        """Measure a case."""
        self.cuda.late = self.cuda.rows = 0
        limits, choose = Limits(), None
        if "models" in request:
            limits, choose = RETIMED, self._choice(request)
        try:
            bench = Convolution(self, request["problem"], request["seed"], limits.workspace, request["most_launches"])
            result = measure(bench, limits, request["seed"], request["barred"], request["rivals"], say, choose)
        except torch.OutOfMemoryError as error:
            result = {"failed": "skipped", "told": str(error)[:160]}
        except Refused as error:
            result = {"failed": "unsupported", "told": str(error)[:160]}
        bench = None
        gc.collect()
        self.cuda.tidy()
        return result | {"late": [self.cuda.late, self.cuda.rows], "warm_mhz": round(self.cuda.highest)}

    def _choice(self, request: dict[str, Any]) -> Callable[[Sequence[str]], int]:
        """What picks of the offered plans of a case."""
        if self._selectors is None:
            self._selectors = Selectors(Path(request["models"]), Path(request["built"]))
        selectors, problem = self._selectors, request["problem"]
        operation = f"{problem['variant']}_{problem['dtype']}"
        dims, version = [problem[name] for name in DIMS], f"cudnn {self.cudnn.backend_version()}"
        return lambda names: selectors.choose(operation, dims, names, version)

    def facts(self) -> dict[str, Any]:
        """What the numbers depend on."""
        return {
            **self.cuda.facts(), "cudnn": self.cudnn.backend_version(), "frontend": self.cudnn.__version__,
            "torch": torch.__version__, "torch_cudnn": torch.backends.cudnn.version(), "cuda": torch.version.cuda,
        }  # fmt: skip


def strides(shape: Sequence[int]) -> list[int]:
    """Of a tensor of N, C and the image whose memory ends with the channel."""
    _, c, *image = shape
    own = [c * math.prod(image[place + 1 :]) for place in range(len(image))]
    return [c * math.prod(image), 1, *own]


class Convolution:
    """The ``Bench`` of one case: ``problem`` has variant, dtype and the 19 dimensions."""

    def __init__(
        self, library: Library, problem: dict[str, Any], seed: str, workspace: int, most_launches: int
    ) -> None:
        self._library, self._cuda = library, library.cuda
        self._variant, self._dtype = problem["variant"], problem["dtype"]
        flat = (problem["Di"], problem["Z"], problem["stride_d"], problem["dilation_d"], problem["pad_d"])
        axes = "hw" if flat == (1, 1, 1, 1, 0) else "dhw"
        image = [problem[{"d": "Di", "h": "Hi", "w": "Wi"}[axis]] for axis in axes]
        filters = [problem[{"d": "Z", "h": "Y", "w": "X"}[axis]] for axis in axes]
        self._stride, self._pad, self._dilation = (
            [problem[f"{name}_{axis}"] for axis in axes] for name in ("stride", "pad", "dilation")
        )
        out = [
            (i + 2 * p - d * (f - 1) - 1) // s + 1
            for i, f, s, p, d in zip(image, filters, self._stride, self._pad, self._dilation, strict=True)
        ]
        n, c, k, self._groups = (problem[name] for name in ("N", "C", "K", "G"))
        shapes = {
            "x": [n, c, *image],
            "w": [k, c // self._groups, *filters],
            "y": [n, k, *out],
        }
        reads, self._writes, products = {
            "forward": ("xw", "y", c // self._groups * math.prod(filters)),
            "bwd_data": ("yw", "x", k // self._groups * math.prod(filters)),
            "bwd_weight": ("xy", "w", n * math.prod(out)),
        }[self._variant]
        u = HALF_DISTANCE[self._dtype]
        self._tolerance = 4 * u + (8 * math.sqrt(products) + products / 4) * 2.0**-24
        self._typical = math.sqrt(products) / 3
        self._shapes = shapes
        self.most_launches = self._place(reads, seed, most_launches)
        self._workspace = torch.empty(1, dtype=torch.uint8, device=self._cuda.device)
        self._workspace_limit = workspace

    def _place(self, reads: str, seed: str, most: int) -> int:
        """Lay operands into the pools, a set for each launch of a row; how many there are."""
        pool, out = self._library.numbers(self._dtype), self._library.outputs
        rounded = {name: (math.prod(shape) + 127) // 128 * 128 for name, shape in self._shapes.items()}
        read, written = sum(rounded[name] for name in reads), rounded[self._writes]
        sets = min(most, pool.numel() // read, out.numel() // written)
        if sets < 1:
            raise torch.OutOfMemoryError("the operands do not fit into the pool")
        at = random.Random(seed).randrange((pool.numel() - sets * read) // 128 + 1) * 128
        self._sets: list[dict[str, torch.Tensor]] = []
        self._flat: list[torch.Tensor] = []
        for place in range(sets):
            tensors = {}
            for name in reads:
                tensors[name] = torch.as_strided(pool, self._shapes[name], strides(self._shapes[name]), at)
                at += rounded[name]
            flat = out[place * written : place * written + math.prod(self._shapes[self._writes])]
            shape = self._shapes[self._writes]
            tensors[self._writes] = flat.view(DTYPES[self._dtype]).as_strided(shape, strides(shape), place * written)
            self._flat.append(flat)
            self._sets.append(tensors)
        return sets

    def plans(self) -> list[str]:
        """Names of the plans that the library offers, its own order."""
        with self._refusals():
            self._compute_reference()
            return self._offered()

    def _offered(self) -> list[str]:
        cudnn = self._library.cudnn
        kind = {"bf16": cudnn.data_type.BFLOAT16, "fp16": cudnn.data_type.HALF}[self._dtype]
        wide = cudnn.data_type.FLOAT
        handle = self._library.handle
        graph = cudnn.pygraph(io_data_type=kind, intermediate_data_type=wide, compute_data_type=wide, handle=handle)
        made = {
            name: graph.tensor(name=name, dim=list(shape), stride=strides(shape), data_type=kind)
            for name, shape in self._shapes.items()
            if name != self._writes
        }
        how = {"padding": [*self._pad], "stride": [*self._stride], "dilation": [*self._dilation]}
        if self._variant == "forward":
            result = graph.conv_fprop(image=made["x"], weight=made["w"], **how)
        elif self._variant == "bwd_data":
            result = graph.conv_dgrad(loss=made["y"], filter=made["w"], **how)
        else:
            result = graph.conv_wgrad(image=made["x"], loss=made["y"], **how)
        shape = self._shapes[self._writes]
        result.set_output(True).set_data_type(kind).set_dim(list(shape)).set_stride(strides(shape))
        made[self._writes] = result
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.B, cudnn.heur_mode.FALLBACK])
        graph.check_support()
        self._graph = graph
        self._packs = [{made[name]: tensor for name, tensor in tensors.items()} for tensors in self._sets]
        return [graph.get_plan_name_at_index(plan) for plan in range(graph.get_execution_plan_count())]

    def build(self, plan: int) -> int:
        """Build a plan; the bytes of its workspace."""
        with self._refusals():
            self._graph.build_plan_at_index(plan)
            size = self._graph.get_workspace_size_plan_at_index(plan)
        if self._workspace.numel() < size <= self._workspace_limit:
            self._workspace = torch.empty(1, dtype=torch.uint8, device=self._cuda.device)
            self._workspace = torch.empty(size, dtype=torch.uint8, device=self._cuda.device)
        return int(size)

    def _launch(self, contender: int | str, place: int) -> Callable[[], object]:
        """Launch of a contender on one set of operands."""
        if isinstance(contender, int):
            graph, handle, workspace, pack = self._graph, self._library.handle, self._workspace, self._packs[place]
            return lambda: graph.execute_plan_at_index(pack, workspace, contender, handle=handle)
        given = self._sets[place]
        return lambda: self._torch(given)

    def _torch(self, given: dict[str, torch.Tensor]) -> torch.Tensor:
        """The same by PyTorch."""
        none = [0] * len(self._stride)
        how = (self._stride, self._pad, self._dilation, False, none, self._groups)
        if self._variant == "forward":
            return torch.ops.aten.convolution(given["x"], given["w"], None, *how)
        # The shape of what is computed is all that is read of it.
        mask = [self._variant == "bwd_data", self._variant == "bwd_weight", False]
        results = torch.ops.aten.convolution_backward(given["y"], given["x"], given["w"], None, *how, mask)
        return results[0 if mask[0] else 1]

    def check(self, contender: int | str) -> tuple[float, float]:
        """Launch once over a poisoned output and compare with fp32."""
        self._flat[0].fill_(-1)
        self._workspace.fill_(255)
        with self._refusals():
            got = self._in_mode(contender, lambda: self._launch(contender, 0)())
            self._cuda.synchronize()
        result = self._sets[0][self._writes] if isinstance(contender, int) else got
        return self._compare(result)

    def _compute_reference(self) -> None:
        wide = {name: tensor.float() for name, tensor in self._sets[0].items()}
        torch.backends.cudnn.allow_tf32 = False
        try:
            reference = self._torch(wide)
        finally:
            torch.backends.cudnn.allow_tf32 = True
        self._reference = reference
        self._norm = torch.linalg.vector_norm(reference)
        self._scale = self._tolerance * torch.clamp(reference.abs(), min=self._typical)

    def _compare(self, result: torch.Tensor) -> tuple[float, float]:
        off = result.float() - self._reference
        # NaN where an element is not finite: both sums carry it.
        error, worst = torch.stack(
            [torch.linalg.vector_norm(off) / self._norm, (off.abs() / self._scale).max()]
        ).tolist()
        return (error, worst) if math.isfinite(error) and math.isfinite(worst) else (math.nan, math.nan)

    def _in_mode(self, contender: int | str, do: Callable[[], Any]) -> Any:
        """Do something in PyTorch's benchmark mode if that is the contender."""
        if contender != BENCHMARK:
            return do()
        torch.backends.cudnn.benchmark = True
        try:
            return self._library.thread.submit(do).result()
        finally:
            torch.backends.cudnn.benchmark = False

    def row(self, contender: int | str, launches: int) -> tuple[float, float]:
        """Microseconds of one of ``launches`` launches in a row, and the clock before it in MHz."""
        with self._refusals():
            row = [self._launch(contender, place) for place in range(launches)]
            return self._in_mode(contender, lambda: self._cuda.row(row))

    def settle(self) -> float:
        """Wait until the clock is warm; its MHz."""
        return self._cuda.settle()

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """Make the library's errors refusals. An error of the device ends the process: its context is gone."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            try:
                self._cuda.synchronize()
            except Exception as fault:
                print(f"{text}; then {fault}", flush=True)
                os._exit(DEAD)
            raise Refused(text) from None


def opened() -> Library:
    """The library on the one GPU that is visible."""
    import cudnn

    return Library(Cuda(), cudnn)
