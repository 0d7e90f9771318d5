#!/usr/bin/env python3
"""Check the measuring harness on a real GPU: its facts, its way with broken kernels, its times against a recording.

It builds the driver, the faulty kernels and a few CUTLASS kernels of each operation, and prints what it finds:

facts    what driver and vendor tool say of the GPU
faults   what becomes of kernels that are wrong, refuse, crash, corrupt the context or hang, and of their neighbours
rate     every kernel on some problems, with the settings of a large run: how many pairs a second
pairs    the same recorded pairs, cold and warm: statuses, time a pair, agreement with the recording, details logs

The details logs of two runs go to ``noise.py``.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.compile import native
from tileseer.config.benchmark import Timing
from tileseer.core.errors import reports_user_errors
from tileseer.gpus.arch import ArchSpecs
from tileseer.kernels.cutlass import emit
from tileseer.kernels.cutlass.kernel import CutlassKernel
from tileseer.kernels.cutlass.sweep import CutlassSweep
from tileseer.measure.device import STATUSES
from tileseer.measure.gpu_device import GpuDevice
from tileseer.measure.harness.supervisor import Request, Supervisor, WorkerLimits, launch_options
from tileseer.measure.harness.telemetry import Board, boards
from tileseer.measure.session import Session
from tileseer.problems.operation import Operation

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "config/recorded/sm_90"
ARCH = "sm_90"
KERNEL_FLAGS = ("--expt-relaxed-constexpr", "-Xcompiler", "-w", "-diag-suppress", "177")
SEED = 1
FAULTY = {
    "right": "ok",
    "one_wrong_element": "wrong_result",
    "one_element_not_finite": "wrong_result",
    "throws": "unsupported",
    "launch_refused": "unsupported",
    "segfault_on_the_host": "crash",
    "illegal_address": "crash",
    "stores_behind": "crash",
    "hangs": "run_timeout",
}
"""What the harness has to say of each kernel of ``faulty_kernels.cu``."""
PROBLEM = (8, 1, 64, 64, 1, 28, 28, 1, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1)


def few(operation: Operation, count: int) -> list[str]:
    """Return the names of some kernels of the rule set, evenly through it."""
    specs = ArchSpecs.load(ROOT / "config/arch_specs.json")
    found = (
        CutlassSweep.read_file(ROOT / "config/rule_sets/cutlass.yaml").enumerate(specs, ARCH, operation, [2, 3]).kernels
    )
    return [found[i].name for i in np.linspace(0, len(found) - 1, min(count, len(found))).astype(int)]


def nvcc(sources: list[Path], output: Path, *more: str) -> None:
    """Compile a library as the harness does."""
    native.run_command(
        [*native.library_command("cuda", "nvcc", ARCH, sources, output, ROOT / native.NATIVE_SOURCES), *more]
    )


def build(args: argparse.Namespace, operations: list[Operation]) -> dict[str, list[str]]:
    """Build everything that is not there yet; return the kernels of each operation."""
    args.work.mkdir(parents=True, exist_ok=True)
    emitter = emit.CutlassEmitter(ROOT / "workflow/templates", ROOT)
    names = {str(operation): few(operation, args.kernels) for operation in operations}
    jobs = [
        ([ROOT / native.NATIVE_SOURCES / native.DRIVER_SOURCE], args.work / "driver.so", ()),
        ([ROOT / "benchmarks/gpu/faulty_kernels.cu"], args.work / "faulty.so", ()),
    ]
    for text in sorted(set().union(*names.values())):
        for path, content in emitter.files([CutlassKernel.parse(text)], ARCH).items():
            (args.work / path).write_text(content)
        more = (*KERNEL_FLAGS, f"-I{args.cutlass}", f"-I{args.work}")
        jobs.append(([args.work / f"{text}.cu"], args.work / f"{text}.so", more))
    begin = time.monotonic()
    missing = [job for job in jobs if not job[1].is_file()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda job: nvcc(job[0], job[1], *job[2]), missing))
    print(f"{len(missing)} libraries built in {time.monotonic() - begin:.1f} s on {os.cpu_count()} cores")
    return names


def facts(driver: str) -> None:
    """Print what driver and tool say."""
    with Supervisor(driver) as supervisor:
        for field, value in supervisor.device().items():
            print(f"  {field:16} {value}")
    for board in boards("cuda"):
        print(f"  board {board.uuid}")
        print(f"  {board.read(())}")


def faults(driver: str, module: str) -> bool:
    """Measure the faulty kernels, a right one after each; return whether each got what it deserves."""
    options = launch_options(Timing())
    good = True
    print(f"{'kernel':24} {'status':13} {'seconds':>7}  the right kernel after it; what was said")
    with Supervisor(driver, limits=WorkerLimits(pair_s=5.0, kernel_faults=2)) as supervisor:
        for kernel, expected in [*FAULTY.items(), ("hangs", "run_timeout"), ("hangs", "skipped")]:
            begin = time.monotonic()
            outcome = supervisor.measure(Request((module,), kernel, PROBLEM, options))
            seconds = time.monotonic() - begin
            after = supervisor.measure(Request((module,), "right", PROBLEM, options))
            good &= outcome.status == expected and after.status == "ok"
            print(f"{kernel:24} {outcome.status:13} {seconds:7.2f}  {after.status}; {outcome.error}")
            for fault in outcome.faults:
                print(f"{'':47} {fault}")
    return good


def recorded(operation: str, names: list[str], count: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return (problems, pairs) of a recording for some kernels: at most ``count`` pairs, one a problem."""
    folder = RECORDING / operation
    problems = pd.read_parquet(folder / "problems.parquet")
    kernels = pd.read_parquet(folder / "kernels.parquet")["kernel"]
    pairs = pd.read_parquet(folder / "pairs.parquet")
    pairs["kernel"] = kernels.to_numpy()[pairs["kernel"]]
    pairs = pairs[pairs["kernel"].isin(names) & (pairs["status"] == "ok") & ~pairs["brief"]]
    pairs = pairs.sample(frac=1, random_state=SEED).drop_duplicates("problem").head(count)
    return problems, pairs.reset_index(drop=True)


