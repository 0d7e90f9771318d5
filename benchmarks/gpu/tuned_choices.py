"""Judge the choices of ``tileseer tune`` by a recording of all candidates on the same GPU.

    python benchmarks/gpu/tuned_choices.py benchmarks/gpu/logs/tune config/recorded/sm_90_cudnn

On the GPU, with a problem file of 40 layers of the validation networks for each direction, and the model of the
recording: ``tileseer tune results/models/sm_90_cudnn --problems FILE --variant DIRECTION --device gpu``.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.problems.problem import DIMS

SLOWER = 0.02


def main() -> None:
    """Print a line for each operation that was tuned."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tuned", type=Path)
    parser.add_argument("recording", type=Path)
    args = parser.parse_args()
    for path in sorted(args.tuned.glob("*.tsv")):
        gains = gains_of(path, args.recording / path.stem)
        possible, gained = np.log(gains).sum(axis=0)
        print(
            f"{path.stem}: {len(gains)} layers, own choice / best {np.exp(possible / len(gains)):.4f}, own choice / "
            f"tuned {np.exp(gained / len(gains)):.4f}: {gained / possible:.1%} of the room; slower by {SLOWER:.0%}: "
            f"{np.mean(gains[:, 1] < 1 / (1 + SLOWER)):.1%}"
        )


def gains_of(tuned: Path, recording: Path) -> np.ndarray:
    """Recorded time of the library's own choice over the best's and over the tuned choice's, float64 [layers, 2]."""
    problems = pd.read_parquet(recording / "problems.parquet").reset_index(names="problem")
    names = pd.read_parquet(recording / "kernels.parquet")["kernel"]
    times = pd.read_parquet(recording / "pairs.parquet").query("status == 'ok'")
    times["candidate"] = times["kernel"].map(names)
    chosen = pd.read_csv(tuned, sep="\t").merge(problems, on=list(DIMS))[["problem", "candidate"]]
    own = times.sort_values("rank").groupby("problem")["median_us"].first()
    best = times.groupby("problem")["median_us"].min()
    rows = chosen.merge(times, on=["problem", "candidate"])
    first = own[rows["problem"]].to_numpy(float)
    return np.stack([first / best[rows["problem"]].to_numpy(float), first / rows["median_us"].to_numpy(float)], axis=1)


if __name__ == "__main__":
    main()
