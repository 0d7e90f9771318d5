#!/usr/bin/env python3
"""How much a layer's fastest solver loses at more or fewer times its batch, in recordings of MIOpen's solvers.

A GPU with half the compute units stands to a layer about as the whole one to twice its batch: from this follows what
models of a sibling cost at most (``libraries/miopen/library.py``). Single timings are noisy, and only the fastest
solver of each algorithm is recorded: picks without a time do not count.
"""

import argparse
from collections import defaultdict
from itertools import permutations
from pathlib import Path

import numpy as np

from tileseer.data.dataset import Dataset
from tileseer.problems.problem import DIMS

LAYER = [name for name in DIMS if name != "N"]


def by_batch(data: Dataset) -> dict[float, list[float]]:
    """Return the efficiencies of fastest solvers at another batch, by log2 of the ratio in halves; 0 without a time."""
    efficiency, problems = data.grid(np.arange(len(data.problems))), data.problems
    best, batch = efficiency.argmax(axis=1), problems["N"].to_numpy()
    layout = problems.get("layout", "")
    found: dict[float, list[float]] = defaultdict(list)
    for _, rows in problems.assign(layout=layout).groupby([*LAYER, "layout"]).indices.items():
        for one, other in permutations(np.asarray(rows).tolist(), 2):
            found[round(2 * abs(np.log2(batch[one] / batch[other]))) / 2].append(float(efficiency[other, best[one]]))
    return found


def main() -> int:
    """Print a table in Markdown; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recordings", nargs="+", type=Path, help="config/recorded/gfx90a_miopen")
    for folder in parser.parse_args().recordings:
        every: dict[float, list[float]] = defaultdict(list)
        for operation in sorted(path.parent for path in folder.glob("*/pairs.parquet")):
            for ratio, reached in by_batch(Dataset.read(operation)).items():
                every[ratio] += reached
        print(f"\n{folder.name}\n\n| batch, factor | pairs | mean loss, points | P10 loss, points |\n|---|---|---|---|")
        for ratio, reached in sorted(every.items()):
            ran = 100 * np.array([one for one in reached if one > 0])
            print(f"| {2**ratio:.1f} | {len(ran):,} | {100 - ran.mean():.1f} | {100 - np.percentile(ran, 10):.1f} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
