"""The published directory: complete, reproducible, and refused when it was changed."""

import json
import shutil

import learning_samples as samples
import pytest

from tilewright import evaluate, learn, parquet, publish
from tilewright.atomic import write_text
from tilewright.errors import UserError
from tilewright.selection import Selector, load_booster
from tilewright.serving import artefacts
from tilewright.settings.serving import ServingSettings

OPERATIONS = ("forward", "bwd_weight")
TEMPLATE = samples.CONFIG.parent / "workflow/templates/serving/selector.hpp.j2"
API = samples.CONFIG / "ck_api.yaml"
SMALL_SERVING = ServingSettings(trees=12, num_leaves=15, max_depth=6, short_lists=[[4, 4]])


def make(folder, variant):
    """Train and validate one operation; return its training folder and its report."""
    data, product = samples.measured(variant), samples.product()
    trained = learn.train(data, product, samples.SMALL)
    training = folder / "training" / data.operation
    publish.write_training(training, trained, product)
    booster = load_booster(training / publish.MODEL, trained.spec)
    ranking = evaluate.rank_pool(data, booster, trained.spec, trained.candidates, product)
    report = folder / f"{data.operation}.json"
    report.write_text(publish.json_text(evaluate.evaluate(data, *ranking, product)))
    return training, report, serve(folder, variant, training)


def serve(folder, variant, training):
    """Make the serving folder of a training of the small world; return it."""
    data = samples.measured(variant)
    spec = json.loads((training / publish.SPEC).read_text())
    pool = parquet.read(training / publish.CANDIDATES).to_pandas()
    booster = load_booster(training / publish.MODEL, spec)
    unseen = parquet.read(training / publish.OUT_OF_FOLD).to_pandas()
    served = artefacts.build(
        data, booster, spec, pool, unseen, samples.product(), TEMPLATE, API, samples.coefficients(), SMALL_SERVING
    )
    publish.write_serving(folder / "serving" / data.operation, served)
    return folder / "serving" / data.operation


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    trainings, reports, servings = zip(*(make(folder, variant) for variant in OPERATIONS), strict=True)
    return list(trainings), list(reports), list(servings)


@pytest.fixture
def models(made, tmp_path):
    publish.publish(*made, tmp_path / "models" / "gfx950")
    return tmp_path / "models" / "gfx950"


def content(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_what_is_published(models):
    index = publish.verify(models)
    folder = models / "grouped_conv_forward_bf16_gfx950"
    assert {p.name for p in folder.iterdir()} == {
        *publish.TRAINING_FILES, *publish.SERVING_FILES, publish.VALIDATION
    }  # fmt: skip
    assert (index["arch"], index["device_kind"]) == ("gfx950", "simulated")
    assert set(index["operations"]) == {"forward_bf16", "bwd_weight_bf16"}
    spec = json.loads((folder / publish.SPEC).read_text())
    assert spec["op_type"] == "grouped_conv"
    assert spec["log_targets"] == ["tflops"]
    assert spec["target"] == "relative"
    assert json.loads((folder / publish.MANIFEST).read_text())["device_kind"] == "simulated"


def test_publishing_again_gives_the_same_bytes_in_any_order(made, models, tmp_path):
    trainings, reports, servings = made
    publish.publish(trainings[::-1], reports, servings, tmp_path / "again")
    assert content(tmp_path / "again") == content(models)
    before = content(models)
    publish.publish(trainings, reports, servings, models)
    assert content(models) == before
    assert [p.name for p in models.parent.iterdir()] == ["gfx950"]


def test_files_name_no_place(models, tmp_path):
    for name, data in content(models).items():
        assert str(tmp_path).encode() not in data, name


@pytest.mark.parametrize("name", [publish.MODEL, publish.CANDIDATES, publish.VALIDATION, publish.SPEC])
def test_a_changed_file_is_refused(models, name):
    path = models / "grouped_conv_forward_bf16_gfx950" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=name):
        publish.verify(models)


