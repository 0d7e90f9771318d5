"""Whole training steps: PyTorch's default, its benchmark mode, and the switch ``tileseer.torch.enabled``.

    python benchmarks/gpu/torch_steps.py results/models/sm_90_cudnn --output steps.json [--networks NAME,autocast:NAME]

A step is forward, backward and SGD of a network of ``networks.py`` in bf16, channels last, or in fp32 under
autocast. It is captured in a CUDA graph, so that the host does not count, and also run eagerly; both in random turns
with all modes of the network. A ratio is the median over the turns, since clocks and hosts drift; ``again`` is
PyTorch's default a second time, and shows what a ratio is worth. A mode has a thread of its own, because PyTorch keeps
cuDNN's plans per thread. Needs an NVIDIA GPU, PyTorch for CUDA and torchvision. In place of a network:

* ``sizes`` runs a new image size at each step, and ``host`` times the host's part of a small convolution.
* ``eager:NAME`` turns the switch on and off in one thread.
* ``first:NAME`` runs the first three steps in a process for each mode, since cuDNN compiles a plan once a process.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import gc
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from networks import NETWORKS, network_and_input
from torch import nn

import tileseer.torch
from tileseer.core.documents import read_json
from tileseer.serve.tuned import read_choices
from tileseer.torch import extension
from tileseer.torch.choices import OWN

SEED = 0
LEARNING_RATE = 1e-3
TURN_SECONDS = 0.02
SIZES = 200
EAGER_TURNS = 60
PYTORCH = ("default", "again", "benchmark")
SWITCH: dict[str, int | None] = {"verified": None, "two": 2, "blind": 0, "all": 1000}
"""``verify`` of the switch in its modes."""


def main() -> int:
    """Run the networks; write what there is after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--networks", help="comma-separated; default: all, in bf16, with sizes and host")
    parser.add_argument("--modes", default="default,again,verified,benchmark", help=", ".join([*PYTORCH, *SWITCH]))
    parser.add_argument("--turns", type=int, default=15, help="of graphs; twice as many of eager steps")
    parser.add_argument("--seconds", type=float, default=3600, help="no network starts later than this")
    args = parser.parse_args()
    begin, rows = time.monotonic(), {}
    extension.load()
    for name in args.networks.split(",") if args.networks else ["host", "sizes", *NETWORKS]:
        start = time.monotonic()
        gc.collect()
        if start - begin > args.seconds:
            print(f"{name}: no time was left")
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                stage, _, network = name.partition(":")
                row = STAGES[stage](args, network) if stage in STAGES else network_stage(args, name)
            except (RuntimeError, TypeError, ValueError) as error:
                row = {"error": f"{type(error).__name__}: {error}"[:1000]}
        row["warnings"] = sorted({str(one.message) for one in caught if "tileseer: " in str(one.message)})
        row["took_s"] = round(time.monotonic() - start, 1)
        rows[name] = row
        print(name, json.dumps(row), flush=True)
        args.output.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
    print(_table(rows))
    return 0


class Mode:
    """A way to run convolutions, in a thread of its own with a network of its own."""

    def __init__(self, name: str, model: Path, choices: Path) -> None:
        self.name, self.model, self.choices = name, model, choices
        # Backward in the same thread as forward: PyTorch keeps the plans of both by thread.
        initializer = torch.autograd.set_multithreading_enabled
        self.pool = concurrent.futures.ThreadPoolExecutor(1, initializer=initializer, initargs=(False,))

    def call(self, function: Callable[[], Any]) -> Any:
        """Return what a function returns in this mode and its thread."""
        switch = (
            contextlib.nullcontext()
            if self.name in PYTORCH
            else tileseer.torch.enabled(self.model, verify=SWITCH[self.name], choices=self.choices)
        )
        with switch, torch.backends.cudnn.flags(enabled=True, benchmark=self.name == "benchmark"):
            return self.pool.submit(function).result()


