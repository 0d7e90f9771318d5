#!/usr/bin/env python3
"""How long a pick takes with a published model, in C++ and in Python, and whether both pick the same.

Other programs share the machine, so everything is timed in turns, and each figure is the median and the worst of the
turns. The ratio is the time over that of LightGBM's predict alone on all candidates that can run the problem.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tileseer.core.errors import UserError
from tileseer.learn.features import Features
from tileseer.learn.model_files import SELECTOR, read_index
from tileseer.problems.problem import DIMS, Problem, problem_frame
from tileseer.serve.selector import NO_CANDIDATE, Selector

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
"""Each problem is timed so often in a turn; the fastest counts."""
ALONE = 100
"""Problems that are picked one by one."""
FLAGS = (("-O2",), ("-O3",), ("-O3", "-march=native"))


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


def program(folder, header, namespace, flags):
    """Compile the program that picks in C++; return its path and the seconds that it took."""
    path = folder / f"main{''.join(flags)}"
    (folder / "main.cpp").write_text(MAIN.replace("NAMESPACE", namespace).replace("ROUNDS", str(ROUNDS)))
    seconds, _ = children(["g++", "-std=c++17", *flags, f"-I{header.parent}", "-o", path, folder / "main.cpp"])
    return path, seconds


def children(command, text=None):
    """CPU seconds of a command, and what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def picks_of(path, shapes):
    """Rows, scores and the fastest microseconds of each shape, of one turn of a program."""
    _, out = children([path], "\n".join(" ".join(map(str, row)) for row in shapes.tolist()) + "\n")
    fields = [line.split() for line in out.splitlines()]
    rows = [int(field[0]) for field in fields[: len(shapes)]]
    scores = [float.fromhex(field[1]) for field in fields[: len(shapes)]]
    return rows, scores, np.array([float(field[2]) for field in fields]).reshape(ROUNDS, len(shapes)).min(axis=0)


def one_by_one(call, count):
    """Median over problems of the fastest CPU microseconds of each."""
    return 1e6 * statistics.median(min(cpu(lambda n=n: call(n))[0] for _ in range(ROUNDS)) for n in range(count))


def timed(models, operation, folder, shapes, turns):
    """Microseconds by figure, a value a turn; ends the program where C++ and Python differ."""
    index = read_index(models)
    entry = index.operations[operation]
    selector = Selector.read(models, operation)
    model = selector.model
    picks = selector.select(shapes, use_known=False)
    has = picks.candidate != NO_CANDIDATE
    problems = problem_frame(listed(operation, shapes[:ALONE]))
    runs = model.supported(problems)
    features = Features.of(model.spec.feature_set, model.hardware, model.spec.feature_names)
    columns = features.problem_columns(problems), features.candidate_columns(model.pool)
    matrices = [
        features.gather(*columns, np.full(own.sum(), row), np.flatnonzero(own))
        for row, own in enumerate(runs)
        if own.any()
    ]
    everything = np.concatenate(matrices)
    programs = {}
    for flags in FLAGS:
        path, seconds = program(folder, models / entry.folder / SELECTOR, f"{operation}_{index.arch}", flags)
        programs[f"C++ {' '.join(flags)}"] = path
        print(f"{operation}: g++ {' '.join(flags)} takes {seconds:.1f} CPU s")
    pool = model.supported(problem_frame(listed(operation, shapes))).sum(axis=1)
    wide = has & (pool >= np.percentile(pool[has], 90))
    print(f"{operation}: {len(model.pool)} candidates, {pool[has].mean():.0f} on average for the {has.sum():,} of "
          f"{len(shapes):,} problems that have a pick; the widest tenth has {pool[wide].min()} and more")  # fmt: skip
    found = {}
    for _ in range(turns):
        turn = {
            "LightGBM, one problem": one_by_one(lambda n: model.scorer.booster.predict(matrices[n], num_threads=1),
                                                len(matrices)),
            "LightGBM, of a batch": 1e6 * cpu(lambda: model.scorer.booster.predict(everything, num_threads=1))[0]
            / len(matrices),
            "Python, one problem": one_by_one(lambda n: selector.select(shapes[n : n + 1], use_known=False), ALONE),
            "Python, of a batch": 1e6 * cpu(lambda: selector.select(shapes, use_known=False))[0] / len(shapes),
        }  # fmt: skip
        for name, path in programs.items():
            rows, scores, took = picks_of(path, shapes)
            if rows != picks.candidate.tolist() or scores != picks.score.tolist():
                raise SystemExit(f"{operation}: {name} and Python differ")
            turn |= {name: float(np.median(took[has])), f"{name}, widest tenth": float(np.median(took[wide]))}
        for name, value in turn.items():
            found.setdefault(name, []).append(value)
    return found


def selecting(models, operation, turns):
    """CPU seconds of ``tileseer select``, a value a turn."""
    variant, _, dtype = operation.rpartition("_")
    words = ["select", models, "--variant", variant, "--dtype", dtype, "--problem", "N=8,C=64,K=64,Hi=56,Wi=56,Y=3,X=3"]
    return [children([Path(sys.executable).with_name("tileseer"), *map(str, words)])[0] for _ in range(turns)]


def main() -> None:
    """Compare picks on random problems and print times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, help="published directory, for example results/models/gfx950")
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    shapes = random_problems(args.problems)
    for operation in read_index(args.models).operations:
        with tempfile.TemporaryDirectory() as name:
            found = timed(args.models, operation, Path(name), shapes, args.turns)
        print(f"{'us a problem':<36}{'median':>10}{'worst':>10}{'ratio':>8}")
        for figure, values in found.items():
            base = statistics.median(found[f"LightGBM, {'of a batch' if 'batch' in figure else 'one problem'}"])
            middle = statistics.median(values)
            print(f"{figure:<36}{middle:>10.1f}{max(values):>10.1f}{middle / base:>8.3f}")
        seconds = selecting(args.models, operation, args.turns)
        print(f"{'tileseer select, CPU s':<36}{statistics.median(seconds):>10.2f}{max(seconds):>10.2f}", flush=True)


if __name__ == "__main__":
    main()
