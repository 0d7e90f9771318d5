#!/usr/bin/env python3
"""What a prior saves: models of few measured rows with and without a model of another device to start from.

All times are simulated. `stand-in` is the simulated gfx950 with other coefficients, other deviations and another seed:
it plays the real device that the simulator gets wrong. `arch` warm-starts gfx950 from gfx942, `dtype` bf16 from fp16.
Each line has the efficiency of the picks on the validation problems, as the target device measured them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd

from tilewright import (
    bootstrap,
    candidates,
    efficiency,
    evaluate,
    hardware,
    kernel,
    layers,
    learn,
    problem,
    problem_sets,
    resources,
    support,
)
from tilewright.arch import ArchSpecs
from tilewright.devices.simulated import SimulatedDevice, load_coefficients
from tilewright.implicit_gemm import implicit_gemm
from tilewright.measurements import Measurements
from tilewright.operation import Operation
from tilewright.rules import sweep
from tilewright.settings.model import ModelSettings

CONFIG = Path(__file__).parents[1] / "config"
SHARES = (0.0, 0.01, 0.05, 0.15, 1.0)
VALIDATION = 500
"""Layers of networks of the test split to judge on."""
CHANGED = {
    ("block", "fixed_latency"): 1.6,
    ("block", "element_latency"): 0.7,
    ("block", "element_throughput"): 1.5,
    ("memory", "hbm"): 1.4,
    ("memory", "l2"): 0.8,
    ("schedule", "asynchronous"): 1.5,
    ("pipelines", "mem", "latency"): 1.5,
    ("pipelines", "compv3", "latency"): 0.75,
    ("pipelines", "compv4", "epilogue"): 0.5,
    ("pipelines", "compv6", "latency"): 1.3,
    ("deviation", "smooth"): 1.5,
}
"""Factors on coefficients of the simulated device that make the stand-in."""


def stand_in(coefficients):
    """Return the coefficients of a device that the simulator gets wrong."""
    content = coefficients.model_dump()
    for path, factor in CHANGED.items():
        part = content
        for name in path[:-1]:
            part = part[name]
        part[path[-1]] *= factor
    content["deviation"]["seed"] += 1
    return type(coefficients)(**content)


def measured(operation: Operation, product, coefficients, seed: int, count: int) -> Measurements:
    """Time all supported pairs of some training problems and layers of networks with the arch's sweep pool."""
    training = problem_sets.generate(CONFIG / "problems/training.yaml", operation, (2, 3), seed=1)
    known = layers.read(CONFIG / "problems/layers.csv")
    networks = problem_sets.of_layers(
        problem_sets.sample_layers(known, "test", operation, VALIDATION, seed=1), operation, (2, 3)
    )
    training = problem_sets.hold_out(training, networks)[:: max(len(training) // count, 1)]
    entries = [*training, *networks]
    problems = problem.frame([entry.problem for entry in entries])
    problems["split"] = ["train"] * len(training) + ["validation"] * len(networks)
    problems["network"] = [entry.origin for entry in entries]
    problems["layer"] = [entry.layer for entry in entries]
    specs = ArchSpecs.load(CONFIG / "arch_specs.json")
    pool = sweep.enumerate_kernels(sweep.load(CONFIG / "rule_sets/sweep.yaml"), specs, product.arch, operation, [2, 3])
    names = kernel.frame(pool.kernels)[["kernel"]]
    table = pd.concat([names.assign(split_k=split) for split in pool.split_k], ignore_index=True)
    table = candidates.with_fields(table)
    estimate = resources.estimate(table, product, load_coefficients(CONFIG / "simulated_device.yaml"))
    table = table.assign(**{name: estimate[name] for name in candidates.RESOURCES})
    verdicts = support.check(problems, table, operation.variant, wave_size=product.wave_size)
    rows, columns = (index.astype(np.int32) for index in np.nonzero(verdicts == 0))
    device = SimulatedDevice(product, coefficients, seed)
    times = device.measure(problems, table, rows, columns)
    flops = implicit_gemm(problems, operation.variant)["flops"].to_numpy()
    return Measurements(
        arch=product.arch, operation=str(operation), device=device.name, device_kind=device.kind, problems=problems,
        candidates=table, problem=rows, candidate=columns, status=times.status, latency_ms=times.latency_ms,
        tflops=flops[rows] / (times.latency_ms * 1e9),
    )  # fmt: skip


def sampled(data: Measurements, share: float, seed: int) -> Measurements:
    """Return the measurements with a share of the training rows, drawn, and all validation rows."""
    train = (data.problems["split"] == "train").to_numpy()[data.problem]
    keep = ~train | (np.random.default_rng(seed).random(len(train)) < share)
    return data.only(keep)


def picked(data: Measurements, product, trained) -> np.ndarray:
    """Return the efficiency of a model's picks on the validation problems of ``data``."""
    booster = lightgbm.Booster(model_str=trained.model)
    known = trained.candidates.set_index("candidate")["offset"]
    pool = data.candidates.assign(offset=data.candidates["candidate"].map(known).fillna(0.0))
    pool = pool[pool["candidate"].isin(known.index)]
    scores, offered = evaluate.rank_pool(data, booster, trained.spec, pool, product)
    return evaluate.score(data, scores, offered).picked


def renamed(trained, dtype: str):
    """Return a trained model whose pool has the names of another data type: for a prior with no rows at all."""
    names = trained.candidates["candidate"].str.replace(r"_(fp16|bf16|fp32)_", f"_{dtype}_", n=1, regex=True)
    return learn.Trained(**{**vars(trained), "candidates": trained.candidates.assign(candidate=names)})


def main() -> None:
    """Print the efficiency with n rows, with and without the prior."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", choices=["stand-in", "arch", "dtype"], default="stand-in")
    parser.add_argument("--variant", default="forward")
    parser.add_argument("--problems", type=int, default=400, help="training problems, about")
    parser.add_argument("--trees", type=int, default=300)
    args = parser.parse_args()

    ours = load_coefficients(CONFIG / "simulated_device.yaml")
    target = hardware.get(CONFIG / "hardware.yaml", "gfx950_mi355x")
    start = hardware.get(CONFIG / "hardware.yaml", "gfx942_mi300x") if args.step == "arch" else target
    theirs = stand_in(ours) if args.step == "stand-in" else ours
    seed = 2 if args.step == "stand-in" else 1
    operation = Operation(args.variant, "bf16")
    before = Operation(args.variant, "fp16") if args.step == "dtype" else operation
    settings = ModelSettings(target="relative", search_trials=0, n_estimators=args.trees, folds=3, cv_estimators=30)

    first = learn.train(measured(before, start, ours, 1, args.problems), start, settings)
    data = measured(operation, target, theirs, seed, args.problems)
    total = int(((data.problems["split"] == "train").to_numpy()[data.problem]).sum())
    print(f"{args.step}, {operation}, {args.problems} problems, {total:,} training rows, all SIMULATED")
    with tempfile.TemporaryDirectory() as folder:
        learn.write(Path(folder), first, start)
        # The folder is no path inside a workflow, which is what the setting wants of a user.
        corrected = settings.model_copy(update={"prior": folder})
        for share in SHARES:
            if share == 0:
                show(share, "prior alone", picked(data, target, renamed(first, operation.dtype)))
                continue
            few = sampled(data, share, seed=1)
            with_prior = learn.train(few, target, corrected)
            steps = [entry["trees"] for entry in with_prior.manifest["choice"]["correction"] if entry["chosen"]]
            show(share, f"prior and {steps[0]} trees", picked(data, target, with_prior))
            scratch = settings.model_copy(update={"target": "log_tflops"}) if share < 0.5 else settings
            show(share, "without prior", picked(data, target, learn.train(few, target, scratch)))


def show(share: float, name: str, values: np.ndarray) -> None:
    """Print one line."""
    low, high = bootstrap.of_mean(values)
    summary = efficiency.summary(values)
    print(
        f"{100 * share:5.1f} % of rows, {name}: mean {summary['mean']:.2f} % ({low:.2f} to {high:.2f}), "
        f"p10 {summary['p10']:.2f} %",
        flush=True,
    )


if __name__ == "__main__":
    main()