class Step:
    """A network with its input, optimizer and captured step; what is done here is done in the thread of a mode."""

    def __init__(self, name: str) -> None:
        self.autocast = name.startswith("autocast:")
        torch.cuda.empty_cache()
        self.before = torch.cuda.memory_allocated()
        dtype = torch.float32 if self.autocast else torch.bfloat16
        self.network, self.x = network_and_input(name.removeprefix("autocast:"), dtype)
        trained = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.SGD(trained, lr=LEARNING_RATE, momentum=0.9)
        self.first_weights = self.network.state_dict()  # keeps the versions of modules, which some ask for
        self.first_weights.update({key: value.cpu() for key, value in self.first_weights.items()})
        self.first_seconds: list[float] = []
        self.graph: Any = None
        torch.cuda.synchronize()

    def begin(self) -> None:
        """Run the first steps, in the first of which plans are chosen; keep their seconds and the peak of a fourth."""
        for _ in range(3):
            start = time.perf_counter()
            self.run()
            torch.cuda.synchronize()
            self.first_seconds.append(round(time.perf_counter() - start, 3))
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self.run()
        torch.cuda.synchronize()
        self.peak_bytes = torch.cuda.max_memory_allocated() - self.before

    def gradient(self) -> list[Any]:
        """Return the gradients of one step from the first weights and one seed, on the host."""
        self.network.load_state_dict(self.first_weights)
        torch.manual_seed(SEED)
        self.optimizer.zero_grad(set_to_none=True)
        self._loss().backward()
        return [one.grad.float().cpu() for one in self.network.parameters() if one.grad is not None]

    def run(self) -> None:
        """Do one step."""
        self.optimizer.zero_grad(set_to_none=True)
        self._loss().backward()
        self.optimizer.step()

    def _loss(self) -> Any:
        with torch.autocast("cuda", torch.bfloat16, enabled=self.autocast):
            output = self.network(self.x)
        target = torch.zeros((output.shape[0], *output.shape[2:]), dtype=torch.long, device=output.device)
        return torch.nn.functional.cross_entropy(output.float(), target)

    def capture(self) -> None:
        """Capture the step, after three of them on the stream of the capture."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.run()
        torch.cuda.current_stream().wait_stream(stream)
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.run()

    def replayed(self, repeats: int) -> float:
        """Return the milliseconds of a replayed step."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            self.graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / repeats

    def eager(self, repeats: int) -> float:
        """Return the milliseconds of an eager step, after one that does not count."""
        self.run()
        torch.cuda.synchronize()
        gc.disable()
        start = time.perf_counter()
        for _ in range(repeats):
            self.run()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        gc.enable()
        return 1e3 * seconds / repeats