def test_a_missing_and_a_foreign_file_are_refused(models):
    path = models / "grouped_conv_forward_bf16_gfx950" / publish.SPEC
    kept = path.read_bytes()
    path.unlink()
    with pytest.raises(UserError, match="missing"):
        publish.verify(models)
    path.write_bytes(kept)
    (models / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"notes\.txt"):
        publish.verify(models)


def test_what_is_no_model_directory_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"index\.json"):
        publish.verify(tmp_path)
    (tmp_path / "index.json").write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        publish.verify(tmp_path)


def test_a_report_of_another_operation_is_refused(made, tmp_path):
    trainings, reports, servings = made
    with pytest.raises(UserError, match="forward_bf16"):
        publish.publish(trainings[:1], reports[1:], servings[:1], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.iterdir())


def test_kinds_of_device_are_not_mixed(made, tmp_path):
    trainings, reports, servings = made
    other = tmp_path / "other"
    shutil.copytree(trainings[1], other)
    spec = json.loads((other / publish.SPEC).read_text())
    write_text(other / publish.SPEC, json.dumps({**spec, "device_kind": "measured"}), sealed=True)
    with pytest.raises(UserError, match="device_kind"):
        publish.publish([trainings[0], other], reports, servings, tmp_path / "out")


def test_a_training_without_its_model_is_refused(made, tmp_path):
    trainings, reports, servings = made
    other = tmp_path / "other"
    shutil.copytree(trainings[0], other)
    (other / publish.MODEL).unlink()
    with pytest.raises(UserError, match=r"model_tflops\.lgbm"):
        publish.publish([other], reports[:1], servings[:1], tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (publish.SPEC, '"operation": "forward_bf16"', '"operation": "forward_fp16"', "operation is 'forward_fp16'"),
        (publish.SPEC, '"tile_m"', '"tile_x"', "features are not those"),
        (publish.SERVING, '"arch": "gfx950"', '"arch": "gfx942"', "arch is 'gfx942'"),
        (publish.HARDWARE, '"arch": "gfx950"', '"arch": "gfx942"', "arch is gfx942"),
        (publish.HARDWARE, '"compute_units"', '"units"', "compute_units"),
        (publish.SERVED_MODEL, "tile_m", "tile_x", "features are not those"),
    ],
)
def test_parts_that_do_not_fit_are_refused_even_with_new_hashes(models, name, old, new, message):
    path = models / "grouped_conv_forward_bf16_gfx950" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    index = json.loads((models / publish.INDEX).read_text())
    index["sha256"] = publish._hashes(models)
    (models / publish.INDEX).write_text(json.dumps(index))
    with pytest.raises(UserError, match=message):
        Selector.load(models, "forward_bf16")


def test_a_table_without_a_column_and_another_arch_are_refused(models):
    path = models / "grouped_conv_forward_bf16_gfx950" / publish.CANDIDATES
    with pytest.raises(UserError, match="for gfx950, not for gfx942"):
        Selector.load(models, "forward_bf16", arch="gfx942")
    parquet.write(parquet.read(path).drop_columns(["offset"]), path)
    index = json.loads((models / publish.INDEX).read_text())
    index["sha256"] = publish._hashes(models)
    (models / publish.INDEX).write_text(json.dumps(index))
    with pytest.raises(UserError, match="column offset is missing"):
        Selector.load(models, "forward_bf16")


@pytest.mark.parametrize(
    "change",
    [
        {"format": 1},
        {"device_kind": "guessed"},
        {"operations": {"forward_bf16": {"folder": "../elsewhere"}}},
        {"sha256": {"a": "b"}},
    ],
)
def test_an_index_that_does_not_fit_is_refused(models, change):
    index = json.loads((models / publish.INDEX).read_text())
    (models / publish.INDEX).write_text(json.dumps(index | change))
    with pytest.raises(UserError, match=r"index\.json"):
        publish.verify(models)


def test_models_are_text_or_arrow(models):
    for name, data in content(models).items():
        assert data.startswith(b"PAR1") if name.endswith(".parquet") else "\0" not in data.decode(), name
