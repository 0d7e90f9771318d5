"""Whole training steps in bf16, channels last: PyTorch's default, its benchmark mode, and the plans of a model.

    python benchmarks/gpu/torch_steps.py results/models/sm_90_cudnn --output steps.json [--networks resnet50,unet_3d]

Each step (forward, backward, SGD) is captured in a CUDA graph, so that the host does not count, and the graphs of a
process are replayed in random turns. A network has two processes: one with PyTorch's default, the model's picks and
``verify=3``; one with benchmark mode, whose plans PyTorch keeps, and both kinds of plans once more, read from the file
of the first. Several networks are set up at a time; whoever times has the GPU alone. Needs an NVIDIA GPU, PyTorch for
CUDA and torchvision.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import fcntl
import functools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SEED = 0
LEARNING_RATE = 1e-3
TURNS = 15
TURN_SECONDS = 0.02
NETWORKS: dict[str, tuple[str, tuple[int, ...]]] = {
    "resnext50_32x4d": ("", (64, 3, 224, 224)),
    "r3d_18": ("video.", (16, 3, 16, 112, 112)),
    "regnet_y_3_2gf": ("", (64, 3, 224, 224)),
    "mobilenet_v3_large": ("", (128, 3, 224, 224)),
    "shufflenet_v2_x1_0": ("", (128, 3, 224, 224)),
    "unet_2d": ("own", (8, 3, 256, 256)),
    "r2plus1d_18": ("video.", (8, 3, 16, 112, 112)),
    "unet_3d": ("own", (2, 1, 96, 96, 96)),
    "densenet121": ("", (64, 3, 224, 224)),
    "efficientnet_v2_s": ("", (64, 3, 224, 224)),
    "resnext101_32x8d": ("", (32, 3, 224, 224)),
    "inception_v3": ("", (64, 3, 299, 299)),
    "resnet50": ("", (64, 3, 224, 224)),
    "convnext_tiny": ("", (64, 3, 224, 224)),
}
"""Where the network is in torchvision, and the shape of its input."""


def main() -> int:
    """Run the networks one after the other; write what there is after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--recording", type=Path, default=Path("config/recorded/sm_90_cudnn"))
    parser.add_argument("--seconds", type=float, default=3600, help="no network starts later than this")
    parser.add_argument("--workers", type=int, default=1, help="networks at a time")
    parser.add_argument("--lock", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--stage", choices=["default", "benchmark", "host"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.stage:
        print(json.dumps(STAGES[args.stage](args)))
        return 0
    begin = time.monotonic()
    rows: dict[str, Any] = {"host": _process(args, "", "host")}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.workers) as pool:
        args.lock = Path(folder, "lock")
        args.lock.touch()
        done = {
            pool.submit(_network, args, network, Path(folder), begin): network for network in args.networks.split(",")
        }
        for future in concurrent.futures.as_completed(done):
            rows[done[future]] = future.result()
            print(done[future], json.dumps(rows[done[future]]), flush=True)
            args.output.write_text(json.dumps(rows, indent=1) + "\n")
    print(_table(rows))
    return 0


def _network(args: argparse.Namespace, network: str, folder: Path, begin: float) -> dict[str, Any]:
    """Both processes of a network, with a model folder of its own for the plans to be beside."""
    if time.monotonic() - begin > args.seconds:
        return {"error": "no time was left"}
    model = folder / network / "model"
    shutil.copytree(args.model, model)
    row = _process(args, network, "default", model)
    return row if "error" in row else row | _process(args, network, "benchmark", model)


def _process(args: argparse.Namespace, network: str, stage: str, model: Path | None = None) -> dict[str, Any]:
    command = [sys.executable, __file__, str(model or args.model), "--output", os.devnull, "--stage", stage]
    command += ["--networks", network, "--recording", str(args.recording), "--lock", str(args.lock or os.devnull)]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    warnings = sorted({line for line in done.stderr.splitlines() if "tileseer:" in line})
    if done.returncode:
        return {"error": done.stderr[-1500:] or f"status {done.returncode}", "stage": stage}
    about = {"warnings": warnings, "process_s": round(time.monotonic() - begin, 1)}
    return {**json.loads(done.stdout.splitlines()[-1]), f"process_{stage}": about}


# What follows runs in the process of a stage.


@contextlib.contextmanager
def gpu(args: argparse.Namespace, alone: bool) -> Iterator[None]:
    """Wait until nobody times on the GPU, or until it is idle, and keep it so."""
    with args.lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@functools.cache