def network_stage(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """Time one network in all modes."""
    folder = Path(tempfile.mkdtemp())
    modes = {mode: Mode(mode, args.model, folder / f"{mode}.tsv") for mode in args.modes.split(",")}
    steps: dict[str, Step] = {}
    gradients: dict[str, list[Any]] = {}
    for mode, own in modes.items():
        steps[mode] = own.call(lambda: Step(name))
        own.call(steps[mode].begin)
        if not steps[mode].autocast:
            own.call(steps[mode].capture)
    row: dict[str, Any] = {
        "first_steps_s": {mode: step.first_seconds for mode, step in steps.items()},
        "peak_mib": {mode: round(step.peak_bytes / 2**20, 1) for mode, step in steps.items()},
        "shapes": {mode: _chosen(own.choices) for mode, own in modes.items() if mode in SWITCH},
        "machine": machine(),
    }
    for mode, own in modes.items():
        gradients[mode] = own.call(steps[mode].gradient)
    row["gradient_difference"] = {mode: _difference(gradients[mode], gradients["default"]) for mode in modes}
    order = random.Random(SEED)

    def eager(mode: str, count: int) -> float:
        return modes[mode].call(lambda: steps[mode].eager(count))

    ways = {
        "graph": (args.turns, lambda mode, count: steps[mode].replayed(count)),
        "eager": (2 * args.turns + 1, eager),
    }
    for way, (turns, timed) in ways.items():
        if way == "eager" or all(step.graph for step in steps.values()):
            times = _in_turns(order, list(modes), turns, timed)
            row[f"{way}_ms"] = {mode: round(statistics.median(column), 4) for mode, column in times.items()}
            row[f"{way}_ratios"] = {
                mode: round(statistics.median(a / b for a, b in zip(column, times["verified"], strict=True)), 4)
                for mode, column in times.items()
                if mode != "verified" and "verified" in times
            }
    return row


def _in_turns(
    order: random.Random, modes: list[str], turns: int, timed: Callable[[str, int], float]
) -> dict[str, list[float]]:
    """Return the milliseconds of each mode by turn, all in random turns on a warm clock."""
    repeats, times = {}, {mode: [] for mode in modes}
    for mode in modes:
        timed(mode, 1)
        repeats[mode] = max(1, round(TURN_SECONDS * 1e3 / timed(mode, 2)))
    for _ in range(turns):
        for mode in order.sample(modes, len(modes)):
            times[mode].append(timed(mode, repeats[mode]))
    return times


def _difference(one: list[Any], other: list[Any]) -> float:
    """Return the Euclidean norm of the difference of two gradients over that of the second."""
    squared = sum(float((a.double() - b).square().sum()) for a, b in zip(one, other, strict=True))
    return round((squared / sum(float(b.double().square().sum()) for b in other)) ** 0.5, 5)


def _chosen(path: Path) -> dict[str, int]:
    """Return how many shapes were chosen for, and how many of them stay PyTorch's."""
    files = path.with_name(f"{path.name}.tuned").glob("*.tsv")
    plans = [choice.candidate for file in files for choice in read_choices(file)]
    return {"all": len(plans), "pytorch": plans.count(OWN)}


def sizes_stage(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return the seconds of steps whose image has another size each time: nine convolutions with batch norms."""
    modes = [Mode(mode, args.model, Path(tempfile.mkdtemp(), "choices")) for mode in ("default", "verified")]

    def make() -> Any:
        widths = (64, 64, 64, 128, 128, 128, 256, 256, 256)
        layers: list[Any] = []
        for inputs, outputs in zip((8, *widths), widths, strict=False):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers).to("cuda", torch.bfloat16).to(memory_format=torch.channels_last)

    def step(network: Any, size: int) -> None:
        x = torch.randn(4, 8, size, size, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
        network(x).float().square().mean().backward()
        torch.cuda.synchronize()

    seconds = {mode.name: 0.0 for mode in modes}
    networks = {mode.name: mode.call(make) for mode in modes}
    for mode in modes:  # the code of all else
        for size in (16, 17):
            mode.call(lambda mode=mode, size=size: step(networks[mode.name], size))
    for number in range(SIZES):
        for mode in modes[:: 1 if number % 2 else -1]:

            def timed(mode: Mode = mode, size: int = 32 + number) -> None:
                begin = time.perf_counter()
                step(networks[mode.name], size)
                seconds[mode.name] += time.perf_counter() - begin

            mode.call(timed)
    return {"steps": SIZES, "seconds": {mode: round(value, 3) for mode, value in seconds.items()}}


def host_stage(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return microseconds on the host of a small convolution and its gradients, by PyTorch and by plans."""
    module = nn.Conv2d(64, 64, 1, bias=False, device="cuda", dtype=torch.bfloat16)
    module = module.to(memory_format=torch.channels_last)
    x = torch.randn(1, 64, 8, 8, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    w, rest = module.weight.detach(), ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    x.requires_grad_()
    grad = torch.ones_like(module(x))
    backward = torch.ops.aten.convolution_backward
    ways: dict[str, Callable[[], object]] = {
        "forward": lambda: torch.ops.aten.convolution(x.detach(), w, None, *rest),
        "data": lambda: backward(grad, x.detach(), w, None, *rest, [True, False, False]),
        "weight": lambda: backward(grad, x.detach(), w, None, *rest, [False, True, False]),
        "both": lambda: backward(grad, x.detach(), w, None, *rest, [True, True, False]),
        "training": lambda: torch.autograd.grad(module(x), (x, module.weight), grad),
    }
    row: dict[str, Any] = {}
    compiled = extension.load()
    choosers: dict[str, Callable[[Any], str] | None] = {
        "pytorch": None, "passed_on": lambda call: "", "first_plan": first_plan,
    }  # fmt: skip
    for kind, choose in 2 * list(choosers.items()):
        if choose:
            compiled.use(choose, lambda device: None, lambda: None, 100)
        compiled.turn(choose is not None)
        for what, way in ways.items():
            row[f"{what}_us_{kind}"] = min(row.get(f"{what}_us_{kind}", 1e9), _host_us(way))
    compiled.turn(False)
    tileseer.torch.switch._prepared = None  # the kernels ask another one now
    return row


def machine() -> str:
    """Return the GPU and the versions of what ran on it."""
    return f"{torch.cuda.get_device_name()}, torch {torch.__version__}, cudnn {torch.backends.cudnn.version()}"


def first_plan(call: Any) -> str:
    """Return cuDNN's first plan that can be built."""
    for plan in call.offered():
        with contextlib.suppress(RuntimeError):
            call.build(plan)
            return plan
    return ""


def _host_us(call: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(200):  # fewer than what a stream queues before the host has to wait
            call()
        best = min(best, (time.perf_counter() - begin) / 200)
    torch.cuda.synchronize()
    return round(best * 1e6, 2)


def eager_stage(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return milliseconds of eager steps of one network in one thread, with the switch on and off, and off again."""
    compiled = extension.load()

    def timed(mode: str, count: int) -> float:
        compiled.turn(mode == "on")
        return step.eager(count)

    def both() -> dict[str, list[float]]:
        step.begin()
        return _in_turns(random.Random(SEED), ["off", "on", "again"], EAGER_TURNS, timed)

    def launched(mode: str) -> int:
        compiled.turn(mode == "on")
        step.run()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            step.run()
            torch.cuda.synchronize()
        return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events())

    own = Mode("verified", args.model, Path(tempfile.mkdtemp(), "choices"))
    step = own.call(lambda: Step(name))
    times = own.call(both)
    ratios = {
        mode: statistics.median(off / one for off, one in zip(times["off"], times[mode], strict=True))
        for mode in ("on", "again")
    }
    kernels = {mode: own.call(lambda mode=mode: launched(mode)) for mode in ("off", "on")}
    return {
        "ms": {mode: statistics.median(column) for mode, column in times.items()},
        "ratios": ratios,
        "kernels": kernels,
    }


def first_stage(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return the seconds of the first three steps in modes that have a process each."""
    row: dict[str, Any] = {}
    for mode in ("verified", "benchmark"):
        output = Path(tempfile.mkdtemp(), "steps.json")
        options = ["--networks", f"begin:{name}", "--modes", mode, "--output", str(output)]
        done = subprocess.run([sys.executable, __file__, args.model, *options], capture_output=True, text=True)
        row[mode] = read_json(output)[f"begin:{name}"] if not done.returncode else done.stderr[-1000:]
    return row


def begin_stage(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return the seconds of the first three steps in one mode of a process that has done nothing else."""
    own = Mode(args.modes, args.model, Path(tempfile.mkdtemp(), "choices"))
    start = time.perf_counter()
    own.call(lambda: None)
    enabled_after = round(time.perf_counter() - start, 3)
    step = own.call(lambda: Step(name))
    own.call(step.begin)
    return {"enable_s": enabled_after, "first_steps_s": step.first_seconds, "shapes": _chosen(own.choices)}


STAGES: dict[str, Callable[[argparse.Namespace, str], dict[str, Any]]] = {
    "sizes": sizes_stage, "host": host_stage, "eager": eager_stage, "first": first_stage, "begin": begin_stage,
}  # fmt: skip


def _table(rows: dict[str, Any]) -> str:
    """Return a line a network: times of the other modes over that of the switch, and the geometric means."""
    lines, columns = [], {}
    for name, row in rows.items():
        cells = []
        for way in ("graph", "eager"):
            for mode, ratio in row.get(f"{way}_ratios", {}).items():
                columns.setdefault((way, mode), []).append(ratio)
                cells.append(f"{way} {mode} {ratio:.3f}")
        if "peak_mib" in row:
            cells.append(f"memory {row['peak_mib'].get('verified', 0) / row['peak_mib']['default']:.3f}")
        lines.append(f"{name}: " + (", ".join(cells) or json.dumps(row)[:300]))
    means = [f"{way} {mode} {statistics.geometric_mean(ratios):.3f}" for (way, mode), ratios in columns.items()]
    return "\n".join([*lines, "geometric means: " + ", ".join(means)])


if __name__ == "__main__":
    raise SystemExit(main())
