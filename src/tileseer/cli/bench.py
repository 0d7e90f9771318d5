"""``tileseer bench``: measure a few kernels on one convolution, on the simulated device or a GPU of this machine."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tileseer.cli import options
from tileseer.core.errors import UserError
from tileseer.core.places import find_file
from tileseer.core.progress import Progress
from tileseer.facts import hardware
from tileseer.facts.arch import ArchSpecs
from tileseer.facts.benchmark import BenchmarkSettings, Timing
from tileseer.libraries import names
from tileseer.libraries.candidates import label
from tileseer.libraries.costs.coefficients import load_coefficients
from tileseer.libraries.gemm_kernel import Kernel
from tileseer.libraries.registry import library_of_arch
from tileseer.libraries.rule_sets import read_sweep
from tileseer.measure.device import STATUSES
from tileseer.measure.harness.supervisor import Request, Supervisor, launch_options, problem_numbers
from tileseer.measure.simulated_device import SimulatedDevice
from tileseer.problems.implicit_gemm import implicit_gemm
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS, Problem, problem_frame

QUICK = "N=8,C=64,K=64,Hi=28,Wi=28,Y=3,X=3,pad_h=1,pad_w=1"
Measurement = tuple[str, float, int, str]
"""Status, median ms (NaN without one), samples, error."""
Rows = list[dict[str, Any]]
EXAMPLES = (
    "tileseer bench --quick",
    "tileseer bench --quick --product gfx950_mi350x --variant bwd_data --kernels 20 --json",
    "tileseer bench --quick --candidate grouped_conv_fwd_bf16_nhwgc_2d_mem_cshuffle_interwave_16x64x64_1x4x1_16x16x16",
    "tileseer bench --quick --driver driver.so --module kernels.so",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--quick", action="store_true", help=f"the convolution {QUICK}")
    options.add_problem(parser)
    parser.add_argument("--candidate", metavar="NAME", help="only this one, with @splitkN behind it for a split-K of N")
    parser.add_argument("--kernels", type=options.positive, default=10, help="how many kernels at most (default: 10)")
    parser.add_argument("--driver", type=Path, help="measuring driver, a library: measure for real")
    parser.add_argument("--module", type=Path, action="append", default=[], help="library with kernels, repeatable")
    parser.add_argument("--cache", choices=("cold", "warm"), default="cold", help="operands (default: cold)")
    parser.add_argument("--arch", default="gfx950", help="arch of the simulated device (default: gfx950)")
    parser.add_argument("--product", help="product of the simulated device (default: that of its arch)")
    options.add_tables(parser)


def run(args: argparse.Namespace) -> int:
    """Print a table, fastest first; return 1 if no kernel could be measured."""
    if args.quick and args.problem is None:
        args.problem = QUICK
    problem = options.problem(args)
    if args.module and not args.driver:
        raise UserError("--module is for --driver, which measures its kernels; without it times are simulated")
    where, rows = (_on_a_gpu if args.driver else _simulated)(args, problem)
    gflop = _flops(problem) / 1e9
    dims = {name: getattr(problem, name) for name in DIMS}
    about = {"variant": problem.variant, "dtype": problem.dtype, "problem": dims, "gflop": gflop}
    kind = "measured" if args.driver else "simulated"
    content = {"device": where, "device_kind": kind, **about, "kernels": rows}
    title = f"{problem.variant} {problem.dtype} on {where}: {gflop:.2f} GFLOP"
    return options.answer(args, content, [title, *_lines(rows)], all(row["status"] != "ok" for row in rows))


def _simulated(args: argparse.Namespace, problem: Problem) -> tuple[str, Rows]:
    operation = Operation(args.variant, args.dtype)
    library = library_of_arch(args.arch)
    few, split_k = _few(args, problem, operation)
    products = BenchmarkSettings().products
    if args.product is None and args.arch not in products:
        raise UserError(
            f"benchmark.products has no product for {args.arch}; add --product, a name of {args.config}/hardware.yaml"
        )
    gpu = hardware.read_hardware(find_file(args.config / "hardware.yaml"), args.product or products[args.arch])
    if gpu.arch != args.arch:
        raise UserError(f"--product: {gpu.name} is a {gpu.arch}, but --arch is {args.arch}")
    device = SimulatedDevice(gpu, load_coefficients(find_file(args.config / "simulated_device.yaml")), seed=1)
    table = library.kernel.frame(few).assign(split_k=split_k)

    def measure(number: int) -> Measurement:
        times = device.measure(problem_frame([problem]), table, np.zeros(1, int), np.array([number]))
        return STATUSES[times.status[0]], float(times.latency_ms[0]), int(times.samples[0]), ""

    return f"{device.name}, SIMULATED", _measured(problem, [label(name, split_k) for name in table["kernel"]], measure)


def _few(args: argparse.Namespace, problem: Problem, operation: Operation) -> tuple[list[Kernel], int]:
    """Return the kernels to measure, and their split-K."""
    if args.candidate:
        named = names.read_kernel_name(args.candidate, args.arch, operation, problem.ndim)
        return [named.kernel], named.split_k
    library = library_of_arch(args.arch)
    sweep = read_sweep(find_file(args.config / "rule_sets" / library.rule_set), args.arch)
    specs = ArchSpecs.load(find_file(args.config / "arch_specs.json"))
    kernels = sweep.enumerate(specs, args.arch, operation, [problem.ndim], ["all"]).kernels
    if not kernels:
        raise UserError(f"the rule set has no {problem.ndim}D kernel for {operation} on {args.arch}")
    # Evenly through the rule set, so that few kernels are of many kinds.
    return kernels[:: max(1, len(kernels) // args.kernels)][: args.kernels], 1


def _on_a_gpu(args: argparse.Namespace, problem: Problem) -> tuple[str, Rows]:
    modules = tuple(str(path.absolute()) for path in args.module)
    candidate, split_k = names.split_launch(args.candidate or "")
    numbers = problem_numbers(vars(problem), problem.variant, split_k)
    with Supervisor(str(args.driver.absolute())) as supervisor:
        device = supervisor.device()
        able = supervisor.supporting(modules, numbers)
        if candidate and candidate not in able:
            raise UserError(f"--candidate: no --module has a kernel {candidate} that can run this problem")
        able = [candidate] if candidate else able[: args.kernels]

        def measure(number: int) -> Measurement:
            request = Request(modules, able[number], numbers, launch_options(Timing(cache=args.cache)))
            outcome = supervisor.measure(request)
            samples = outcome.reply.get("samples_ms", [])
            return outcome.status, outcome.median_ms, len(samples), outcome.error

        rows = _measured(problem, able, measure)
    return f"{device['name']} ({device['backend']}, operands {args.cache})", rows


def _measured(problem: Problem, names: Sequence[str], measure: Callable[[int], Measurement]) -> Rows:
    """Return a row a kernel, measured by its number."""
    rows: Rows = []
    with Progress("bench", len(names), "kernels") as progress:
        for number, name in enumerate(names):
            status, ms, samples, error = measure(number)
            speed = {"median_ms": ms, "tflops": _flops(problem) / ms * 1e-9, "samples": samples}
            rows.append({"kernel": name, "status": status, **speed, "error": error})
            best = min((row["median_ms"] for row in rows if row["status"] == "ok"), default=None)
            progress.add(failed=int(status != "ok"), best="" if best is None else f"{best:.4f} ms")
    return rows


def _flops(problem: Problem) -> float:
    return float(implicit_gemm(problem_frame([problem]), problem.variant)["flops"].iloc[0])


def _lines(rows: Rows) -> Iterator[str]:
    yield f"{'ms':>9} {'TFLOPS':>8} {'samples':>7}  {'status':12}  kernel"
    for row in sorted(rows, key=lambda row: (np.isnan(row["median_ms"]), row["median_ms"])):
        time = f"{row['median_ms']:9.4f} {row['tflops']:8.1f} {row['samples']:7}"
        error = f"  ({row['error']})" if row["error"] else ""
        yield f"{' ' * 26 if np.isnan(row['median_ms']) else time}  {row['status']:12}  {row['kernel']}{error}"
    if not rows:
        yield "no kernel supports the problem"
