#!/usr/bin/env python3
"""What another trainer is worth: models of one dataset, on its validation problems.

Trains with the settings of this release and compares the picks, problem by problem, with those of a model that another
release trained on the same dataset. Of that model only the trees and the pool are read, with the offset that earlier
releases added for a candidate. Prints a line for each and their difference with its 95 % interval.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd

from tileseer.data.dataset import Dataset
from tileseer.facts import hardware
from tileseer.facts.model import TrainingParameters
from tileseer.learn import efficiency, model_files, ranking
from tileseer.learn.features import Features, feature_set
from tileseer.learn.learner import Recipe
from tileseer.learn.model import Model
from tileseer.learn.model_schema import Summary
from tileseer.learn.training import settings_for, train

CONFIG = Path(__file__).parents[1] / "config"


def main() -> None:
    """Train and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True, type=Path)
    parser.add_argument("--product", help="default: the device of the dataset")
    parser.add_argument("--other", type=Path, help="training folder of another release, of the same dataset")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of training")
    args = parser.parse_args()

    data = Dataset.read(args.dataset)
    product = hardware.read_hardware(CONFIG / "hardware.yaml", args.product or data.device)
    changes = dict(one.split("=", 1) for one in args.set)
    settings = settings_for(TrainingParameters.model_validate(changes, strict=False), data)
    started = time.process_time()
    features = Features.of(settings.features, product)
    trained = train(data, Recipe(features, settings))
    seconds = time.process_time() - started
    new = picked(data, trained.model)
    print(f"{data.arch} {data.operation} ({data.device_kind}), {len(new)} problems, mean / median / p10 / min, %")
    unseen = Summary.of(trained.crossed.picks["efficiency"].to_numpy())
    print(f"this release: {figures(new)}, {seconds:.1f} CPU s, out of fold {unseen}")
    if args.other:
        old = picked(data, other(args.other, trained.model))
        print(f"other: {figures(old)}")
        print(f"this - other: {100 * (new - old).mean():+.2f} points {efficiency.interval_of_mean(new - old)}")


def picked(data: Dataset, model: Model) -> np.ndarray:
    """The efficiency of the picks on the validation problems."""
    return ranking.rank_held_out(model, data).picked


def other(folder: Path, like: Model) -> Model:
    """A model of another release as one of this: its trees on the columns that it names, its pool."""
    booster = lightgbm.Booster(model_file=str(folder / model_files.MODEL))
    known = feature_set(like.spec.feature_set).names
    missing = sorted(set(booster.feature_name()) - set(known))
    if missing:
        raise SystemExit(f"{folder}: this release has no feature {missing[0]}")
    pool = pd.read_parquet(folder / model_files.CANDIDATES)
    offset = pool["offset"].to_numpy() if "offset" in pool else np.zeros(len(pool))
    spec = like.spec.model_copy(update={"feature_names": booster.feature_name()})
    return WithOffset(spec, booster.model_to_string(), pool, like.hardware, offset=offset)


class WithOffset(Model):
    """A model that adds an offset of each candidate."""

    def __init__(self, *fields, offset: np.ndarray) -> None:
        """Take the fields of ``Model`` and the offsets [Q]."""
        super().__init__(*fields)
        object.__setattr__(self, "offset", offset)

    def score_pairs(self, problems, problem, candidate, threads=1) -> np.ndarray:
        """Trees and offset."""
        return super().score_pairs(problems, problem, candidate, threads) + self.offset[candidate]


def figures(values: np.ndarray) -> str:
    """Mean, median, 10th percentile and minimum of efficiencies."""
    return " / ".join(
        f"{100 * value:.2f}" for value in (values.mean(), np.median(values), np.quantile(values, 0.1), values.min())
    )


if __name__ == "__main__":
    main()
