#!/usr/bin/env python3
"""What bounds the picks on a recording of MIOpen's solvers: the noise of one timing, and how many layers taught.

    python benchmarks/solver_limits.py config/recorded/gfx942_miopen --device gfx942_mi300x

The first table needs times of the same pairs in the folder ``earlier``. Its noise is what a regression of their ratio
on layer and solver cannot explain on layers left out, over the root of 2: at most so much does one timing differ by
itself. The selector that knows every true time would have the efficiency ``perfect``. The second table leaves a fifth
of the layers out, and lets shares of the others teach.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import lightgbm
import numpy as np

from tileseer.data.dataset import Dataset
from tileseer.facts.hardware import Hardware, read_hardware
from tileseer.facts.model import TrainingParameters
from tileseer.learn.boosting import Boosting
from tileseer.learn.cross_validation import LAYER_FOLDS, deal
from tileseer.learn.features import Features
from tileseer.learn.learner import Recipe
from tileseer.learn.left_out import layers_of
from tileseer.learn.noise_floor import of_errors
from tileseer.learn.rows import training_pairs
from tileseer.learn.training import settings_for
from tileseer.serve.drift import NORMAL, pairs_of_both

SHARES = (0.1, 0.25, 0.5, 1.0)
REGRESSION = {"objective": "l1", "feature_fraction": 0.5, "num_threads": 1, "seed": 1, "verbosity": -1}


def folds(dataset: Dataset) -> np.ndarray:
    """Return the fold of each problem, int [P]; no two have one layer."""
    return deal(layers_of(dataset.problems), dataset.problem, LAYER_FOLDS, seed=1)


def noise_row(dataset: Dataset, earlier: Dataset, features: Features) -> str:
    """Return pairs timed twice, robust deviation of the ratio, noise of one timing, and the selector it leaves."""
    both = pairs_of_both(earlier, dataset)
    problem, candidate = both["row"].to_numpy(), both["column"].to_numpy()
    ratio = np.log((both["ms_before"] / both["ms"]).to_numpy())
    matrix = features.matrix(dataset.problems, dataset.candidates, problem, candidate)
    fold, explained = folds(dataset)[problem], np.empty(len(ratio))
    for one in range(LAYER_FOLDS):
        rows = lightgbm.Dataset(matrix[fold != one], ratio[fold != one], params=REGRESSION)
        explained[fold == one] = lightgbm.train(REGRESSION, rows).predict(matrix[fold == one], num_threads=1)
    spreads = [NORMAL * float(np.median(np.abs(each - np.median(each)))) for each in (ratio, ratio - explained)]
    noise = spreads[1] / np.sqrt(2)
    measured = dataset.grid(np.unique(problem))
    perfect = of_errors(measured, np.full(measured.shape, noise))
    return f"{len(both):,} | {spreads[0]:.3f} | {noise:.3f} | {100 * perfect.mean():.2f}"


def share_cells(dataset: Dataset, recipe: Recipe) -> str:
    """Return mean and P10 of the picks on layers left out, after each of the ``SHARES`` of the others."""
    learner, fold = Boosting(recipe), folds(dataset)
    prepared, rows = learner.prepare(dataset), np.flatnonzero(fold == 0)
    names, number = np.unique(layers_of(dataset.problems), return_inverse=True)
    place = np.random.default_rng(1).random(len(names))[number]
    offered, cells = dataset.grid(rows) > 0, []
    for share in SHARES:
        teaches = (fold != 0) & (place < share)
        model = learner.fit(prepared, dataset.ok & teaches[dataset.problem])
        scores = model.score(dataset.problems.iloc[rows], dataset.candidates, offered)
        pick = np.where(offered, scores, -np.inf).argmax(axis=1)
        reached = 100 * dataset.grid(rows)[np.arange(len(rows)), pick]
        cells.append(f"{reached.mean():.2f} / {np.quantile(reached, 0.1):.1f}")
    return " | ".join(cells)


def recipe_of(dataset: Dataset, gpu: Hardware) -> Recipe:
    """Return how the published model of a recording is trained."""
    settings = settings_for(TrainingParameters(), dataset)
    return Recipe(Features.of(settings.features, gpu), settings)


def main() -> None:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--device", required=True, help="product of config/hardware.yaml")
    args = parser.parse_args()
    gpu = read_hardware(Path(__file__).parents[1] / "config/hardware.yaml", args.device)
    noise, shares = [], []
    for folder in sorted(path.parent for path in args.recording.glob("*/pairs.parquet")):
        dataset = training_pairs(Dataset.read(folder))
        recipe, earlier = recipe_of(dataset, gpu), args.recording / "earlier" / folder.name
        if earlier.exists():
            noise.append(f"| {folder.name} | {noise_row(dataset, Dataset.read(earlier), recipe.features)} |")
        shares.append(f"| {folder.name} | {share_cells(dataset, recipe)} |")
    print("| operation | pairs timed twice | deviation of the ratio | noise of one timing | perfect |")
    print("|---|---|---|---|---|")
    print(*noise, sep="\n")
    print(f"\n| operation | {' | '.join(f'{share:.0%}' for share in SHARES)} |\n|---|---|---|---|---|")
    print(*shares, sep="\n")


if __name__ == "__main__":
    main()
