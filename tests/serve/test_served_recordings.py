"""What a dispatcher runs of recordings: models with categorical splits, kernels of which none is said to fit."""

import learning_samples as samples
import numpy as np
import pytest
from cpp_selectors import SHAPES, assert_cpp_picks_alike, random_shapes
from published_models import SMALL_SERVING

from tileseer.core import parquet
from tileseer.dataset import recording
from tileseer.dataset.dataset import Dataset
from tileseer.gpus import hardware
from tileseer.learn import model_files, trees
from tileseer.learn import training as model_stage
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS
from tileseer.serve import serving as stage

RECORDINGS = [("gfx942_miopen", "gfx942_mi300x", "forward_fp16"), ("gfx950_mi355x", "gfx950_mi355x", "forward_bf16")]


@pytest.mark.parametrize(("arch", "product", "operation"), RECORDINGS)
def test_the_header_picks_what_python_picks_to_the_last_bit(tmp_path, arch, product, operation):
    device = hardware.read_hardware(samples.CONFIG / "hardware.yaml", product)
    table = recording.recorded_dataset(samples.CONFIG / "recorded" / arch, Operation.parse(operation), device)
    numbers = table["problem_key"].dictionary_encode().combine_chunks().indices.to_numpy()
    parquet.write_table(table.filter(numbers % 8 == 0), tmp_path / "dataset.parquet")
    data = Dataset.read(tmp_path / "dataset.parquet")
    settings = model_stage.settings_for(samples.SMALL.model_copy(update={"min_child_samples": 5}), data)
    trained = samples.train(data, device, settings, coefficients=samples.coefficients())
    categorical = sum(tree.categorical.sum() for tree in trees.nodes(trained.model.text))
    assert (categorical > 0) == (settings.features == "miopen")
    served = stage.build(data, trained.model, trained.out_of_fold, SMALL_SERVING)
    header = tmp_path / f"models/grouped_conv_{operation}_{arch}" / model_files.SELECTOR
    header.parent.mkdir(parents=True)
    header.write_text(served.header)
    shapes = np.concatenate([random_shapes(SHAPES), data.problems[list(DIMS)].to_numpy(np.int64)])
    picks = assert_cpp_picks_alike(tmp_path, served.selector, shapes)
    assert (picks.candidate >= 0).mean() > 0.2
