"""Models of the small world of ``learning_samples``, trained, judged, served and published."""

import json

import dataset_files
import learning_samples as samples
import pandas as pd

from tileseer.config.model import ServingParameters
from tileseer.core import documents
from tileseer.dataset.dataset import Dataset
from tileseer.gpus import hardware
from tileseer.learn import model_files
from tileseer.learn.left_out import left_out, recipe_of
from tileseer.learn.model import Model
from tileseer.learn.model_schema import Origin, Summary
from tileseer.learn.training import settings_for
from tileseer.learn.validation import Context, report_of, validate_model
from tileseer.learn.validation_report import Validation
from tileseer.problems.problem_table import USES
from tileseer.serve import publication, serving
from tileseer.serve.evaluation import Evaluation, LayerEvaluation

TEMPLATE = samples.CONFIG.parent / "workflow/templates/serving/selector.hpp.j2"
PAGE = samples.CONFIG.parent / "workflow/templates/models.md.j2"
SMALL_SERVING = serving.ServingInputs(
    TEMPLATE, samples.CONFIG / "ck_api.yaml", samples.coefficients(), ServingParameters()
)
LAYER = {"N": 8, "C": 64, "K": 64, "Hi": 56, "Wi": 56, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}
"""A problem that most candidates of the small world support."""
WORD = ",".join(f"{name}={value}" for name, value in LAYER.items())


def make(folder, variant, threads=1):
    """Train, validate and serve one operation; return its training folder, its report and its serving folder."""
    data, product = samples.measured(variant), samples.product()
    trained = samples.train(data, product, samples.SMALL, threads)
    training = folder / "training" / data.operation
    trained.save(training)
    report = folder / f"{data.operation}.json"
    documents.write_document(report, validate_model(trained.model, data, threads=threads))
    return training, report, serve(folder, variant, training, report, threads)


def serve(folder, variant, training, report, threads=1):
    """Make the serving folder of a training of the small world and its report; return it."""
    data = samples.measured(variant)
    model = Model.read(training)
    validation = documents.read_document(report, Validation)
    served = serving.serve_model(data, model, SMALL_SERVING, threads, evaluation_inputs(validation))
    served.save(folder / "serving" / data.operation)
    return folder / "serving" / data.operation


def evaluation_inputs(report, uses=(), libraries=None):
    """What picks are evaluated with; ``uses``: rows of ``problem_table.USES``."""
    table = pd.DataFrame(list(uses), columns=USES.names)
    return serving.EvaluationInputs(report, table, pd.DataFrame() if libraries is None else libraries)


def evaluation(origin, **changed):
    """An evaluation of good picks of two layers, for what only shows or copies it."""
    good = Summary(mean=99.0, median=100.0, p10=98.0, min=90.0)
    layer = LayerEvaluation(network="net", layer="conv", problem="N=1", pick="kernel", efficiency=90.0)
    fields = {
        "basis": "layers", "layers": 2, "without_candidate": 0, "covered_layers": 100.0, "covered_time": 100.0,
        "first": good, "best_of_2": good, "best_of_3": good, "by_time": 99.0, "networks": [], "worst_layer": layer,
        "without_model": Summary(mean=80.0, median=80.0, p10=60.0, min=10.0), "possible": good, "libraries": [],
    }  # fmt: skip
    return Evaluation(**dict(Origin.of(origin)), **(fields | changed))


def publish(folder, variant="forward"):
    """Make and publish one operation below ``folder``; return the model directory."""
    training, report, served = make(folder, variant)
    publication.publish_models([training], [report], [served], folder / "models", page=PAGE)
    return folder / "models"


def publish_results(results, worlds):
    """Publish models of some worlds, one per operation, in results as ``tileseer ship`` reads them."""
    parts = []
    for world in worlds:
        own = results / "parts" / world.operation
        path = results / "datasets" / world.arch / world.operation
        data = Dataset.read(dataset_files.dataset(path, device=world.device, world=world))
        trained = samples.train(data, samples.product(), samples.changed(min_child_samples=2))
        trained.save(own / "training")
        serving.serve_model(data, trained.model, SMALL_SERVING).save(own / "serving")
        documents.write_document(own / "serving" / model_files.EVALUATION, evaluation(data))
        # Publishing reads of a report whose it is.
        documents.write_document(own / "validation.json", trained.manifest)
        parts.append((own / "training", own / "validation.json", own / "serving"))
    models = results / "models" / worlds[0].arch
    publication.publish_models(*map(list, zip(*parts, strict=True)), models, page=PAGE)
    return models


def let_the_hashes_fit(models):
    """Write the hashes of the files as they are now into the index, as somebody would who changes a model by hand."""
    path = models / model_files.INDEX
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sha256": model_files.file_digests(models)}))


def train_on_recording(path, product, operation, one_in, arch=None, **changed):
    """Train on one in so many problems of a recording, which ``path`` then has as a dataset; return both."""
    device = hardware.read_hardware(samples.CONFIG / "hardware.yaml", product)
    data = Dataset.read(dataset_files.part_of_recording(path, arch or device.arch, operation, one_in))
    data = data.with_estimates(device, samples.coefficients())
    settings = settings_for(samples.SMALL.model_copy(update=changed or {"min_child_samples": 5}), data)
    return data, samples.train(data, device, settings, coefficients=samples.coefficients())


def publish_recording(folder, product, operation, one_in, arch):
    """Publish a model of one in so many problems of a recording without validation; return its dataset."""
    data, trained = train_on_recording(folder / "dataset", product, operation, one_in, arch)
    trained.save(folder / "training")
    scored = left_out(data, recipe_of(trained.model, 1))
    report = report_of(scored, trained.model.hardware, Context())
    documents.write_document(folder / "report.json", report)
    served = serving.serve_model(data, trained.model, SMALL_SERVING, 1, evaluation_inputs(report))
    served.save(folder / "serving")
    parts = [folder / "training"], [folder / "report.json"], [folder / "serving"]
    publication.publish_models(*parts, folder / "models", page=PAGE)
    return data
