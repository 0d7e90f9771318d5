#!/usr/bin/env python3
"""Make the folder that goes to the GPU machine: sources of every kernel, plans of pairs, and the CUTLASS headers.

The machine has a compiler and PyTorch but not this package; what it gets is text that it compiles and measures.
``index.json`` of each operation, which stays here as well, says what the numbers in a plan stand for.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd

from tilewright import candidates as candidate_tables
from tilewright import problem as problem_tables
from tilewright import problem_sets, problem_table
from tilewright.arch import ArchSpecs
from tilewright.families.cutlass import emit, rules, support
from tilewright.families.cutlass.kernel import FIELDS, name
from tilewright.operation import Operation

ROOT = Path(__file__).parents[2]
ABI = (
    "N", "G", "C", "K", "Di", "Hi", "Wi", "Z", "Y", "X", "stride_d", "stride_h", "stride_w", "pad_d", "pad_h", "pad_w",
    "dilation_d", "dilation_h", "dilation_w",
)  # fmt: skip
SEED = 1


def shuffled(items: list[int], *key: object) -> list[int]:
    """Return ``items`` in an order that depends on ``key`` alone."""
    return sorted(items, key=lambda item: hashlib.sha256(f"{SEED},{key},{item}".encode()).digest())


def problems_of(operation: Operation, training: list[Path], validation: Path) -> pd.DataFrame:
    """Return training and validation problems with a column ``split``, ordered by key."""
    held_out = problem_sets.read_networks(validation, operation, (2, 3))
    generated = {
        entry.problem.key: entry
        for path in training
        for entry in problem_sets.generate(path, operation, (2, 3), 20261121)
    }
    train = problem_sets.hold_out(list(generated.values()), held_out)
    table = problem_table.table(train, held_out).to_pandas()
    return table.sort_values("problem_key", ignore_index=True)


def write_operation(operation: Operation, args: argparse.Namespace, sources: Path, plans: Path) -> None:
    """Write sources and plans of one operation."""
    specs = ArchSpecs.load(ROOT / "config/arch_specs.json")
    rule_set = rules.load(ROOT / "config/rule_sets/cutlass.yaml")
    result = rules.enumerate_kernels(rule_set, specs, args.arch, operation, [2, 3])
    emitter = emit.Emitter(ROOT / "workflow/templates/cutlass")
    for file, text in emitter.files(result.kernels, args.arch).items():
        (sources / file).write_text(text)
    (sources / f"library_{operation}.cu").write_text(emitter.library(result.kernels))
    kernels = pd.DataFrame([{f: getattr(k, f) for f in FIELDS} | {"kernel": name(k)} for k in result.kernels])
    pool = kernels.merge(pd.DataFrame({"split_k": result.split_k}), how="cross")
    problems = problems_of(operation, [ROOT / path for path in args.training], ROOT / args.validation)
    possible = support.check(problems, pool, operation.variant) == 0
    order = [p for p in shuffled(list(range(len(problems))), str(operation)) if possible[p].any()]
    lines = []
    direction = emit.DIRECTIONS[operation.variant]
    for index, problem in enumerate(problem_tables.from_frame(problems)):
        lines.append(f"P {index} {' '.join(str(getattr(problem, f)) for f in ABI)} {direction} 1")
    lines += [f"Q {index} {row.kernel} {row.split_k}" for index, row in enumerate(pool.itertuples())]
    pairs = [f"M {p} {' '.join(map(str, shuffled(np.flatnonzero(possible[p]).tolist(), p)))}" for p in order]
    (plans / f"{operation}.plan").write_text("\n".join(lines + pairs) + "\n")
    # The noise study: the same pairs in every run, one a problem.
    few = [p for p in order if possible[p].any()][: args.noise_pairs]
    noise = [f"M {p} {shuffled(np.flatnonzero(possible[p]).tolist(), p, 'noise')[0]}" for p in few]
    (plans / f"{operation}.noise.plan").write_text("\n".join(lines + noise) + "\n")
    small = [f"M {p} {' '.join(map(str, shuffled(np.flatnonzero(possible[p]).tolist(), p)))}" for p in order[:12]]
    (plans / f"{operation}.smoke.plan").write_text("\n".join(lines + small) + "\n")
    held_out = [str(p) for p in order if problems["split"][p] == "validation"]
    (plans / f"{operation}.validation").write_text("\n".join(held_out) + "\n")
    index = {
        "operation": str(operation),
        "arch": args.arch,
        "candidates": [candidate_tables.label(row.kernel, row.split_k) for row in pool.itertuples()],
        "problems": problems.drop(columns="layer_family").to_dict("list"),
        "plan_sha256": hashlib.sha256((plans / f"{operation}.plan").read_bytes()).hexdigest(),
    }
    (plans / f"{operation}.index.json").write_text(json.dumps(index) + "\n")
    runnable = problems.iloc[order]["split"].value_counts().to_dict()
    print(
        f"{operation}: {len(kernels)} kernels, {len(pool)} candidates, problems that can run {runnable}, "
        f"{int(possible.sum())} pairs"
    )


def copy_headers(include: Path, sources: Path, output: Path) -> None:
    """Copy the CUTLASS headers that the sources need, as the compiler lists them, and the licence beside them."""
    texts = "".join(f'#include "{path.name}"\n' for path in sorted(sources.glob("*.cuh")))
    probe = sources / "every_kernel.cu"
    probe.write_text(texts)
    own = ROOT / "workflow/templates/cutlass/include"
    command = ["nvcc", "-M", "-std=c++17", "-I", str(include), "-I", str(own), "-I", str(sources), str(probe)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.replace("\\\n", " ").split()
    probe.unlink()
    found = [Path(os.path.normpath(path)) for path in listed if "/cutlass/" in path or "/cute/" in path]
    for path in sorted(set(found)):
        if path.is_relative_to(include):
            target = output / path.relative_to(include)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cutlass", required=True, type=Path, help="include folder of CUTLASS (PyPI: nvidia-cutlass)")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--operations", nargs="+", default=["forward_bf16", "bwd_data_bf16", "bwd_weight_bf16"])
    parser.add_argument(
        "--training", nargs="+", default=["config/problems/training.yaml", "config/problems/training_h200.yaml"]
    )
    parser.add_argument("--validation", default="config/problems/networks.csv")
    parser.add_argument("--noise-pairs", type=int, default=200)
    parser.add_argument("--output", required=True, type=Path, help="folder to write")
    args = parser.parse_args()

    sources, plans = args.output / "src", args.output / "plans"
    for folder in (sources, plans):
        folder.mkdir(parents=True, exist_ok=True)
    for operation in args.operations:
        write_operation(Operation.parse(operation), args, sources, plans)
    copy_headers(args.cutlass, sources, args.output / "include")
    for path in (ROOT / "workflow/templates/cutlass/include/tilewright").iterdir():
        target = args.output / "include/tilewright" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    for script in ("worker.cu", "build.py", "campaign.py", "cudnn_baseline.py"):
        (args.output / script).write_bytes((Path(__file__).parent / script).read_bytes())


if __name__ == "__main__":
    main()