def gpu_device(args: argparse.Namespace, settings: Timing, supervisor: Supervisor, log: Path) -> GpuDevice:
    """Return the device of the benchmark stage; each kernel is a library of its own."""
    modules = {path.stem: path for path in args.work.glob("*.so")}
    session = Session(
        ARCH, "forward_bf16", {"benchmark": {"seed": SEED, "timing_overrides": settings.model_dump()}},
        ROOT / "config/hardware.yaml", "sm_90_h200", ROOT / "config/simulated_device.yaml",
        log.with_name(log.name.replace(".details.jsonl", ".csv")), args.work / "driver.so", modules,
    )  # fmt: skip
    return GpuDevice(session, supervisor, (boards("cuda") or [Board()])[0])


def new_supervisor(args: argparse.Namespace) -> Supervisor:
    """Return the owner of the workers, on the first GPU."""
    board = (boards("cuda") or [None])[0]
    return Supervisor(str((args.work / "driver.so").resolve()), board.environment if board else None, WorkerLimits())


def rate(args: argparse.Namespace, operation: str, names: list[str]) -> None:
    """Measure all kernels on some recorded problems."""
    problems, wanted = recorded(operation, names, 40)
    problems = problems.iloc[wanted["problem"]].reset_index(drop=True)
    candidates = pd.DataFrame({"kernel": names, "kernel_id": names, "split_k": 1})
    p, c = (index.ravel() for index in np.indices((len(problems), len(names))))
    begin = time.monotonic()
    with new_supervisor(args) as supervisor:
        path = args.output / f"{operation}.rate.{args.run}.details.jsonl"
        device = gpu_device(args, Timing.model_validate_json(args.settings), supervisor, path)
        status: Counter[str] = Counter()
        for first in range(0, len(p), device.largest_batch):
            part = slice(first, first + device.largest_batch)
            found = device.measure(problems, candidates, p[part], c[part])
            status.update(STATUSES[code] for code in found.status)
    wall = time.monotonic() - begin
    print(f"{operation}: {len(p)} pairs {dict(status)} in {wall:.1f} s, {1000 * wall / len(p):.1f} ms a pair")


