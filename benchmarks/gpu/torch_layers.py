"""Unseen layers: a model's picks beside cuDNN's first plan and PyTorch's default and benchmark mode.

    python benchmarks/gpu/torch_layers.py results/models/sm_90_cudnn config/recorded/sm_90_cudnn --output layers.json

The layers are those of the recording's validation networks, on which no model is trained, drawn by a seed. ``blind``
is the model's pick, ``verified`` the fastest of those that the switch times. Each layer runs as PyTorch's own
operator, with its copies; all contenders of a layer are timed in random turns with cold operands on a warm clock.
Needs an NVIDIA GPU and PyTorch for CUDA.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from networks import layout
from torch_steps import first_plan, machine

from tileseer.facts.operations import VARIANTS
from tileseer.problems.problem import DIMS, Problem
from tileseer.torch import extension
from tileseer.torch.chooser import Chooser

SEED = 0
TURNS = 11
LONGEST_MS = 5.0
"""Layers that take longer are left out: they would cost the time of many others."""
CONTENDERS = ("pytorch", "benchmark", "first", "blind", "verified")
HEAD_START_CYCLES = 2_000_000
SLOWER = 1.02
STEADY_US = 20.0
"""From so long on two timings of one layer agree."""


def main() -> int:
    """Time the layers and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=250, help="of each direction")
    parser.add_argument("--part", default="1/1", help="one of so many equal parts, each for a GPU of its own: 2/4")
    parser.add_argument("--seconds", type=float, default=500)
    args = parser.parse_args()
    begin, layers = time.monotonic(), Layers(args.model)
    part, parts = map(int, args.part.split("/"))
    drawn = {variant: _draw(args.recording / f"{variant}_bf16", args.layers) for variant in VARIANTS}
    rows: list[dict[str, Any]] = []
    for at in range(part - 1, args.layers, parts):
        for variant, table in drawn.items():
            if at < len(table) and time.monotonic() - begin < args.seconds:
                rows.append(layers.timed(variant, table.iloc[at]))
    result = {"machine": machine(), "turns": TURNS, "seed": SEED, "layers": rows}
    args.output.write_text(json.dumps(result, sort_keys=True) + "\n")
    print(machine(), f"{time.monotonic() - begin:.0f} s")
    print(table_of(rows))
    return 0


def _draw(folder: Path, count: int) -> pd.DataFrame:
    problems = pd.read_parquet(folder / "problems.parquet")
    unseen = problems[problems["split"].eq("validation")].sort_values("problem_key")
    return unseen.sample(min(count, len(unseen)), random_state=SEED)


