#!/usr/bin/env python3
"""How long a pick takes with a published model, in C++ and in Python, and whether both pick the same."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from tileseer.client.selection import Selector
from tileseer.conv.problem import DIMS, Problem, frame
from tileseer.core.errors import UserError
from tileseer.model.index import verify
from tileseer.model.model_files import SELECTOR
from tileseer.serving.picker import NO_CANDIDATE

MAIN = """
#include "selector.hpp"
#include <chrono>
#include <cstdio>
namespace model = tileseer::NAMESPACE;
int main()
{
    std::vector<model::Problem> problems;
    for(model::Problem problem;;)
    {
        std::int32_t* dims = &problem.N;
        int read           = 0;
        while(read < 19 && std::scanf("%d", dims + read) == 1)
            ++read;
        if(read < 19)
            break;
        problems.push_back(problem);
    }
    model::Selector selector;
    model::Options options;
    options.use_known = false;
    for(int round = 0; round < ROUNDS; ++round)
        for(const model::Problem& problem : problems)
        {
            const auto begin       = std::chrono::steady_clock::now();
            const model::Pick pick = selector.select(problem, options);
            const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
            std::printf("%d %a %.3f\\n", pick.candidate ? pick.candidate->row : -1, pick.score, took.count());
        }
}
"""
ROUNDS = 5
"""Each problem is timed so often; the fastest counts, since other programs share the machine."""


def random_problems(count):
    """Return ``count`` random convolutions, int64 [count, 19]; most can be run by most kernels, some by none."""
    draw = np.random.default_rng(0)
    rows = []
    while len(rows) < count:
        groups = int(draw.choice([1, 1, 1, 1, 2, 8, 32]))
        dims = {"N": int(draw.integers(1, 129)), "G": groups}
        dims |= {name: groups * int(draw.choice([3, 8, 16, 24, 64, 128, 256, 320, 512])) for name in ("C", "K")}
        for image, extent, axis in [("Hi", "Y", "h"), ("Wi", "X", "w")] + [("Di", "Z", "d")] * (draw.random() < 0.3):
            dims |= {image: int(draw.integers(4, 230)), extent: int(draw.choice([1, 3, 3, 5, 7]))}
            dims |= {f"stride_{axis}": int(draw.integers(1, 3)), f"pad_{axis}": int(draw.integers(0, 4))}
        try:
            problem = Problem.from_dims("forward", "bf16", **dims)
        except UserError:
            continue
        rows.append([getattr(problem, name) for name in DIMS])
    return np.array(rows)


def cpu(call):
    """CPU seconds of a call, and what it returns."""
    begin = time.process_time()
    result = call()
    return time.process_time() - begin, result


def listed(operation, shapes):
    """The problems of an operation with these dimensions."""
    variant, _, dtype = operation.rpartition("_")
    return [Problem.from_dims(variant, dtype, **dict(zip(DIMS, row, strict=True))) for row in shapes.tolist()]


def cpp(header, namespace, shapes, flags):
    """Compile and run; return rows, scores and the fastest microseconds of each shape."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "main.cpp").write_text(MAIN.replace("NAMESPACE", namespace).replace("ROUNDS", str(ROUNDS)))
        begin = time.perf_counter()
        subprocess.run(
            ["g++", "-std=c++17", *flags, f"-I{header.parent}", "-o", folder / "main", folder / "main.cpp"], check=True
        )
        seconds = time.perf_counter() - begin
        text = "\n".join(" ".join(map(str, row)) for row in shapes.tolist()) + "\n"
        run = subprocess.run([folder / "main"], input=text, capture_output=True, text=True, check=True)
    fields = [line.split() for line in run.stdout.splitlines()]
    rows = [int(field[0]) for field in fields[: len(shapes)]]
    scores = [float.fromhex(field[1]) for field in fields[: len(shapes)]]
    took = np.array([float(field[2]) for field in fields]).reshape(ROUNDS, len(shapes)).min(axis=0)
    return rows, scores, took, seconds


def main() -> None:
    """Compare picks on random problems and print times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, help="published directory, for example results/models/gfx950")
    parser.add_argument("--problems", type=int, default=10_000)
    args = parser.parse_args()
    index = verify(args.models)
    shapes = random_problems(args.problems)
    for operation, entry in index.operations.items():
        loaded, selector = cpu(lambda operation=operation: Selector.load(args.models, operation))
        _, picks = cpu(lambda selector=selector: selector.select(shapes, use_known=False))
        batch = min(cpu(lambda selector=selector: selector.select(shapes, use_known=False))[0] for _ in range(ROUNDS))
        alone = [
            min(
                cpu(lambda selector=selector, row=row: selector.select(row[None], use_known=False))[0]
                for _ in range(ROUNDS)
            )
            for row in shapes[:200]
        ]
        has = picks.candidate != NO_CANDIDATE
        pool = selector.supported(frame(listed(operation, shapes))).sum(axis=1)
        print(f"{operation}: {len(selector.pool)} candidates; {has.sum():,} of {len(shapes):,} problems have a pick")
        print(f"  Python, CPU time: load {loaded:.2f} s, one problem {1e6 * statistics.median(alone):.0f} us, "
              f"of a batch {1e6 * batch / len(shapes):.0f} us")  # fmt: skip
        for flags in (["-O2"], ["-O3"], ["-O3", "-march=native"]):
            namespace = f"{operation}_{index.arch}"
            rows, scores, took, seconds = cpp(args.models / entry.folder / SELECTOR, namespace, shapes, flags)
            same = rows == picks.candidate.tolist() and scores == picks.score.tolist()
            wide = has & (pool >= np.percentile(pool[has], 90))
            print(f"  C++ {' '.join(flags)}: compiled in {seconds:.1f} s; picks and scores equal to Python: {same}; "
                  f"a pick among {pool[has].mean():.0f} candidates on average: median {np.median(took[has]):.1f} us, "
                  f"p90 {np.percentile(took[has], 90):.1f} us; among {pool[wide].min()} and more: "
                  f"median {np.median(took[wide]):.1f} us")  # fmt: skip
            if not same:
                raise SystemExit(f"{operation}: C++ and Python differ")


if __name__ == "__main__":
    main()