def _pool() -> Any:
    """Memory of all captured graphs of the process, which run one after the other."""
    import torch

    return torch.cuda.graph_pool_handle()


def make_network(name: str) -> Any:
    """The network on the GPU, in bf16 and channels last, with the same weights each time."""
    import torch

    place, shape = NETWORKS[name]
    # The operators of torchvision are not needed, and may be missing.
    sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("torchvision._meta_registrations"))
    import torchvision

    torch.manual_seed(SEED)
    with torch.device("cuda"):
        if place == "own":
            model = _unet(len(shape) - 2, shape[1])
        else:
            source = torchvision.models.video if place else torchvision.models
            options = {"aux_logits": False, "init_weights": False} if name == "inception_v3" else {}
            model = getattr(source, name)(weights=None, **options)
    return model.to(torch.bfloat16).to(memory_format=_layout(shape)).train()


def _layout(shape: tuple[int, ...]) -> Any:
    import torch

    return torch.channels_last if len(shape) == 4 else torch.channels_last_3d


def _unet(ndim: int, channels: int) -> Any:
    """A U-Net of four levels: two 3x3 convolutions each, max pooling down, nearest neighbour up."""
    import torch
    from torch import nn

    convolution, norm, pool = (
        (nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d) if ndim == 2 else (nn.Conv3d, nn.BatchNorm3d, nn.MaxPool3d)
    )
    width = 64 if ndim == 2 else 32

    def block(inputs: int, outputs: int) -> nn.Module:
        layers: list[nn.Module] = []
        for size in (inputs, outputs):
            layers += [convolution(size, outputs, 3, padding=1, bias=False), norm(outputs), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers)

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [width << level for level in range(4)]
            self.down = nn.ModuleList(block(i, o) for i, o in zip([channels, *widths], widths, strict=False))
            self.up = nn.ModuleList(block(2 * o + o, o) for o in reversed(widths[:-1]))
            self.pool, self.grow = pool(2), nn.Upsample(scale_factor=2)
            self.head = convolution(width, 4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = []
            for block_down in self.down:
                x = block_down(x)
                kept.append(x)
                x = self.pool(x)
            x = kept.pop()
            for block_up in self.up:
                x = block_up(torch.cat([self.grow(x), kept.pop()], 1))
            return self.head(x)

    return UNet()


class Step:
    """A network with its input, optimizer and captured step."""

    def __init__(self, name: str, prepare: Callable[[Any], object] = lambda model: None) -> None:
        """Make the network and run its first step, whose seconds and peak of memory are kept."""
        import torch

        self.shape = NETWORKS[name][1]
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        self.model = make_network(name)
        generator = torch.Generator("cuda").manual_seed(SEED)
        self.x = torch.randn(self.shape, generator=generator, device="cuda", dtype=torch.bfloat16)
        self.x = self.x.contiguous(memory_format=_layout(self.shape))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LEARNING_RATE, momentum=0.9)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        self.optimized = prepare(self.model)
        self.loss = float(self.run())
        torch.cuda.synchronize()
        self.first_seconds = time.perf_counter() - begin
        self.gradient = [parameter.grad.float() for parameter in self.model.parameters() if parameter.grad is not None]
        self.gradient = [grad.cpu() for grad in self.gradient]
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self.run()
        torch.cuda.synchronize()
        self.peak_bytes = torch.cuda.max_memory_allocated() - before
        self.graph: Any = None

    def run(self) -> Any:
        """One step; the loss."""
        import torch

        torch.manual_seed(SEED)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._loss(self.model(self.x))
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def _loss(self, output: Any) -> Any:
        import torch

        target = torch.zeros((output.shape[0], *output.shape[2:]), dtype=torch.long, device=output.device)
        return torch.nn.functional.cross_entropy(output.float(), target)

    def capture(self) -> None:
        """Capture the step, after three of them on the stream of the capture."""
        import torch

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._unseeded()
        torch.cuda.current_stream().wait_stream(stream)
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=_pool()):
            self._unseeded()

    def _unseeded(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self._loss(self.model(self.x)).backward()
        self.optimizer.step()

    def timed(self, repeats: int) -> float:
        """Milliseconds of a replayed step."""
        import torch

        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            self.graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / repeats


def _in_turns(steps: dict[str, Step]) -> dict[str, float]:
    """Median milliseconds of each step, all in random turns on a warm clock."""
    for step in steps.values():
        step.capture()
    repeats = {}
    for name, step in steps.items():
        step.timed(2)
        repeats[name] = max(1, round(TURN_SECONDS * 1e3 / step.timed(3)))
    order, times = random.Random(SEED), {name: [] for name in steps}
    for _ in range(TURNS):
        for name in order.sample(list(steps), len(steps)):
            times[name].append(steps[name].timed(repeats[name]))
    return {name: statistics.median(column) for name, column in times.items()}


def _prelude(name: str) -> None:
    """One step of two images without cuDNN: loading the code of all else counts for no mode."""
    import torch

    place, shape = NETWORKS[name]
    NETWORKS[name] = place, (2, *shape[1:])
    with torch.backends.cudnn.flags(enabled=False), contextlib.suppress(RuntimeError):
        Step(name)
    NETWORKS[name] = place, shape
    torch.cuda.empty_cache()


def _parts() -> Counter[str]:
    """Seconds of choosing by part, from here on."""
    from tileseer.torch import Plans, extension

    seconds: Counter[str] = Counter()
    choose, built = Plans.choose, Plans._built
    kind = extension.load().Shape
    offered = kind.offered

    def timed_offered(self: Any) -> list[str]:
        begin = time.perf_counter()
        names = offered(self)
        seconds["offered"] += time.perf_counter() - begin
        return names

    kind.offered = timed_offered

    def timed_choose(self: Any, *arguments: Any) -> str:
        begin = time.perf_counter()
        plan = choose(self, *arguments)
        seconds["choose"] += time.perf_counter() - begin
        return plan

    def timed_build(self: Any, *arguments: Any) -> str:
        begin = time.perf_counter()
        plan = built(self, *arguments)
        seconds["build"] += time.perf_counter() - begin
        return plan

    Plans.choose, Plans._built = timed_choose, timed_build  # type: ignore[method-assign]
    return seconds


def _difference(one: Step, other: Step) -> float:
    """Euclidean norm of the difference of two gradients over that of the second."""
    pairs = list(zip(one.gradient, other.gradient, strict=True))
    squared = sum(float((a - b).square().sum()) for a, b in pairs)
    return (squared / sum(float(b.square().sum()) for _, b in pairs)) ** 0.5


def _row(steps: dict[str, Step], times: dict[str, float]) -> dict[str, Any]:
    first = next(iter(steps.values()))
    return {
        "ms": times,
        "first_step_s": {name: round(step.first_seconds, 3) for name, step in steps.items()},
        "peak_mib": {name: round(step.peak_bytes / 2**20, 1) for name, step in steps.items()},
        "loss": {name: step.loss for name, step in steps.items()},
        "gradient_difference": {name: round(_difference(step, first), 5) for name, step in steps.items()},
    }


def default_stage(args: argparse.Namespace) -> dict[str, Any]:
    """PyTorch's default, the model's picks and ``verify=3`` from nothing; their plans are saved beside the model."""
    import torch

    from tileseer.torch import Plans, extension, optimize

    name, parts, seconds = args.networks, _parts(), {}
    extension.load()
    with gpu(args, alone=False):
        _prelude(name)
        steps = {"default": Step(name)}
        blind = Plans(args.model, file=args.model.with_suffix(".blind"))
        steps["blind"] = Step(name, lambda model: optimize(model, blind))
        seconds["blind"] = dict(parts)
    parts.clear()
    plans = Plans(args.model, verify=3, file=args.model.with_suffix(".verified"))
    with gpu(args, alone=True):
        steps["verified"] = Step(name, lambda model: optimize(model, plans))
        seconds["verified"] = dict(parts)
        blind.save()
        plans.save()
        row = _row(steps, _in_turns(steps))
    row["choosing_s"] = seconds
    row["machine"] = {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
        "cuda": torch.version.cuda, "batch": NETWORKS[name][1],
    }  # fmt: skip
    own = {key: plan for key, plan in blind.chosen.items() if plan}
    row["problems"] = {
        "all": len(blind.chosen), "pytorch": len(blind.chosen) - len(own),
        "other_plan_verified": sum(blind.chosen.get(key) != plan for key, plan in plans.chosen.items()),
        "recorded_layers": _recorded(args.recording, blind.chosen),
    }  # fmt: skip
    return {"default": row}


def _recorded(recording: Path, chosen: dict[Any, str]) -> float:
    """Share of the problems whose layer is in the recording, at any batch size."""
    import pandas as pd

    from tileseer.problems.problem import DIMS

    known = {}
    for operation in {key[0] for key in chosen}:
        table = pd.read_parquet(recording / operation / "problems.parquet", columns=list(DIMS[1:]))
        known[operation] = set(table.itertuples(index=False, name=None))
    return round(statistics.fmean(tuple(key[3][1:]) in known[key[0]] for key in chosen), 3)


def benchmark_stage(args: argparse.Namespace) -> dict[str, Any]:
    """PyTorch's benchmark mode, and both kinds of plans from their files."""
    import torch

    from tileseer.torch import Plans, extension, optimize

    name, parts, seconds = args.networks, _parts(), {}
    extension.load()
    with gpu(args, alone=False):
        _prelude(name)
    # Timing the plans takes the GPU for oneself, as with verify=3.
    with gpu(args, alone=True), torch.backends.cudnn.flags(enabled=True, benchmark=True):
        steps = {"benchmark": Step(name)}
    with gpu(args, alone=False):
        for kind, verify in (("blind", 0), ("verified", 3)):
            parts.clear()
            plans = Plans(args.model, verify=verify, file=args.model.with_suffix(f".{kind}"))
            before = dict(plans.chosen)
            steps[kind] = Step(name, lambda model, plans=plans: optimize(model, plans))
            seconds[kind] = dict(parts)
            if plans.chosen != before:
                raise RuntimeError("this process made other choices than the first")
    with gpu(args, alone=True):
        row = _row(steps, _in_turns(steps))
    return {"benchmark": row | {"choosing_s": seconds}}


def host_stage(args: argparse.Namespace) -> dict[str, Any]:
    """Microseconds on the host of a small convolution: forward alone, and with its backward pass."""
    import torch

    from tileseer.torch import Plans, extension, optimize

    begin = time.perf_counter()
    extension.load()
    row: dict[str, Any] = {"compile_or_load_s": round(time.perf_counter() - begin, 2)}
    x = torch.randn(1, 64, 8, 8, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    x.requires_grad_()
    modules = {}
    for name in ("pytorch", "tileseer"):
        module = torch.nn.Conv2d(64, 64, 1, bias=False, device="cuda", dtype=torch.bfloat16)
        modules[name] = module.to(memory_format=torch.channels_last)
    optimize(modules["tileseer"], Plans(args.model, file=os.devnull))
    for name, module in 3 * list(modules.items()):
        with torch.no_grad():
            forward = _host_us(functools.partial(module, x))
        inputs = x, module.weight
        training = _host_us(functools.partial(_forward_and_backward, module, inputs, torch.ones_like(module(x))))
        for what, microseconds in (("forward", forward), ("training", training)):
            row[f"{what}_us_{name}"] = min(row.get(f"{what}_us_{name}", 1e9), microseconds)
    row["another_plan"] = list(_chosen(modules["tileseer"]))
    return row


def _forward_and_backward(module: Any, inputs: tuple[Any, ...], grad: Any) -> object:
    import torch

    return torch.autograd.grad(module(inputs[0]), inputs, grad)


def _chosen(module: Any) -> list[str]:
    from tileseer.torch import plans

    return list(plans._PLANS[module.tileseer_plans].chosen.values())


def _host_us(call: Callable[[], object]) -> float:
    import torch

    best = float("inf")
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(200):  # fewer than what a stream queues before the host has to wait
            call()
        best = min(best, (time.perf_counter() - begin) / 200)
    torch.cuda.synchronize()
    return round(best * 1e6, 2)


STAGES: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "default": default_stage,
    "benchmark": benchmark_stage,
    "host": host_stage,
}


def _table(rows: dict[str, Any]) -> str:
    """A line a network, and the geometric means."""
    lines = ["network  default/blind  default/verified  benchmark/blind  benchmark/verified  recorded"]
    columns: list[list[float]] = [[], [], [], []]
    for name, row in rows.items():
        if "default" not in row or "benchmark" not in row:
            continue
        default, benchmark = row["default"]["ms"], row["benchmark"]["ms"]
        ratios = [
            default["default"] / default["blind"],
            default["default"] / default["verified"],
            benchmark["benchmark"] / benchmark["blind"],
            benchmark["benchmark"] / benchmark["verified"],
        ]
        for column, ratio in zip(columns, ratios, strict=True):
            column.append(ratio)
        share = row["default"]["problems"]["recorded_layers"]
        lines.append(f"{name}  " + "  ".join(f"{ratio:.3f}" for ratio in ratios) + f"  {share:.0%}")
    if columns[0]:
        lines.append("geometric mean  " + "  ".join(f"{statistics.geometric_mean(column):.3f}" for column in columns))
    return "\n".join([f"host {json.dumps(rows['host'])}", *lines])


if __name__ == "__main__":
    raise SystemExit(main())
