"""The reference's trainer beside ours, and a prior, as parts of the workflow."""

import json
import shutil

import small_workflow

from tileseer.core.atomic import write_text

TRAINING = "results/training/gfx950/forward_bf16"
REPORT = "results/validation/gfx950/forward_bf16.json"


def test_the_reference_is_trained_once_and_compared(copy):
    copy.configure(validation={"studies": ["learning_curve", "reference_trainer"]})
    run = copy.make()
    assert (run.computed["baseline"], run.computed["validation"], run.computed["model"], run.measured) == (1, 1, 0, 0)
    report = json.loads(copy.read(REPORT))
    theirs = json.loads(copy.read("results/baseline/gfx950/forward_bf16/feature_spec.json"))
    assert theirs["training_rows"] == json.loads(copy.read(f"{TRAINING}/train_manifest.json"))["training_rows"]
    assert report["reference_trainer"]["efficiency"]["mean"] > 0
    assert "learning_curve" in report
    assert not copy.make().jobs


def test_a_prior_is_corrected_and_its_content_counts(copy):
    shutil.copytree(copy.folder / TRAINING, copy.folder / "priors/first")
    copy.configure(model={**small_workflow.CONFIG["model"], "prior": "priors/first"})
    run = copy.make()
    assert (run.computed["model"], run.measured) == (1, 0)
    manifest = json.loads(copy.read(f"{TRAINING}/train_manifest.json"))
    assert manifest["prior"]["device_kind"] == "simulated"
    report = json.loads(copy.read(REPORT))
    curve = report["transfer"]
    assert curve["shares"][0]["share"] == curve["shares"][0]["pairs"] == curve["seen_by_prior"] == 0
    assert curve["noise_floor"]["perfect_model"] == report["noise_floor"]["perfect_model"]["efficiency"]
    page = copy.read("results/reports/gfx950.html").decode()
    assert "prior of forward_bf16 gfx950 (simulated)" in page
    assert f"{curve['shares'][0]['with_prior']['efficiency']['mean']:.1f}" in page
    assert not copy.make().jobs
    # Another prior in the same place is another model.
    spec = json.loads(copy.read("priors/first/feature_spec.json"))
    write_text(copy.folder / "priors/first/feature_spec.json", json.dumps({**spec, "device": "another"}))
    assert copy.make(f"{TRAINING}/train_manifest.json").computed["model"] == 1
    assert json.loads(copy.read(f"{TRAINING}/train_manifest.json"))["prior"]["device"] == "another"
