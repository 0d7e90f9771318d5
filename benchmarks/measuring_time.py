#!/usr/bin/env python3
"""What some hours of measuring cuDNN's plans are worth, replayed from the recording of an H200.

    python benchmarks/measuring_time.py

The pairs are taken in the order in which the benchmark stage measures them, until a time is spent. There are two rates:
what the workflow took for a pair on an H200 (gpu/logs/more, with operands, references and checks), and 45 ms. The
validation problems of the recording take their share. Prints, for the model of each time, the share of the room between
cuDNN's first plan and the fastest one (sums of logarithms) that the fastest of the first plan and the model's first two
has, each timed without error.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from tileseer.data.dataset import Dataset
from tileseer.facts.hardware import read_hardware
from tileseer.facts.model import ModelSettings
from tileseer.learn import own_choice, ranking
from tileseer.learn.cross_validation import Prepared
from tileseer.learn.features import Features
from tileseer.learn.learner import Recipe, learner_of
from tileseer.learn.model import Model
from tileseer.learn.rows import training_pairs
from tileseer.learn.training import settings_for
from tileseer.measure.batch import draw_order

CONFIG = Path(__file__).parents[1] / "config"
ARCH = "sm_90_cudnn"
RECORDED_MS = {"forward": 14.1, "bwd_data": 14.7, "bwd_weight": 19.3}
SLOW_MS = 45.0
"""About six hours for all plans of 1,400 problems and six operations."""
SHARE_OF_FIRST_TIMES = 0.9
"""Of a budget; the rest repeats pairs."""


def measured(dataset: Dataset, seconds: float, pair_ms: float, seed: int) -> Dataset:
    """Return the dataset with the training pairs that some seconds of measuring give."""
    order = draw_order(dataset.problem, dataset.candidate, dataset.held_out, seed)
    kept = np.zeros(len(order), bool)
    kept[order[: int(seconds * SHARE_OF_FIRST_TIMES / pair_ms * 1000)]] = True
    return dataset.only(kept & dataset.trains[dataset.problem])


def model_of(dataset: Dataset, whole: Dataset, seed: int) -> Model:
    """Return the model of a dataset, which may have another data type besides."""
    gpu = read_hardware(CONFIG / "hardware.yaml", whole.device)
    settings = settings_for(ModelSettings(seed=seed).parameters, whole)
    recipe = Recipe(Features.of(settings.features, gpu), settings)
    prepared = Prepared.by(recipe, training_pairs(dataset))
    model = learner_of(recipe).fit(prepared.made, np.ones(int(prepared.teaching.sum()), bool))
    assert isinstance(model, Model)
    return model.with_pool(recipe.offers(prepared.pairs) & model.pool["candidate"].isin(whole.candidates["candidate"]))


def share_of_room(model: Model, whole: Dataset, count: int = 2) -> float:
    """Return the share of the room that the first plan and the model's ``count`` first have."""
    own = own_choice.library_choices(whole)
    assert own is not None
    rows = np.flatnonzero(whole.held_out & (own != own_choice.NONE))
    offered = own_choice.offered(whole)[rows][:, ranking.positions(whole, model)]
    scores = model.predict(whole.problems.iloc[rows], whole.candidates, offered=offered)
    reached = whole.grid(rows)
    first = reached[np.arange(len(rows)), own[rows]]
    listed = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    best = np.take_along_axis(np.where(np.isfinite(scores), reached, 0.0), listed, axis=1).max(axis=1)
    return float(np.log(np.maximum(best, first) / first).sum() / -np.log(first).sum())


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, nargs="+", default=[9, 18, 36], help="of one operation")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    print(
        "| operation | minutes | rate | training problems | share of the room, % | of that of the whole recording, % |"
    )
    print("|---|---|---|---|---|---|")
    for direction, recorded_ms in RECORDED_MS.items():
        whole, other = (Dataset.read(CONFIG / "recorded" / ARCH / f"{direction}_{name}") for name in ("bf16", "fp16"))
        seeds = range(1, args.seeds + 1)
        best = np.mean([share_of_room(model_of(whole.followed_by(other), whole, seed), whole) for seed in seeds])
        print(f"| {direction} | | all, both data types | {whole.trains.sum()} | {100 * best:.1f} | 100 |", flush=True)
        for minutes in args.minutes:
            for rate in (recorded_ms, SLOW_MS):
                parts = [measured(whole, minutes * 60, rate, seed) for seed in seeds]
                share = np.mean(
                    [share_of_room(model_of(part, whole, seed), whole) for part, seed in zip(parts, seeds, strict=True)]
                )
                problems = np.mean([len(np.unique(part.problem)) for part in parts])
                line = f"{minutes:g} | {rate:g} ms | {problems:.0f} | {100 * share:.1f} | {100 * share / best:.1f}"
                print(f"| {direction} | {line} |", flush=True)


if __name__ == "__main__":
    main()
