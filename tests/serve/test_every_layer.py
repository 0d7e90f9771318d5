"""A layer that no CUTLASS kernel can run has an answer: the model says so and names that of cuDNN's plans."""

import re
import shlex

import numpy as np
import pytest
from published_models import publish_recording

from tileseer.cli import main
from tileseer.core import documents
from tileseer.judge.evaluation import Evaluation
from tileseer.learn import model_files
from tileseer.problems.problem import DIMS, Problem
from tileseer.serve.selector import Selector

OPERATION = "forward_bf16"
WORD = "N=8,C=3,K=60,Hi=64,Wi=64,Y=7,X=7,stride_h=2,stride_w=2,pad_h=3,pad_w=3"


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The folder of models of CUTLASS kernels and of cuDNN's plans, of a part of the recordings."""
    folder = tmp_path_factory.mktemp("both")
    publish_recording(
        folder / "a", "sm_90_h200", OPERATION, 16, "sm_90", folder / "sm_90", features="cutlass", prior="none"
    )
    publish_recording(folder / "b", "sm_90_h200", OPERATION, 16, "sm_90_cudnn", folder / "sm_90_cudnn")
    return folder


def test_select_names_the_models_that_have_a_candidate_and_the_share_of_such_layers(both, capsys):
    call = ["select", str(both / "sm_90"), "--problem", WORD]
    assert main.main(call) == 1
    said = capsys.readouterr().err
    path = Selector.read(both / "sm_90", OPERATION).folder / model_files.EVALUATION
    evaluation = documents.read_document(path, Evaluation)
    total = evaluation.layers + evaluation.without_candidate
    assert evaluation.without_candidate and f"{evaluation.without_candidate} of {total} layers" in said
    (command,) = re.findall(r"^cuDNN runs it: (tileseer .*), with the same options", said, re.M)
    assert main.main([*shlex.split(command)[1:], *call[2:]]) == 0
    assert "cudnn_conv_" in capsys.readouterr().out


def test_a_program_that_reads_both_models_has_a_candidate_for_every_layer(both):
    page = (both / "sm_90" / model_files.PAGE).read_text()
    (example,) = re.findall(r"^```python\n(own, plans = .*?)```", page, re.M | re.S)
    assert "own, plans" not in (both / "sm_90_cudnn" / model_files.PAGE).read_text()
    own = Selector.read(both / "sm_90", OPERATION)
    seen = {"Selector": Selector, "Path": lambda path: both / path.removeprefix("results/models/")}
    dims = [
        [8, 64, 64, 1, 1, 56, 56, 1, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1],
        [8, 3, 60, 1, 1, 64, 64, *[1] * 6, *[0] * 3, 1, 1, 1],
    ]
    has = own.select(np.array(dims)).candidate >= 0
    assert has.tolist() == [True, False]
    for row, kind in zip(dims, ("cutlass_conv", "cudnn_conv"), strict=True):
        problem = Problem.from_dims("forward", "bf16", **dict(zip(DIMS, row, strict=True)))
        seen["problem"] = problem
        exec(example, seen)
        assert seen["ranked"][0]["kernel"].startswith(kind)
