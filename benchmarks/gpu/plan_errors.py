"""Every plan of layers that are hard: how wrong it is, its time, its place in the model's order, what choosing takes.

    python benchmarks/gpu/plan_errors.py results/models/sm_90_cudnn --output plans.jsonl [--seconds 120]

A line of the output is a layer in a direction. ``error`` is that of ``tileseer.torch.reference``, above 1 wrong; the
milliseconds are medians of turns. Needs an NVIDIA GPU and PyTorch for CUDA.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from networks import layout

from tileseer.facts.operations import VARIANTS
from tileseer.learn.evidence import worth_timing
from tileseer.problems.problem import DIMS, Problem
from tileseer.serve.selector import Selector
from tileseer.torch import extension
from tileseer.torch.chooser import clock_of_gpu
from tileseer.torch.reference import Reference

TURNS = 3
LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    # Input, weight, options: of an X3D, of grey images and volumes, depthwise, grouped, and plain ones.
    "x3d 80": ((8, 54, 16, 80, 80), (54, 1, 3, 3, 3), {"padding": 1, "groups": 54}),
    "x3d 40": ((8, 108, 16, 40, 40), (108, 1, 3, 3, 3), {"padding": 1, "groups": 108}),
    "x3d 20": ((8, 216, 16, 20, 20), (216, 1, 3, 3, 3), {"padding": 1, "groups": 216}),
    "x3d 10": ((8, 432, 16, 10, 10), (432, 1, 3, 3, 3), {"padding": 1, "groups": 432}),
    "x3d stride": ((8, 54, 16, 160, 160), (54, 1, 3, 3, 3), {"padding": 1, "stride": (1, 2, 2), "groups": 54}),
    "x3d 5x1x1": ((8, 24, 16, 80, 80), (24, 1, 5, 1, 1), {"padding": (2, 0, 0), "groups": 24}),
    "grey volume": ((2, 1, 48, 96, 96), (32, 1, 3, 3, 3), {"padding": 1}),
    "grey image": ((64, 1, 128, 128), (32, 1, 3, 3), {"padding": 1}),
    "depthwise": ((64, 144, 56, 56), (144, 1, 5, 5), {"padding": 2, "groups": 144}),
    "depthwise 7": ((32, 384, 28, 28), (384, 1, 7, 7), {"padding": 3, "groups": 384}),
    "grouped": ((64, 256, 28, 28), (256, 8, 3, 3), {"padding": 1, "groups": 32}),
    "grouped volume": ((8, 128, 8, 28, 28), (128, 4, 3, 3, 3), {"padding": 1, "groups": 32}),
    "stem": ((64, 3, 224, 224), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
    "3x3": ((64, 128, 28, 28), (128, 128, 3, 3), {"padding": 1}),
    "3x3 of one image": ((1, 256, 64, 64), (256, 256, 3, 3), {"padding": 1}),
    "3x3 odd": ((3, 61, 37, 53), (83, 61, 3, 3), {"padding": 1}),
    "1x1": ((64, 256, 56, 56), (64, 256, 1, 1), {}),
    "1x1 strided": ((64, 256, 56, 56), (512, 256, 1, 1), {"stride": 2}),
    "volume": ((2, 32, 96, 96, 96), (32, 32, 3, 3, 3), {"padding": 1}),
    "volume 1x1": ((4, 256, 8, 28, 28), (512, 256, 1, 1, 1), {}),
    "many pixels": ((16, 64, 224, 224), (64, 64, 3, 3), {"padding": 1}),
    "dilated": ((8, 256, 32, 32), (256, 256, 3, 3), {"padding": 12, "dilation": 12}),
}


def main() -> int:
    """Look at each layer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=120)
    args = parser.parse_args()
    begin, compiled, selectors = time.monotonic(), extension.load(), {}
    with args.output.open("w") as output:
        for name, (image, filter_, options) in LAYERS.items():
            rows: list[dict[str, Any]] = []
            if time.monotonic() - begin > args.seconds:
                print(f"{name}: no time was left")
                continue

            def look(call: Any, rows: list[dict[str, Any]] = rows) -> str:
                operation = f"{VARIANTS[call.direction]}_{call.dtype}"
                if operation not in selectors:
                    selectors[operation] = Selector.read(args.model, operation)
                with torch.no_grad():
                    rows.append(looked_at(call, selectors[operation], compiled))
                return ""

            compiled.use(look, lambda device: None, lambda: None, 100)
            compiled.turn(True)
            try:
                _step(image, filter_, options)
            except RuntimeError as error:
                print(f"{name}: {error}")
            compiled.turn(False)
            torch.cuda.empty_cache()
            for row in rows:
                output.write(json.dumps({"layer": name} | row) + "\n")
                output.flush()
                print(name, _line(row), flush=True)
    return 0


