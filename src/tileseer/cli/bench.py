"""``tileseer bench``: measure a few kernels on one convolution, on the simulated device or a GPU of this machine."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tileseer.cli import options
from tileseer.conv.implicit_gemm import implicit_gemm
from tileseer.conv.operation import Operation
from tileseer.conv.problem import DIMS, Problem, frame
from tileseer.core.errors import UserError
from tileseer.core.places import find
from tileseer.core.progress import Progress
from tileseer.devices.base import STATUSES
from tileseer.devices.harness.library_check import supporting
from tileseer.devices.harness.supervisor import Outcome, Request, Supervisor, launch_options, libraries, problem_numbers
from tileseer.devices.simulated import SimulatedDevice, load_coefficients
from tileseer.families.registry import of_arch
from tileseer.gpu import hardware
from tileseer.gpu.arch import ArchSpecs
from tileseer.settings.benchmark import BenchmarkSettings, Timing

QUICK = "N=8,C=64,K=64,Hi=28,Wi=28,Y=3,X=3,pad_h=1,pad_w=1"
Row = tuple[str, str, float, int, str]
"""Kernel, status, median ms (NaN without one), samples, error."""


EXAMPLES = (
    "tileseer bench --quick",
    "tileseer bench --quick --product gfx950_mi350x --variant bwd_data --kernels 20 --json",
    "tileseer bench --quick --driver driver.so --module kernels.so",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--quick", action="store_true", help=f"the convolution {QUICK}")
    options.add_problem(parser)
    parser.add_argument("--kernels", type=options.positive, default=10, help="how many kernels at most (default: 10)")
    parser.add_argument("--driver", type=Path, help="measuring driver, a library: measure for real")
    parser.add_argument("--module", type=Path, action="append", default=[], help="library with kernels, repeatable")
    parser.add_argument("--cache", choices=("cold", "warm"), default="cold", help="operands (default: cold)")
    parser.add_argument("--arch", default="gfx950", help="arch of the simulated device (default: gfx950)")
    parser.add_argument("--product", help="product of the simulated device (default: the one that stands for its arch)")
    options.add_tables(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print a table, fastest first; return 1 if no kernel could be measured."""
    if args.quick and args.problem is None:
        args.problem = QUICK
    problem = options.problem(args)
    if args.driver:
        where, rows = _on_a_gpu(args, problem)
    else:
        where, rows = _simulated(args, problem)
    if args.json:
        options.print_json("bench", _record(where, "measured" if args.driver else "simulated", problem, rows))
    else:
        _print(where, problem, rows)
    return int(all(status != "ok" for _, status, *_ in rows))


def _simulated(args: argparse.Namespace, problem: Problem) -> tuple[str, list[Row]]:
    specs = ArchSpecs.load(find(args.config / "arch_specs.json"))
    operation = Operation(args.variant, args.dtype)
    family = of_arch(args.arch)
    rule_set = find(args.config / "rule_sets" / family.rule_set)
    rules = family.part("rules")
    found = rules.enumerate_kernels(rule_set, specs, args.arch, operation, [problem.ndim], ["all"]).kernels
    # Evenly through the rule set, so that few kernels are of many kinds.
    few = found[:: max(1, len(found) // args.kernels)][: args.kernels]
    if not few:
        raise UserError(f"the rule set has no {problem.ndim}D kernel for {operation} on {args.arch}")
    products = BenchmarkSettings().products
    if args.product is None and args.arch not in products:
        raise UserError(f"no product stands for {args.arch}; add --product, a name of {args.config}/hardware.yaml")
    gpu = hardware.get(find(args.config / "hardware.yaml"), args.product or products[args.arch])
    if gpu.arch != args.arch:
        raise UserError(f"--product: {gpu.name} is a {gpu.arch}, but --arch is {args.arch}")
    device = SimulatedDevice(gpu, load_coefficients(find(args.config / "simulated_device.yaml")), seed=1)
    table = family.part("kernel").frame(few).assign(split_k=1)
    rows: list[Row] = []
    with Progress("bench", len(table), "kernels") as progress:
        for number, name in enumerate(table["kernel"]):
            begin = time.monotonic()
            times = device.measure(frame([problem]), table, np.zeros(1, int), np.array([number]))
            milliseconds, samples = float(times.latency_ms[0]), int(times.samples[0])
            rows.append((str(name), STATUSES[times.status[0]], milliseconds, samples, ""))
            _tell(progress, rows, time.monotonic() - begin)
    return f"{device.name}, SIMULATED", rows


def _on_a_gpu(args: argparse.Namespace, problem: Problem) -> tuple[str, list[Row]]:
    driver, modules = str(args.driver.resolve()), [str(path.resolve()) for path in args.module]
    loaded = libraries(driver, modules)
    options = launch_options(Timing(cache=args.cache))
    numbers = problem_numbers({name: getattr(problem, name) for name in problem.__dict__}, problem.variant, 1)
    with Supervisor(driver) as supervisor:
        told = supervisor.device()
        rows = []
        names = supporting(loaded, numbers)[: args.kernels]
        with Progress("bench", len(names), "kernels") as progress:
            for name in names:
                begin = time.monotonic()
                rows.append(_row(name, supervisor.measure(Request(loaded, name, numbers, options))))
                _tell(progress, rows, time.monotonic() - begin)
    return f"{told['name']} ({told['backend']}, operands {args.cache})", rows


def _tell(progress: Progress, rows: Sequence[Row], seconds: float) -> None:
    """Count the last row."""
    best = min((milliseconds for _, status, milliseconds, *_ in rows if status == "ok"), default=None)
    progress.add(1, seconds, int(rows[-1][1] != "ok"), "" if best is None else f"{best:.4f} ms")


def _row(name: str, outcome: Outcome) -> Row:
    result = outcome.reply.get("result") if outcome.status == "ok" else None
    if result is None:
        return name, outcome.status, float("nan"), 0, outcome.error
    return name, outcome.status, float(result["median_ms"]), int(result["samples"]), ""


def _record(where: str, kind: str, problem: Problem, rows: Sequence[Row]) -> dict[str, Any]:
    flops = _flops(problem)
    return {
        "device": where,
        "device_kind": kind,
        "variant": problem.variant,
        "dtype": problem.dtype,
        "problem": {name: getattr(problem, name) for name in DIMS},
        "gflop": flops / 1e9,
        "kernels": [
            {
                "kernel": name, "status": status, "median_ms": milliseconds, "tflops": flops / milliseconds * 1e-9,
                "samples": samples, "error": error,
            }
            for name, status, milliseconds, samples, error in rows
        ],
    }  # fmt: skip


def _flops(problem: Problem) -> float:
    return float(implicit_gemm(frame([problem]), problem.variant)["flops"].iloc[0])


def _print(where: str, problem: Problem, rows: Sequence[Row]) -> None:
    flops = _flops(problem)
    print(f"{problem.variant} {problem.dtype} on {where}: {flops / 1e9:.2f} GFLOP")
    print(f"{'ms':>9} {'TFLOPS':>8} {'samples':>7}  {'status':12}  kernel")
    for name, status, milliseconds, samples, error in sorted(rows, key=lambda row: (np.isnan(row[2]), row[2])):
        known = not np.isnan(milliseconds)
        time = f"{milliseconds:9.4f} {flops / milliseconds * 1e-9:8.1f} {samples:7}" if known else " " * 26
        print(f"{time}  {status:12}  {name}" + (f"  ({error})" if error else ""))
    if not rows:
        print("no kernel supports the problem")
