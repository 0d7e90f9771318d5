#!/usr/bin/env python3
"""Draw more training problems for a recording, of the kinds that ``more/*.yaml`` lists and of the train split's.

Their order is random, so that any beginning of a table has all kinds. None is in the recording; none has the layer
family of a problem that the recording validates with in any operation, nor of a layer of the test or validation split.
"""

import argparse
import random
from pathlib import Path

import pandas as pd

from tileseer.problems import design, layers, problem_sets
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS, Problem

SEED = 20261124


def draw(
    generator: Path,
    operation: Operation,
    count: int,
    known: set[tuple[int, ...]],
    barred: set[tuple[int, ...]],
    table: list,
    share: float,
    limits: tuple[float, float],
) -> list[Problem]:
    """``count`` new problems of one operation, about ``share`` of them drawn from the train split's space."""
    train = [layer for layer in table if layer.split == "train"]
    listed = [entry.problem for entry in problem_sets.generate_problems(generator, operation, (2, 3), SEED)]
    filling = design.draw_design(train, operation, (2, 3), 1500, SEED)
    chosen = []
    for problems, wanted in ((listed, count - round(count * share)), (filling, round(count * share))):
        fresh = [p for p in problems if p.dims not in known and p.dims[1:] not in barred and small(p, *limits)]
        random.Random(SEED).shuffle(fresh)
        print(f"{operation}: {wanted} of {len(fresh)} new problems")
        chosen += fresh[:wanted]
    random.Random(SEED).shuffle(chosen)
    return chosen


def small(problem: Problem, gflop: float, mib: float) -> bool:
    """Whether a problem has at most this many GFLOP, and MiB in its input and output together."""
    d = dict(zip(DIMS, problem.dims, strict=True))
    out = d["N"] * d["K"]
    for i, f, axis in (("Di", "Z", "d"), ("Hi", "Y", "h"), ("Wi", "X", "w")):
        out *= (d[i] + 2 * d[f"pad_{axis}"] - d[f"dilation_{axis}"] * (d[f] - 1) - 1) // d[f"stride_{axis}"] + 1
    work = 2e-9 * out * d["C"] // d["G"] * d["Z"] * d["Y"] * d["X"]
    return work <= gflop and 2 * (out + d["N"] * d["C"] * d["Di"] * d["Hi"] * d["Wi"]) / 2**20 <= mib


def main() -> None:
    """Write the tables of one recording, a row a problem, in the form of ``problems.training``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recording", type=Path, required=True)
    parser.add_argument("--draw", action="append", required=True, metavar="GENERATOR:DIRECTION:COUNT[:COUNT...]")
    parser.add_argument("--share", type=float, default=0.2, help="of problems from the train split's space")
    parser.add_argument("--gflop", type=float, default=150)
    parser.add_argument("--mib", type=float, default=400)
    parser.add_argument("--output", type=Path, required=True, help="NAME; writes NAME.1.csv, NAME.2.csv ...")
    args = parser.parse_args()

    table = layers.read_layers(Path("config/problems/layers.csv"))
    recorded = pd.concat([pd.read_parquet(path) for path in sorted(args.recording.glob("*/problems.parquet"))])
    known = set(recorded[list(DIMS)].itertuples(index=False, name=None))
    unseen = recorded[recorded["split"] == "validation"]
    barred = {dims[1:] for dims in unseen[list(DIMS)].itertuples(index=False, name=None)}
    barred |= {layer.family for layer in table if layer.split != "train"}
    rows: dict[int, list[dict]] = {}
    for asked in args.draw:
        generator, direction, *counts = asked.split(":")
        directions = direction.split("+")
        drawn = draw(
            Path(generator),
            Operation.parse(f"{directions[0]}_bf16"),
            sum(map(int, counts)),
            known,
            barred,
            table,
            args.share,
            (args.gflop, args.mib),
        )
        for part, count in enumerate(map(int, counts), start=1):
            mine, drawn = drawn[:count], drawn[count:]
            rows.setdefault(part, []).extend(
                {
                    "network": "design",
                    "run": "more",
                    "layer": f"{part}.{number}",
                    "directions": direction,
                    "occurrences": 1,
                    **dict(zip(DIMS, problem.dims, strict=True)),
                }
                for number, problem in enumerate(mine, start=1)
            )
    for part, lines in rows.items():
        pd.DataFrame(lines).to_csv(f"{args.output}.{part}.csv", index=False)


if __name__ == "__main__":
    main()