def pairs(args: argparse.Namespace, operation: str, names: list[str], cache: str) -> None:
    """Measure recorded pairs again and compare."""
    problems, wanted = recorded(operation, names, args.pairs)
    candidates = wanted[["kernel", "split_k"]].drop_duplicates().reset_index(drop=True)
    candidates["kernel_id"] = candidates["kernel"]
    keys = pd.MultiIndex.from_frame(candidates[["kernel", "split_k"]])
    c = keys.get_indexer(pd.MultiIndex.from_frame(wanted[["kernel", "split_k"]]))
    p = wanted["problem"].to_numpy()
    settings = Timing(cache=cache, hopeless_factor=0)
    path = args.output / f"{operation}.{cache}.{args.run}.details.jsonl"
    begin = time.monotonic()
    with new_supervisor(args) as supervisor:
        device = gpu_device(args, settings, supervisor, path)
        status, times, samples = [], [], []
        for first in range(0, len(p), device.largest_batch):
            part = slice(first, first + device.largest_batch)
            found = device.measure(problems, candidates, p[part], c[part])
            status += [STATUSES[code] for code in found.status]
            times += found.latency_ms.tolist()
            samples += found.samples.tolist()
    wall = time.monotonic() - begin
    us = np.array(times) * 1000
    ratio = us / wanted["median_us"].to_numpy()
    quantiles = np.nanquantile(ratio, [0.01, 0.1, 0.5, 0.9, 0.99])
    print(
        f"{operation} {cache}: {len(p)} pairs {dict(Counter(status))}, {1000 * wall / len(p):.1f} ms a pair, "
        f"samples median {np.median(samples):.0f}\n"
        "  time over the recorded one, quantiles 1, 10, 50, 90, 99 %: " + " ".join(f"{q:.3f}" for q in quantiles)
    )
    for low, high in ((0, 10), (10, 30), (30, 100), (100, 1000), (1000, np.inf)):
        mine = (wanted["median_us"] >= low) & (wanted["median_us"] < high)
        if mine.any():
            print(f"    recorded {low:4} to {high:6} us: {mine.sum():4} pairs, median {np.nanmedian(ratio[mine]):.3f}")


@reports_user_errors
def main() -> int:
    """Build, check, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cutlass", required=True, type=Path, help="include folder of CUTLASS")
    parser.add_argument("--work", required=True, type=Path, help="folder of what is built")
    parser.add_argument("--output", required=True, type=Path, help="folder of the details logs")
    parser.add_argument("--operations", nargs="+", default=["forward_bf16", "bwd_data_bf16", "bwd_weight_bf16"])
    parser.add_argument("--kernels", type=int, default=12, help="kernels an operation (default: 12)")
    parser.add_argument("--pairs", type=int, default=200, help="pairs an operation (default: 200)")
    parser.add_argument("--run", default="1", help="name of this run in the logs' names (default: 1)")
    parser.add_argument("--settings", default="{}", help="parameters of timing as JSON, for the step rate")
    parser.add_argument("--steps", nargs="+", default=["facts", "faults", "rate", "pairs"])
    args = parser.parse_args()

    args.output.mkdir(parents=True, exist_ok=True)
    operations = [Operation.parse(text) for text in args.operations]
    names = build(args, operations)
    driver = str((args.work / "driver.so").resolve())
    good = True
    if "facts" in args.steps:
        facts(driver)
    if "faults" in args.steps:
        good = faults(driver, str((args.work / "faulty.so").resolve()))
        print("every faulty kernel got the status it deserves" if good else "FAILED: see above")
    if "rate" in args.steps:
        for operation in names:
            rate(args, operation, names[operation])
    if "pairs" in args.steps:
        for operation in names:
            for cache in ("cold", "warm"):
                pairs(args, operation, names[operation], cache)
    return int(not good)


if __name__ == "__main__":
    raise SystemExit(main())
