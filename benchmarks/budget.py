#!/usr/bin/env python3
"""What a budget loses: how good the best measured kernel of each problem is when only a share of the pairs is measured.

On the SIMULATED device, with the default rule set and the generated problems. "ours" is the order of
``tileseer.benchmark.budget``, "random" is what a run in random order would have found; "split in 4" is ours when
kernels are dealt to four chunks that know nothing of each other, as in the workflow.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from tileseer.benchmark.budget import Rounds
from tileseer.conv import problem
from tileseer.conv.operation import Operation
from tileseer.devices.base import STATUSES
from tileseer.devices.simulated import SimulatedDevice, load_coefficients
from tileseer.families import candidates
from tileseer.families.ck_tile import kernel
from tileseer.families.ck_tile import rules as sweep
from tileseer.gpu import hardware
from tileseer.gpu.arch import ArchSpecs
from tileseer.problems import problem_sets

CONFIG = Path(__file__).parents[1] / "config"
SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)


def world(operation, count):
    """Return problems, candidates and the simulated latency of every pair, NaN where it cannot run."""
    rules = sweep.load(CONFIG / "rule_sets/sweep.yaml")
    specs = ArchSpecs.load(CONFIG / "arch_specs.json")
    kernels = sweep.swept(rules, specs, "gfx950", operation, [2]).kernels
    table = kernel.frame(kernels).assign(split_k=1)
    table["candidate"] = [candidates.label(name, 1) for name in table["kernel"]]
    entries = problem_sets.generate(CONFIG / "problems/training.yaml", operation, (2,), 1)
    problems = problem.frame([entry.problem for entry in entries][:count])
    gpu = hardware.get(CONFIG / "hardware.yaml", "gfx950_mi355x")
    device = SimulatedDevice(gpu, load_coefficients(CONFIG / "simulated_device.yaml"), seed=1)
    p, c = (index.ravel() for index in np.indices((len(problems), len(table)), dtype=np.int32))
    times = device.measure(problems, table, p, c)
    latency = np.where(times.status == STATUSES.index("ok"), times.latency_ms, np.nan)
    return problems, table, latency.reshape(len(problems), len(table))


def efficiency(seen, times):
    """Return the mean and tenth percentile of the best measured kernel's efficiency."""
    best = np.nanmin(np.where(np.isnan(seen), np.inf, seen), axis=1)
    share = np.where(np.isinf(best), 0.0, np.nanmin(times, axis=1) / best)
    return share.mean(), np.quantile(share, 0.1)


def ours(problems, operation, times, chunks):
    """Return what is seen of each chunk's rounds, as a list of (problem, candidate) in order, chunk by chunk."""
    chunk = np.random.default_rng(0).integers(0, chunks, times.shape[1])
    orders = []
    for number in range(chunks):
        p, c = np.nonzero(~np.isnan(times) & (chunk == number)[None, :])
        rounds = Rounds(problems, operation.variant, p, c, seed=1)
        order = []
        for a, b in rounds:
            rounds.learn(a, b, times[a, b])
            order.append(np.stack((a, b)))
        orders.append(np.concatenate(order, axis=1))
    return orders


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operation", type=Operation.parse, default=Operation("forward", "bf16"))
    parser.add_argument("--problems", type=int, default=300)
    args = parser.parse_args()
    problems, table, times = world(args.operation, args.problems)
    runs = np.isfinite(times).any(axis=1)
    problems, times = problems[runs].reset_index(drop=True), times[runs]
    pairs = np.argwhere(np.isfinite(times)).T
    random = np.random.default_rng(1).permutation(pairs.shape[1])
    found = {
        "ours": ours(problems, args.operation, times, 1),
        "split in 4": ours(problems, args.operation, times, 4),
        "random": [pairs[:, random]],
    }
    print(f"{args.operation}, simulated: {times.shape[0]} problems, {len(table)} candidates, {pairs.shape[1]:,} pairs")
    print("share of pairs   " + "".join(f"{name:>22}" for name in found) + "    (mean, P10 of the efficiency)")
    for share in SHARES:
        cells = []
        for orders in found.values():
            seen = np.full(times.shape, np.nan)
            for order in orders:
                p, c = order[:, : round(share * order.shape[1])]
                seen[p, c] = times[p, c]
            cells.append("{:>13.2%} {:>8.2%}".format(*efficiency(seen, times)))
        print(f"{share:>14.0%}   " + "".join(cells))


if __name__ == "__main__":
    main()
