"""How many pairs a second the simulated device times, on one core: a full grid and a thin random sample of it.

Run from the repository root: python benchmarks/simulated_device.py [--pairs 1000000] [--repeats 5]
"""

import argparse
import statistics
import time
from itertools import product
from pathlib import Path

import numpy as np

from tileseer.gpus import hardware
from tileseer.kernels.ck_tile import kernel
from tileseer.kernels.costs.coefficients import load_coefficients
from tileseer.measure.simulated_device import SimulatedDevice
from tileseer.problems import problem

CONFIG = Path(__file__).resolve().parents[1] / "config"
TILES = (
    ((16, 64, 64), (1, 4, 1), (16, 16, 16)),
    ((64, 64, 64), (4, 1, 1), (16, 16, 16)),
    ((64, 128, 64), (2, 2, 1), (32, 32, 16)),
    ((128, 128, 64), (4, 4, 1), (32, 32, 16)),
    ((256, 128, 32), (2, 2, 1), (32, 32, 16)),
)
PIPELINES = ("compv3", "compv4", "mem")


def problems(count: int, variant: str) -> list[problem.Problem]:
    """Return the first ``count`` problems of a grid of batch sizes, channels and images."""
    grid = product((1, 8, 32, 128), (32, 64, 128, 256, 512), (64, 128, 256, 512), range(14, 226, 7), (1, 3))
    made = [
        problem.Problem.from_dims(
            variant, "bf16", N=n, C=c, K=k, Hi=size, Wi=size, Y=f, X=f, pad_h=f // 2, pad_w=f // 2
        )
        for n, c, k, size, f in grid
    ]
    return made[:: max(len(made) // count, 1)][:count]


def kernels(variant: str) -> list[kernel.KernelConfig]:
    """Return kernels of a few tiles, pipelines and vector widths."""
    return [
        kernel.KernelConfig(
            variant, "bf16", "nhwgc", 2, pipeline, "cshuffle", "intrawave", *tile, *wave, *warp_tile,
            vec_a=vec_a, vec_b=vec_b, double_smem_buffer=pipeline == "compv4",
        )
        for (tile, wave, warp_tile), pipeline, vec_a, vec_b in product(TILES, PIPELINES, (1, 2, 4, 8), (1, 2, 4, 8))
    ]  # fmt: skip


def main() -> None:
    """Print pairs per second: best and median of several runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    gpu = hardware.read_hardware(CONFIG / "hardware.yaml", "gfx950_mi355x")
    device = SimulatedDevice(gpu, load_coefficients(CONFIG / "simulated_device.yaml"), seed=1)
    print(f"device kind: {device.kind}")
    for variant in ("forward", "bwd_data", "bwd_weight"):
        candidates = kernel.frame(kernels(variant)).assign(split_k=1)
        table = problem.problem_frame(problems(-(-arguments.pairs // len(candidates)), variant))
        p = np.repeat(np.arange(len(table)), len(candidates))
        q = np.tile(np.arange(len(candidates)), len(table))
        few = np.random.default_rng(0).choice(len(p), len(p) // 100, replace=False)
        for label, which in (("full grid", slice(None)), ("1 % of it", few)):
            seconds = []
            for _ in range(arguments.repeats):
                start = time.process_time()
                times = device.measure(table, candidates, p[which], q[which])
                seconds.append(time.process_time() - start)
            ok = (times.status == 0).mean()
            best, median = (len(p[which]) / value / 1e6 for value in (min(seconds), statistics.median(seconds)))
            print(
                f"{variant:10} {label}: {len(p[which]):8} pairs, {ok:4.0%} ok, "
                f"best {best:.2f}, median {median:.2f} million pairs per CPU second"
            )


if __name__ == "__main__":
    main()