def _step(image: tuple[int, ...], filter_: tuple[int, ...], options: dict[str, Any]) -> None:
    x, w = (
        torch.randn(shape, device="cuda").to(torch.bfloat16).to(memory_format=layout(shape)).requires_grad_()
        for shape in (image, filter_)
    )
    convolution = torch.nn.functional.conv2d if len(image) == 4 else torch.nn.functional.conv3d
    y = convolution(x, w, **options)
    y.backward(torch.ones_like(y))
    torch.cuda.synchronize()


def looked_at(call: Any, selector: Selector, compiled: Any) -> dict[str, Any]:
    """Return what is known of one call."""
    seconds: dict[str, float] = {}

    def timed(what: str, function: Any) -> Any:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        result = function()
        torch.cuda.synchronize()
        seconds[what] = seconds.get(what, 0.0) + time.perf_counter() - begin
        return result

    variant = VARIANTS[call.direction]
    problem = Problem.from_dims(variant, call.dtype, **dict(zip(DIMS, call.dims, strict=True)))
    offered = list(dict.fromkeys(timed("offered", call.offered)))
    prefix = f"_{problem.ndim}d_"
    known = {kernel.partition(prefix)[2] for kernel in selector.kernels}
    listed = [name for name in offered if name in known]
    rank = functools.partial(selector.shortlist, problem, 1000, listed, str(selector.library))
    ranked = [row["kernel"].partition(prefix)[2] for row in timed("rank", rank)] if listed else []
    worth = int(timed("expected", lambda: worth_timing(selector.expected([problem])))[0])
    reference = timed("reference", lambda: Reference(problem, torch.device("cuda"), compiled.without_tf32))
    clock, plans = clock_of_gpu(call, torch.device("cuda")), []
    own = statistics.median(clock([""])[0] for _ in range(TURNS))
    for name in offered:
        row: dict[str, Any] = {"plan": name, "rank": ranked.index(name) if name in ranked else None}
        plans.append(row)
        try:
            row["workspace_mib"] = timed("build", functools.partial(call.build, name)) >> 20
        except RuntimeError as error:
            row["failed"] = str(error)[:80]
            continue
        if row["workspace_mib"] > 1024:
            continue
        error = timed("error", lambda name=name: reference.error(functools.partial(call.launch, name)))
        row["error"] = round(error, 4)
        row["layout"] = timed("layout", functools.partial(call.has_layout, name))
        if error <= 100.0:
            row["ms"] = round(statistics.median(clock([name])[0] for _ in range(TURNS)), 4)
    took = {what: round(value, 4) for what, value in seconds.items()}
    return {"variant": variant, "worth": worth, "pytorch_ms": round(own, 4), "seconds": took, "plans": plans}


def _line(row: dict[str, Any]) -> str:
    plans = [plan for plan in row["plans"] if "ms" in plan]
    plans.sort(key=lambda plan: plan["ms"])
    best = [f"{p['plan']} {p['ms']} rank {p['rank']} error {p['error']}" for p in plans[:3]]
    errors = sorted(plan["error"] for plan in row["plans"] if "error" in plan)
    return (
        f"{row['variant']}: pytorch {row['pytorch_ms']}, {len(row['plans'])} offered, {len(plans)} timed, "
        f"worth {row['worth']}; "
        f"{'; '.join(best)}; errors {errors[:2]} .. {errors[-3:]}; {row['seconds']}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
