"""What a dispatcher runs of recordings: models with categorical splits, kernels of which none is said to fit."""

import learning_samples as samples
import numpy as np
import pytest
from test_publish import API, SMALL_SERVING, TEMPLATE
from test_serving import SHAPES, picks_of_cpp, random_shapes

from tileseer.conv.operation import Operation
from tileseer.conv.problem import DIMS
from tileseer.core import parquet
from tileseer.dataset import recording, schema
from tileseer.gpu import hardware
from tileseer.model import model_files, trainer, trees
from tileseer.model import stage as model_stage
from tileseer.serving import stage

RECORDINGS = [("gfx942_miopen", "gfx942_mi300x", "forward_fp16"), ("gfx950_mi355x", "gfx950_mi355x", "forward_bf16")]


@pytest.mark.parametrize(("arch", "product", "operation"), RECORDINGS)
def test_the_header_picks_what_python_picks_to_the_last_bit(tmp_path, arch, product, operation):
    device = hardware.get(samples.CONFIG / "hardware.yaml", product)
    table = recording.dataset(samples.CONFIG / "recorded" / arch, Operation.parse(operation), device)
    numbers = table["problem_key"].dictionary_encode().combine_chunks().indices.to_numpy()
    parquet.write(table.filter(numbers % 8 == 0), tmp_path / "dataset.parquet")
    data = schema.load(tmp_path / "dataset.parquet")
    settings = model_stage.settings_for(samples.SMALL.model_copy(update={"min_child_samples": 5}), data)
    trained = trainer.train(data, device, settings, coefficients=samples.coefficients())
    categorical = sum(tree.categorical.sum() for tree in trees.Trees(trained.model.text).trees)
    assert (categorical > 0) == (settings.features == "miopen")
    served = stage.build(
        data, trained.model, trained.out_of_fold, TEMPLATE, API, samples.coefficients(), SMALL_SERVING
    )  # fmt: skip
    header = tmp_path / f"models/grouped_conv_{operation}_{arch}" / model_files.SELECTOR
    header.parent.mkdir(parents=True)
    header.write_text(served.header)
    shapes = np.concatenate([random_shapes(SHAPES), data.problems[list(DIMS)].to_numpy(np.int64)])
    rows, found, _ = picks_of_cpp(tmp_path, operation, shapes, 0, 0, arch)
    candidate, score, _ = served.picker.pick(shapes)
    assert rows == candidate.tolist() and found == score.tolist()
    assert (candidate >= 0).mean() > 0.2 and len(set(rows)) > 3
