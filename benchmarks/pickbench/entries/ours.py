"""Tileseer's learner, as `tileseer run` trains it; one model an operation."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from tileseer.data.dataset import Dataset
from tileseer.facts.hardware import read_hardware
from tileseer.facts.model import ModelSettings
from tileseer.learn.features import Features
from tileseer.learn.learner import Recipe, learner_of
from tileseer.learn.rows import training_pairs
from tileseer.learn.training import Prepared, prior_of, settings_for
from tileseer.libraries.costs.coefficients import load_coefficients

CONFIG = Path(__file__).parents[3] / "config"
MODELS = {}


def learn(problems, candidates, milliseconds):
    """Train on the problems that may be learnt from."""
    coefficients = load_coefficients(CONFIG / "simulated_device.yaml")
    for (folder, operation), rows in problems.groupby(["recording", "operation"]):
        data = Dataset.read(Path(folder) / operation)
        gpu = read_hardware(CONFIG / "hardware.yaml", data.device)
        taught = data.problems["problem_key"].isin(rows["problem_key"])
        split = np.where(taught, "train", "validation")
        data = replace(data, problems=data.problems.assign(split=split)).with_estimates(gpu, coefficients)
        settings = settings_for(ModelSettings(), data)
        recipe = Recipe(Features.of(settings.features, gpu), settings, prior_of(settings, operation, coefficients))
        prepared = Prepared.by(recipe, training_pairs(data))
        model = learner_of(recipe).fit(prepared.made, np.ones(prepared.teaching.sum(), bool))
        MODELS[operation] = model, data.candidates


def pick(problems, candidates):
    """Return the scores of the models."""
    scores = np.full(len(problems), np.nan)
    for operation, rows in problems.groupby("operation"):
        model, known = MODELS[operation]
        place = known.reset_index(drop=True).reset_index().set_index("candidate")["index"]
        column = candidates["candidate"].loc[rows.index].map(place)
        rows, column = rows[column.notna()], column.dropna().astype(int)
        each = rows.drop_duplicates("problem_key").reset_index(drop=True)
        number = rows["problem_key"].map(dict(zip(each["problem_key"], each.index, strict=True)))
        offered = np.zeros((len(each), len(known)), bool)
        offered[number, column] = True
        scores[rows.index] = model.score(each, known, offered)[number, column]
    return scores
