"""What ships is what was evaluated, and the published folder says how good it is."""

import learning_samples as samples
import numpy as np
import pytest
from published_models import PAGE

from tileseer.core import documents
from tileseer.core.errors import UserError
from tileseer.data.provenance import Recording, Taken
from tileseer.judge.evaluation import Evaluation
from tileseer.judge.figures import Figures, figures
from tileseer.judge.layers import read_layers
from tileseer.judge.ranking import has_pick
from tileseer.learn import model_files
from tileseer.learn.model import Model
from tileseer.problems import problem
from tileseer.serve import publication
from tileseer.serve.model_page import model_page
from tileseer.serve.selector import Selector


def test_what_is_evaluated_is_what_ships(forward):
    training, file, serving = forward
    found, whole = documents.read_document(file, Evaluation), samples.measured()
    layers = read_layers(file.with_suffix(".parquet"))
    selector = Selector.of_serving(Model.read(training), serving)
    rows = np.flatnonzero(whole.held_out & has_pick(whole))
    problems = problem.problems_of_frame(whole.problems.iloc[rows])
    dims = np.array([one.dims for one in problems])
    served = [selector.candidates[row] for row in selector.select(dims, use_known=False).candidate]
    ran = layers[layers["best_us"].notna()].set_index("problem_key")
    assert ran["pick"][whole.problems["problem_key"].iloc[rows]].tolist() == served
    assert figures(layers) == Figures(**{name: getattr(found, name) for name in Figures.model_fields})
    assert found.layers == len(rows) and found.best_of_3.mean >= found.best_of_2.mean >= found.efficiency.mean
    # Nobody timed anything of the small world twice.
    assert found.best_baseline.efficiency.mean < found.efficiency.mean and found.possible is None
    parts = [*found.by_kind.values(), *found.by_evidence.values()]
    assert all(part.sum_over_best >= 1 and part.worst_of_longest >= 1 for part in parts)
    assert found.best_baseline.speed > 1 and found.speeds == {"best fixed choice": found.best_baseline.speed}


def test_the_folder_says_what_it_is(models):
    page = (models / model_files.PAGE).read_text()
    assert "**Simulated: a formula made these times, no GPU." in page and "| forward_bf16 | " in page
    assert "None" not in page


@pytest.mark.parametrize(
    ("source", "said"),
    [({}, "(taken with: library cudnn 91900, "), ({"source": "a file"}, "(a file; taken with: library cudnn 91900, ")],
)
def test_the_page_says_where_times_are_from_and_with_what_they_were_taken(models, source, said):
    index = model_files.read_index(models)
    recording = Recording(
        arch=index.arch,
        device=index.device,
        operations=list(index.operations),
        taken=Taken(library="cudnn 91900"),
        latency="a median",
        provenance=source,
    )
    assert said in model_page(models, index, PAGE, dict.fromkeys(index.operations, recording))


@pytest.mark.parametrize(("before", "replace", "refused"), [
    ("measured", False, True), ("measured", True, False), ("simulated", False, False), ("recorded", False, False),
])  # fmt: skip
def test_models_of_a_gpu_are_not_replaced_by_simulated_ones(forward, tmp_path, before, replace, refused):
    parts = [[part] for part in forward]
    index = publication.publish_models(*parts, tmp_path / "gfx950", page=PAGE)
    text = index.model_copy(update={"device_kind": before}).model_dump_json()
    (tmp_path / "gfx950" / model_files.INDEX).write_text(text)
    if refused:
        with pytest.raises(UserError, match=r"measured times .*publish: {replace: true}"):
            publication.publish_models(*parts, tmp_path / "gfx950", page=PAGE, replace=replace)
        assert (tmp_path / "gfx950" / model_files.INDEX).read_text() == text
    else:
        made_now = publication.publish_models(*parts, tmp_path / "gfx950", page=PAGE, replace=replace)
        assert made_now.device_kind == "simulated"
