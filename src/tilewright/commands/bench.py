"""``tilewright bench``: measure a few kernels on one convolution, on the simulated device or a GPU of this machine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tilewright import hardware, kernel
from tilewright.arch import ArchSpecs
from tilewright.bench.process import Fault, Worker
from tilewright.bench.supervisor import Outcome, Request, Supervisor, libraries, problem_numbers
from tilewright.commands.select import parse_dims
from tilewright.devices.registry import method
from tilewright.devices.simulated import SimulatedDevice, load_coefficients
from tilewright.errors import UserError
from tilewright.implicit_gemm import implicit_gemm
from tilewright.measurements import STATUSES
from tilewright.operation import DTYPES, VARIANTS, Operation
from tilewright.problem import Problem, frame
from tilewright.rules import sweep
from tilewright.settings.benchmark import GpuSettings

QUICK = "N=8,C=64,K=64,Hi=28,Wi=28,Y=3,X=3,pad_h=1,pad_w=1"
Row = tuple[str, str, float, int, str]
"""Kernel, status, median ms (NaN without one), samples, error."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--quick", action="store_true", help=f"the convolution {QUICK}")
    parser.add_argument("--problem", metavar="N=8,C=64,...", help="another convolution")
    parser.add_argument("--variant", choices=VARIANTS, default="forward", help="direction (default: forward)")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16", help="data type (default: bf16)")
    parser.add_argument("--kernels", type=int, default=10, help="how many kernels at most (default: 10)")
    parser.add_argument("--driver", type=Path, help="measuring driver, a library: measure for real")
    parser.add_argument("--module", type=Path, action="append", default=[], help="library with kernels, repeatable")
    parser.add_argument("--cache", choices=("cold", "warm"), default="cold", help="operands (default: cold)")
    parser.add_argument("--arch", default="gfx950", help="arch of the simulated device (default: gfx950)")
    parser.add_argument("--product", default="gfx950_mi355x", help="product of the simulated device")
    parser.add_argument("--config", type=Path, default=Path("config"), help="folder of the tables (default: config)")


def run(args: argparse.Namespace) -> int:
    """Print a table, fastest first; return 1 if no kernel could be measured."""
    if not args.quick and not args.problem:
        raise UserError(f"no problem given: use --quick or --problem {QUICK}")
    problem = Problem.from_dims(args.variant, args.dtype, **parse_dims(args.problem or QUICK))
    if args.driver:
        where, rows = _on_a_gpu(args, problem)
    else:
        where, rows = _simulated(args, problem)
    _print(where, problem, rows)
    return int(all(status != "ok" for _, status, *_ in rows))


def _simulated(args: argparse.Namespace, problem: Problem) -> tuple[str, list[Row]]:
    specs = ArchSpecs.load(args.config / "arch_specs.json")
    operation = Operation(args.variant, args.dtype)
    rules = sweep.load(args.config / "rule_sets/sweep.yaml")
    found = sweep.enumerate_kernels(rules, specs, args.arch, operation, [problem.ndim]).kernels
    # Evenly through the rule set, so that few kernels are of many kinds.
    few = found[:: max(1, len(found) // args.kernels)][: args.kernels]
    if not few:
        raise UserError(f"the rule set has no {problem.ndim}D kernel for {operation} on {args.arch}")
    gpu = hardware.get(args.config / "hardware.yaml", args.product)
    device = SimulatedDevice(gpu, load_coefficients(args.config / "simulated_device.yaml"), seed=1)
    table = kernel.frame(few).assign(split_k=1)
    times = device.measure(frame([problem]), table, np.zeros(len(few), int), np.arange(len(few)))
    columns = (table["kernel"], times.status, times.latency_ms, times.samples)
    rows = [(str(k), STATUSES[s], float(ms), int(n), "") for k, s, ms, n in zip(*columns, strict=True)]
    return f"{device.name}, SIMULATED", rows


def _on_a_gpu(args: argparse.Namespace, problem: Problem) -> tuple[str, list[Row]]:
    driver, modules = str(args.driver.resolve()), [str(path.resolve()) for path in args.module]
    loaded = libraries(driver, modules)
    how = method(GpuSettings(cache=args.cache, verify="pair"), seed=1)
    options = {
        **how.timing, "seed": how.seed, "rotate_bytes": how.rotate_bytes, "cache": ("cold", "warm").index(args.cache),
        "hopeless_ms": 0.0, "reserved": 0,
    }  # fmt: skip
    numbers = problem_numbers({name: getattr(problem, name) for name in problem.__dict__}, problem.variant, 1)
    with Supervisor(driver) as supervisor:
        told = supervisor.device()
        rows = []
        for name in _supporting(loaded, numbers)[: args.kernels]:
            outcome = supervisor.measure(Request(loaded, name, numbers, options))
            rows.append(_row(name, outcome))
    return f"{told['name']} ({told['backend']}, operands {args.cache})", rows


def _supporting(loaded: Sequence[str], numbers: Sequence[int]) -> list[str]:
    """Return the kernels of the libraries that say that they can run the problem."""
    try:
        with Worker() as worker:
            answer = worker.ask({"do": "kernels", "libraries": list(loaded)}, 60)
            if answer["code"]:
                raise UserError(answer["error"])
            ask = {"do": "supports", "libraries": list(loaded), "problem": list(numbers)}
            return [name for name in answer["kernels"] if worker.ask(ask | {"kernel": name}, 60)["code"] == 1]
    except Fault as fault:
        raise UserError(f"{', '.join(loaded)}: {fault}") from None


def _row(name: str, outcome: Outcome) -> Row:
    result = outcome.reply.get("result") if outcome.status == "ok" else None
    if result is None:
        return name, outcome.status, float("nan"), 0, outcome.error
    return name, outcome.status, float(result["median_ms"]), int(result["samples"]), ""


def _print(where: str, problem: Problem, rows: Sequence[Row]) -> None:
    flops = float(implicit_gemm(frame([problem]), problem.variant)["flops"].iloc[0])
    print(f"{problem.variant} {problem.dtype} on {where}: {flops / 1e9:.2f} GFLOP")
    print(f"{'ms':>9} {'TFLOPS':>8} {'samples':>7}  {'status':12}  kernel")
    for name, status, milliseconds, samples, error in sorted(rows, key=lambda row: (np.isnan(row[2]), row[2])):
        known = not np.isnan(milliseconds)
        time = f"{milliseconds:9.4f} {flops / milliseconds * 1e-9:8.1f} {samples:7}" if known else " " * 26
        print(f"{time}  {status:12}  {name}" + (f"  ({error})" if error else ""))
    if not rows:
        print("no kernel supports the problem")
