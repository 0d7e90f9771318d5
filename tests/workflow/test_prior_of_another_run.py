"""A prior as part of the workflow."""

import json
import shutil

import small_workflow

from tileseer.core.atomic import write_text
from tileseer.core.seal import file_digest

TRAINING, MODELS = "results/training/gfx950/forward_bf16", "results/models/gfx950"


def test_a_prior_is_corrected_and_its_content_counts(copy):
    shutil.copytree(copy.folder / TRAINING, copy.folder / "priors/first")
    copy.configure(model={**small_workflow.CONFIG["model"], "prior": "priors/first"})
    run = copy.make(MODELS)
    assert (run.jobs["model"], run.measured) == (1, 0)
    manifest = json.loads(copy.read(f"{TRAINING}/train_manifest.json"))
    assert manifest["prior"]["device_kind"] == "simulated"
    assert not copy.make(MODELS).jobs
    # Another prior in the same place is another model.
    spec = json.loads(copy.read("priors/first/feature_spec.json"))
    write_text(copy.folder / "priors/first/feature_spec.json", json.dumps({**spec, "device": "another"}))
    listed = json.loads(copy.read("priors/first/train_manifest.json"))
    listed["files"]["feature_spec.json"] = file_digest(copy.folder / "priors/first/feature_spec.json")
    write_text(copy.folder / "priors/first/train_manifest.json", json.dumps(listed))
    assert copy.make(f"{TRAINING}/train_manifest.json").jobs["model"] == 1
    assert json.loads(copy.read(f"{TRAINING}/train_manifest.json"))["prior"]["device"] == "another"
