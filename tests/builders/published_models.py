"""Models of the small world of ``learning_samples``, trained, judged, served and published."""

import dataclasses
import json

import dataset_files
import learning_samples as samples
import pandas as pd
from repository import CONFIG, GPUS, ROOT

from tileseer.core import documents
from tileseer.data.dataset import Dataset
from tileseer.judge.evaluation import Context, Evaluation, evaluate
from tileseer.judge.layers import LAYERS, write_layers
from tileseer.judge.ranking import rank_held_out, rank_left_out, recipe_of
from tileseer.learn import model_files
from tileseer.learn.model import Model
from tileseer.learn.model_schema import Origin, Summary
from tileseer.learn.training import settings_for
from tileseer.problems.problem_table import USES
from tileseer.serve import publication, serving
from tileseer.serve.selector import Selector

TEMPLATE = ROOT / "workflow/templates/serving/selector.hpp.j2"
PAGE = ROOT / "workflow/templates/models.md.j2"
SMALL_SERVING = serving.ServingInputs(TEMPLATE, CONFIG / "ck_api.yaml", samples.COEFFICIENTS)
LAYER = {"N": 8, "C": 64, "K": 64, "Hi": 56, "Wi": 56, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}
"""A problem that most candidates of the small world support."""
WORD = ",".join(f"{name}={value}" for name, value in LAYER.items())


def make(folder, variant, threads=1):
    """Train, serve and evaluate one operation of the small world; return what ``publish_models`` takes of it."""
    data, product = samples.measured(variant), samples.MI355X
    return parts(folder / data.operation, data, samples.train(data, product, samples.SMALL, threads), threads)


def parts(folder, data, trained, threads=1):
    """Save what was trained, serve and evaluate it; return its training folder, evaluation and serving folder."""
    training, file, serving_folder = folder / "training", folder / "evaluation.json", folder / "serving"
    trained.save(training)
    model = Model.read(training, threads)
    serving.serve_model(data, model, SMALL_SERVING).save(serving_folder)

    def served(dims):
        return Selector.of_serving(model, serving_folder).select(dims, use_known=False).candidate

    if data.held_out.any():
        ranked = rank_held_out(model, data, served)
    else:
        ranked = rank_left_out(data, recipe_of(model, threads), model.spec.evidence)
    found, layers = evaluate(ranked, model.hardware, context())
    documents.write_document(file, found)
    write_layers(file.with_suffix(".parquet"), layers)
    return training, file, serving_folder


def context(uses=(), libraries=None):
    """What picks are evaluated with; ``uses``: rows of ``problem_table.USES``."""
    table = pd.DataFrame(list(uses), columns=USES.names)
    return Context(table, pd.DataFrame() if libraries is None else libraries)


GOOD = Summary(mean=99.0, median=100.0, p10=98.0, min=90.0)
FIGURES = {
    "layers": 2, "without_candidate": 0, "failed": 0, "covered_time": 100.0, "time_us": 1.0, "efficiency": GOOD,
    "best_of_2": GOOD, "best_of_3": GOOD, "possible": GOOD, "within_2_percent": 90.0, "by_time": 99.0,
    "sum_over_best": 1.01, "sum_possible": 1.0, "sum_without_model": 1.25, "lost_in_longest": 50.0,
    "worst_of_longest": 1.1, "harmed": 1.0, "harm_factor": 1.05,
}  # fmt: skip
"""The figures of good picks of two layers."""


def evaluation(origin, **changed):
    """An evaluation of good picks of two layers, for what only shows or copies it."""
    layer = {"network": "net", "layer": "conv", "problem": "N=1", "efficiency": 90.0}
    alone = Summary(mean=80.0, median=80.0, p10=60.0, min=10.0)
    fields = {
        **FIGURES, "basis": "layers", "candidates": 3, "timed": 100.0, "by_kind": {}, "by_evidence": {},
        "interval": [98.0, 99.5],
        "networks": [], "worst_layer": layer, "worst_long_layer": layer, "libraries": [], "possible_basis": "spread",
        "baselines": {"fixed_order": {"efficiency": alone.model_dump(), "speed": 1.25}},
        "times": {"timed": 6, "failed": "none"}, "peak_tflops": 2500.0, "memory_tb_per_s": 8.0,
    }  # fmt: skip
    return Evaluation.model_validate(dict(Origin.of(origin)) | fields | changed)


def write_evaluation(path, data):
    """Write an evaluation of good picks, and its layers: none."""
    documents.write_document(path, evaluation(data))
    write_layers(path.with_suffix(".parquet"), LAYERS.empty_table().to_pandas())


def publish(folder, variant="forward"):
    """Make and publish one operation below ``folder``; return the model directory."""
    publication.publish_models(*([part] for part in make(folder, variant)), folder / "models", page=PAGE)
    return folder / "models"


def publish_results(results, worlds):
    """Publish models of some worlds, one per operation, in results as ``tileseer ship`` reads them."""
    made = []
    for world in worlds:
        own = results / "parts" / world.operation
        path = results / "datasets" / world.arch / world.operation
        data = Dataset.read(dataset_files.dataset(path, device=world.device, world=world))
        trained = samples.train(data, samples.MI355X, samples.changed(min_child_samples=2))
        trained.save(own / "training")
        serving.serve_model(data, trained.model, SMALL_SERVING).save(own / "serving")
        write_evaluation(own / "evaluation.json", data)
        made.append((own / "training", own / "evaluation.json", own / "serving"))
    models = results / "models" / worlds[0].arch
    publication.publish_models(*map(list, zip(*made, strict=True)), models, page=PAGE)
    return models


def let_the_hashes_fit(models):
    """Write the hashes of the files as they are now into the index, as somebody would who changes a model by hand."""
    path = models / model_files.INDEX
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sha256": model_files.file_digests(models)}))


def train_on_recording(path, product, operation, one_in, arch=None, **changed):
    """Train on one in so many problems of a recording, which ``path`` then has as a dataset; return both."""
    device = GPUS[product]
    data = Dataset.read(dataset_files.part_of_recording(path, arch or device.arch, operation, one_in))
    data = data.with_estimates(device, samples.COEFFICIENTS)
    settings = settings_for(samples.SMALL.model_copy(update=changed), data)
    return data, samples.train(data, device, settings, coefficients=samples.COEFFICIENTS)


def publish_recording(folder, product, operation, one_in, arch, models=None, **changed):
    """Publish a model of part of a recording in ``folder/models``, or in ``models``; return its dataset."""
    data, trained = train_on_recording(folder / "dataset", product, operation, one_in, arch, **changed)
    trained = dataclasses.replace(trained, model=samples.with_known_kinds(trained.model))
    publication.publish_models(
        *([part] for part in parts(folder, data, trained)), models or folder / "models", page=PAGE
    )
    return data
