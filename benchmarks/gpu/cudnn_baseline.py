#!/usr/bin/env python3
"""Time cuDNN through PyTorch on the validation problems: channels last, benchmark mode, cold operands, device events.

As in the harness, a sample is a row of launches between two events. Operands are views of one pool of random numbers at
moving places, so that no launch finds its operands in the cache. A row a problem: key, samples, p10, median and p90 in
microseconds, or an error.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from pathlib import Path

import pandas as pd
import torch

DIMS = (
    "N", "G", "C", "K", "Di", "Hi", "Wi", "Z", "Y", "X", "stride_d", "stride_h", "stride_w", "pad_d", "pad_h", "pad_w",
    "dilation_d", "dilation_h", "dilation_w",
)  # fmt: skip
POOL = 6 << 30  # bytes
SAMPLES = 9
SAMPLE_US = 100.0
MOST_LAUNCHES = 40
HOLD_CYCLES = 2_000_000


def measure(numbers: list[int], pool: torch.Tensor, cursor: list[int]) -> list[float]:
    """Return the microseconds of single launches of one problem (the 21 numbers of the C ABI)."""
    n, g, c, k, di, hi, wi, z, y, x, *rest = numbers
    stride, pad, dilation, direction = rest[0:3], rest[3:6], rest[6:9], rest[9]
    out = [
        (i + 2 * p - d * (f - 1) - 1) // s + 1
        for i, f, s, p, d in zip((di, hi, wi), (z, y, x), stride, pad, dilation, strict=True)
    ]
    flat = di == z == stride[0] == dilation[0] == 1 and pad[0] == 0
    axes = slice(1, 3) if flat else slice(0, 3)
    stride, pad, dilation = stride[axes], pad[axes], dilation[axes]
    shapes = {
        "x": (n, *(di, hi, wi)[axes], c),
        "w": (k, *(z, y, x)[axes], c // g),
        "y": (n, *out[axes], k),
    }

    def tensor(what: str) -> torch.Tensor:
        shape = shapes[what]
        size = 1
        for extent in shape:
            size *= extent
        size_up = (size + 127) // 128 * 128
        if cursor[0] + size_up > pool.numel():
            cursor[0] = 0
        view = pool[cursor[0] : cursor[0] + size].view(shape)
        cursor[0] += size_up
        # The last axis of the memory is the channel: channels last, as PyTorch calls it.
        return view.permute(0, len(shape) - 1, *range(1, len(shape) - 1))

    def launch(operands: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
        a, w, dy = operands
        spatial = len(stride)
        if direction == 0:
            torch.ops.aten.convolution(a, w, None, stride, pad, dilation, False, [0] * spatial, g)
        else:
            mask = [direction == 1, direction == 2, False]
            torch.ops.aten.convolution_backward(dy, a, w, None, stride, pad, dilation, False, [0] * spatial, g, mask)

    for _ in range(3):
        launch((tensor("x"), tensor("w"), tensor("y")))
    torch.cuda.synchronize()

    def sample(launches: int) -> float:
        operands = [(tensor("x"), tensor("w"), tensor("y")) for _ in range(launches)]
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(HOLD_CYCLES)  # the row is queued before the first of it runs
        begin.record()
        for some in operands:
            launch(some)
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1000 / launches

    launches = min(MOST_LAUNCHES, max(1, math.ceil(SAMPLE_US / sample(1))))
    return sorted(sample(launches) for _ in range(SAMPLES))


def main() -> None:
    """Read the problems, append the rows that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", required=True, type=Path, help="Parquet of the problems stage")
    parser.add_argument("--seconds", required=True, type=float)
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args()

    torch.backends.cudnn.benchmark = True
    problems = pd.read_parquet(args.problems)
    problems = problems[problems["split"] == "validation"].sort_values("problem_key")
    done = set(pd.read_csv(args.output)["problem_key"]) if args.output.exists() else set()
    torch.manual_seed(1)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[problems["dtype"].iloc[0]]
    direction = ("forward", "bwd_data", "bwd_weight").index(problems["variant"].iloc[0])
    pool = torch.empty(POOL // 2, dtype=dtype, device="cuda").uniform_(-1, 1)
    cursor = [0]
    begin = time.monotonic()
    print(f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}", file=sys.stderr)
    count = 0
    with args.output.open("a") as output:
        if not done:
            output.write("problem_key,samples,p10_us,median_us,p90_us,error\n")
        for row in problems.to_dict("records"):
            key = row["problem_key"]
            if key in done:
                continue
            if time.monotonic() - begin > args.seconds:
                print("out of time", file=sys.stderr)
                break
            try:
                us = measure([int(row[field]) for field in DIMS] + [direction], pool, cursor)
                quantiles = statistics.quantiles(us, n=10, method="inclusive")
                output.write(f"{key},{len(us)},{quantiles[0]:.3f},{statistics.median(us):.3f},{quantiles[-1]:.3f},\n")
            except RuntimeError as error:
                output.write(f"{key},0,,,,{str(error).splitlines()[0][:200].replace(',', ';')}\n")
            output.flush()
            count += 1
    print(f"cuDNN: {count} problems in {time.monotonic() - begin:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