class Layers:
    """One layer after the other, with the kernels of PyTorch's convolution in between."""

    def __init__(self, model: Path) -> None:
        compiled, folder = extension.load(), Path(tempfile.mkdtemp())
        self.blind, self.verified = (Chooser(model, verify, folder / f"{verify}.tsv", compiled) for verify in (0, 2))
        self.order = random.Random(SEED)
        # PyTorch keeps cuDNN's plans per thread: its two modes have one each.
        self.threads = {name: concurrent.futures.ThreadPoolExecutor(1) for name in ("pytorch", "benchmark")}
        self.cold = torch.empty(torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.uint8, device="cuda")
        compiled.use(self.choose, lambda device: None, lambda: None, 16)
        compiled.turn(True)
        self.row: dict[str, Any] = {}

    def timed(self, variant: str, layer: pd.Series) -> dict[str, Any]:
        """Return the median microseconds of each contender, or why there are none."""
        dims = [int(layer[name]) for name in DIMS]
        problem = Problem.from_dims(variant, "bf16", **dict(zip(DIMS, dims, strict=True)))
        self.row = {"variant": variant, "network": layer["network"], "layer": layer["layer"], "dims": dims}
        try:
            for _ in range(3):
                _run(problem)
            torch.cuda.synchronize()
        except torch.OutOfMemoryError:
            self.row["error"] = "out of memory"
            torch.cuda.empty_cache()
        return self.row

    def choose(self, call: Any) -> str:
        """Time the contenders of a call; PyTorch's own choice runs it."""
        try:
            self._contend(call)
        except (RuntimeError, MemoryError) as error:
            self.row["error"] = str(error).partition("\n")[0][:200]
        return ""

    def _contend(self, call: Any) -> None:
        ways: dict[str, Any] = {name: lambda name=name: self._pytorch(call, name) for name in ("pytorch", "benchmark")}
        for way in ways.values():
            way()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        ways["pytorch"]()
        torch.cuda.synchronize()
        if (time.perf_counter() - begin) * 1e3 > LONGEST_MS:
            raise RuntimeError(f"takes more than {LONGEST_MS} ms")
        plans = {"first": first_plan(call)}
        for name, chooser in (("blind", self.blind), ("verified", self.verified)):
            start = time.perf_counter()
            plans[name] = chooser.choose(call)
            self.row[f"choose_ms_{name}"] = round(1e3 * (time.perf_counter() - start), 2)
        for name, plan in plans.items():
            ways[name] = (lambda plan=plan: call.run(plan)) if plan else ways["pytorch"]
        times: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        for _ in range(TURNS):
            for name in self.order.sample(CONTENDERS, len(CONTENDERS)):
                times[name].append(self._microseconds(ways[name]))
        self.row["plans"] = plans
        self.row["us"] = {name: round(statistics.median(column), 3) for name, column in times.items()}

    def _pytorch(self, call: Any, mode: str) -> None:
        stream = torch.cuda.current_stream()

        def run() -> None:
            with torch.cuda.stream(stream):
                call.run("")

        with torch.backends.cudnn.flags(enabled=True, benchmark=mode == "benchmark"):
            self.threads[mode].submit(run).result()

    def _microseconds(self, way: Any) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        # The GPU sleeps for longer than the host, which has threads to wake, takes to queue what is timed.
        torch.cuda._sleep(HEAD_START_CYCLES)
        self.cold.zero_()
        start.record()
        way()
        end.record()
        end.synchronize()
        return 1e3 * start.elapsed_time(end)


def _run(problem: Problem) -> None:
    axes = ("d", "h", "w")[3 - problem.ndim :]
    stride, pad, dilation = (
        [getattr(problem, f"{name}_{axis}") for axis in axes] for name in ("stride", "pad", "dilation")
    )
    image, filters = (problem.Di, problem.Hi, problem.Wi), (problem.Z, problem.Y, problem.X)
    shapes = (
        (problem.N, problem.C, *image[3 - problem.ndim :]),
        (problem.K, problem.C // problem.G, *filters[3 - problem.ndim :]),
        (problem.N, problem.K, *problem.output[3 - problem.ndim :]),
    )
    generator = torch.Generator("cuda").manual_seed(SEED)
    tensors = (torch.empty(shape, device="cuda", dtype=torch.bfloat16, memory_format=layout(shape)) for shape in shapes)
    x, w, y = (tensor.normal_(generator=generator) for tensor in tensors)
    rest = stride, pad, dilation, False, [0] * problem.ndim, problem.G
    if problem.variant == "forward":
        torch.ops.aten.convolution(x, w, None, *rest)
    else:
        data = problem.variant == "bwd_data"
        torch.ops.aten.convolution_backward(y, x, w, None, *rest, [data, not data, False])


def table_of(rows: list[dict[str, Any]]) -> str:
    """Return a line a direction: times of the others over those of the picks (geometric means), and what was slower.

    Of short layers two timings of the same thing differ by more than 2 %, so those are told apart.
    """
    lines = []
    for variant in VARIANTS:
        own = [row for row in rows if row["variant"] == variant]
        times = pd.DataFrame([row["us"] for row in own if "us" in row])
        networks = len({row["network"] for row in own})
        lines.append(f"{variant}: {len(times)} layers of {networks} networks, {len(own) - len(times)} left out")
        for pick in ("blind", "verified") if len(times) else ():
            ratios, steady = times.div(times[pick], axis=0), times[pick] >= STEADY_US
            others = ("first", "pytorch", "benchmark")
            means = ", ".join(f"{name} {np.exp(np.log(ratios[name]).mean()):.3f}" for name in others)
            lines.append(f"  {pick}: {means}")
            for what, part in (("all", ratios), (f"the {steady.sum()} from {STEADY_US:.0f} us", ratios[steady])):
                slower = ", ".join(
                    f"{name} {100 * (part[name] < 1 / SLOWER).mean():.1f} % (worst {part[name].min():.3f})"
                    for name in others
                )
                lines.append(f"    at least 2 % slower, of {what}: {slower}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
